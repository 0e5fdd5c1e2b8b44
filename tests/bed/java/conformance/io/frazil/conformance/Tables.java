package io.frazil.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.CatalogProperties;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.UpdateSchema;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetWriter;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.parquet.Parquet;

/** The tables of one case, made and read by Iceberg's Java library. */
final class Tables implements AutoCloseable {
  private final JdbcCatalog catalog = new JdbcCatalog();
  private final Path folder;

  /** Opens the catalog in {@code folder}: an SQLite file beside a warehouse. */
  Tables(Path folder) {
    this.folder = folder;
    Map<String, String> properties = new HashMap<>();
    properties.put(CatalogProperties.URI, "jdbc:sqlite:" + folder.resolve("catalog.db"));
    properties.put(CatalogProperties.WAREHOUSE_LOCATION, folder.resolve("warehouse").toUri().toString());
    properties.put("jdbc.schema-version", "V1");
    catalog.setConf(new Configuration(false));
    catalog.initialize("iceberg", properties);
  }

  /** Returns the catalog's keys of a connector's configuration. */
  Map<String, String> connector() {
    Map<String, String> config = new HashMap<>();
    config.put("iceberg.catalog.type", "sql");
    config.put("iceberg.catalog.uri", "sqlite:" + folder.resolve("catalog.db"));
    config.put("iceberg.catalog.warehouse", folder.resolve("warehouse").toUri().toString());
    return config;
  }

  Catalog catalog() {
    return catalog;
  }

  /** Makes a table that is there before the sink starts. */
  void make(String name, JsonNode wanted) {
    JsonNode columns = wanted.has("schema") ? wanted.get("schema") : wanted.get("columns");
    if (columns == null) {
      throw new CaseException("table " + name + " has neither `columns` nor `schema`");
    }
    Schema schema = TypeNotation.schema(columns);
    if (wanted.has("identifier")) {
      Set<Integer> ids = new HashSet<>();
      for (JsonNode column : wanted.get("identifier")) {
        ids.add(schema.findField(column.asText()).fieldId());
      }
      schema = new Schema(schema.columns(), ids);
    }
    PartitionSpec spec = wanted.has("partition")
        ? TypeNotation.spec(schema, wanted.get("partition")) : PartitionSpec.unpartitioned();
    Map<String, String> properties = new HashMap<>();
    properties.put("format-version", wanted.path("format-version").asText("2"));
    wanted.path("properties").properties()
        .forEach(property -> properties.put(property.getKey(), property.getValue().isTextual()
            ? property.getValue().asText() : property.getValue().toString()));
    TableIdentifier identifier = identifier(name);
    makeNamespaces(identifier.namespace());
    Table table = catalog.buildTable(identifier, schema).withPartitionSpec(spec).withProperties(properties).create();
    if (wanted.has("rows")) {
      append(table, wanted.get("rows"));
    }
    change(table, wanted.path("then"));
  }

  private void makeNamespaces(Namespace namespace) {
    if (!catalog.namespaceExists(namespace)) {
      catalog.createNamespace(namespace);
    }
  }

  /** Changes a table that has rows already: what another engine did to it. */
  private static void change(Table table, JsonNode steps) {
    for (JsonNode step : steps) {
      String verb = step.get(0).asText();
      String column = step.get(1).asText();
      Transaction change = table.newTransaction();
      UpdateSchema schema = change.updateSchema();
      switch (verb) {
        case "rename" -> schema.renameColumn(column, step.get(2).asText());
        case "drop" -> schema.deleteColumn(column);
        case "add" -> schema.addColumn(column, TypeNotation.type(step.get(2).asText()));
        case "widen" -> schema.updateColumn(column, TypeNotation.type(step.get(2).asText()).asPrimitiveType());
        case "first" -> schema.moveFirst(column);
        default -> throw new CaseException("no change `" + verb + "`");
      }
      schema.commit();
      change.commitTransaction();
    }
  }

  private static void append(Table table, JsonNode rows) {
    AppendFiles append = table.newAppend();
    for (JsonNode row : rows) {
      append.appendFile(file(table, Canonical.struct(table.schema().asStruct(), row)));
    }
    append.commit();
  }

  private static DataFile file(Table table, Record row) {
    String path = table.location() + "/data/" + UUID.randomUUID() + ".parquet";
    if (table.spec().isPartitioned()) {
      throw new CaseException("`rows` of a partitioned table are not supported");
    }
    try {
      DataWriter<Record> writer = Parquet.writeData(table.io().newOutputFile(path))
          .schema(table.schema()).withSpec(table.spec()).overwrite()
          .createWriterFunc(GenericParquetWriter::create).build();
      try (writer) {
        writer.write(row);
      }
      return writer.toDataFile();
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  /** Returns a table, or null if there is none. */
  Table load(String name) {
    try {
      return catalog.loadTable(identifier(name));
    } catch (NoSuchTableException e) {
      return null;
    }
  }

  /** Reads the rows of a branch: each as the text by which it is compared. */
  static List<String> rows(Table table, String branch) throws IOException {
    List<String> rows = new ArrayList<>();
    IcebergGenerics.ScanBuilder scan = IcebergGenerics.read(table);
    if (branch != null) {
      if (table.snapshot(branch) == null) {
        return rows;
      }
      scan = scan.useSnapshot(table.snapshot(branch).snapshotId());
    }
    try (CloseableIterable<Record> records = scan.build()) {
      for (Record record : records) {
        rows.add(Canonical.text(table.schema().asStruct(), record));
      }
    }
    return rows;
  }

  /** Counts the data files that a scan of the table reads. */
  static int files(Table table) throws IOException {
    TableScan scan = table.newScan();
    int files = 0;
    try (CloseableIterable<?> tasks = scan.planFiles()) {
      for (Object ignored : tasks) {
        files++;
      }
    }
    return files;
  }

  private static TableIdentifier identifier(String name) {
    return TableIdentifier.parse(name);
  }

  @Override
  public void close() {
    catalog.close();
  }
}
