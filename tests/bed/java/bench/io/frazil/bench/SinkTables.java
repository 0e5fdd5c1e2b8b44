package io.frazil.bench;

import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.CatalogProperties;
import org.apache.iceberg.Schema;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.connect.IcebergSinkConfig;
import org.apache.iceberg.connect.data.SinkWriter;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.types.Types;
import org.apache.kafka.connect.sink.SinkRecord;

/** The tables of a run: SQLite beside local files, which both sinks can open. */
final class SinkTables implements AutoCloseable {
  private static final Namespace NAMESPACE = Namespace.of("bench");
  private static final Schema SCHEMA = new Schema(
      Types.NestedField.optional(1, "id", Types.LongType.get()),
      Types.NestedField.optional(2, "user_id", Types.LongType.get()),
      Types.NestedField.optional(3, "event_type", Types.StringType.get()),
      Types.NestedField.optional(4, "ts", Types.LongType.get()),
      Types.NestedField.optional(5, "amount", Types.DoubleType.get()),
      Types.NestedField.optional(6, "country", Types.StringType.get()),
      Types.NestedField.optional(7, "session", Types.StringType.get()),
      Types.NestedField.optional(8, "device", Types.StringType.get()),
      Types.NestedField.optional(9, "is_new", Types.BooleanType.get()),
      Types.NestedField.optional(10, "url", Types.StringType.get()));

  private final JdbcCatalog catalog = new JdbcCatalog();
  private final Path folder;

  SinkTables(Path folder) {
    this.folder = folder;
    Map<String, String> properties = new TreeMap<>();
    properties.put(CatalogProperties.URI, "jdbc:sqlite:" + folder.resolve("catalog.db"));
    properties.put(CatalogProperties.WAREHOUSE_LOCATION, folder.resolve("warehouse").toUri().toString());
    properties.put("jdbc.schema-version", "V1");
    catalog.setConf(new Configuration(false));
    catalog.initialize("iceberg", properties);
    catalog.createNamespace(NAMESPACE, Map.of());
  }

  /** Returns Apache's writer; its files are appended as its coordinator would do. */
  SinkBench.Target peer(String table) {
    TableIdentifier name = make(table);
    Map<String, String> config = new TreeMap<>();
    config.put("name", "bench");
    config.put("topics", SinkBench.TOPIC);
    config.put("iceberg.tables", name.toString());
    config.put("iceberg.catalog.type", "jdbc");
    SinkWriter writer = new SinkWriter(catalog, new IcebergSinkConfig(config));
    return new SinkBench.Target() {
      @Override
      public void put(java.util.List<SinkRecord> records) {
        writer.save(records);
      }

      @Override
      public void finish() {
        AppendFiles append = catalog.loadTable(name).newAppend();
        writer.completeWrite().writerResults()
            .forEach(result -> result.dataFiles().forEach(append::appendFile));
        append.commit();
      }
    };
  }

  /** Makes a table for Frazil and returns a connector's configuration. */
  Map<String, String> frazil(String table, Map<String, String> keys) {
    Map<String, String> config = new TreeMap<>();
    config.put("name", "bench-" + table);
    config.put("connector.class", FrazilTarget.CONNECTOR);
    config.put("topics", SinkBench.TOPIC);
    config.put("tasks.max", "1");
    config.put("frazil.coordination", "local");
    config.put("frazil.kafka.from-worker", "false");
    config.put("iceberg.tables", make(table).toString());
    config.put("iceberg.catalog.type", "sql");
    config.put("iceberg.catalog.uri", "sqlite:" + folder.resolve("catalog.db"));
    config.put("iceberg.catalog.warehouse", folder.resolve("warehouse").toUri().toString());
    config.putAll(keys);
    return config;
  }

  private TableIdentifier make(String table) {
    TableIdentifier name = TableIdentifier.of(NAMESPACE, table);
    catalog.createTable(name, SCHEMA);
    return name;
  }

  @Override
  public void close() {
    catalog.close();
  }
}
