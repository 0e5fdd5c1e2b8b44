package io.frazil.flink;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.math.BigInteger;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.Collector;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.flink.CatalogLoader;
import org.apache.iceberg.flink.FlinkSchemaUtil;
import org.apache.iceberg.flink.TableLoader;
import org.apache.iceberg.flink.sink.FlinkSink;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * The orders of {@code tests/bench/flink.py} through Flink and Iceberg's sink for it, one job after the
 * other in one JVM, so that only the first finds it cold.
 *
 * <p>A file {@code TABLE.start} in the folder starts a job that upserts the topic into that table;
 * {@code TABLE.stop} ends it, and {@code TABLE.ended} answers. {@code TABLE.probe} tells when the first
 * and the last record were read, as the interceptor of the Connect side does.
 */
public final class UpsertJobs {
  private static final OperatingSystemMXBean SYSTEM =
      (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
  private static final Map<String, Count> COUNTS = new ConcurrentHashMap<>();
  private static final RowType ROW =
      FlinkSchemaUtil.convert(
          new org.apache.iceberg.Schema(
              org.apache.iceberg.types.Types.NestedField.required(
                  1, "order_id", org.apache.iceberg.types.Types.StringType.get()),
              org.apache.iceberg.types.Types.NestedField.optional(
                  2, "status", org.apache.iceberg.types.Types.StringType.get()),
              org.apache.iceberg.types.Types.NestedField.optional(
                  3, "amount", org.apache.iceberg.types.Types.DecimalType.of(12, 2)),
              org.apache.iceberg.types.Types.NestedField.optional(
                  4, "event_ts", org.apache.iceberg.types.Types.TimestampType.withZone())));

  private UpsertJobs() {}

  /** What all readers of a job have read. */
  private static final class Count {
    private final Path file;
    private final long wanted;
    private long records;

    Count(Path file, long wanted) {
      this.file = file;
      this.wanted = wanted;
    }

    synchronized void one() throws IOException {
      if (records == 0) {
        say();
      }
      records++;
      if (records == wanted) {
        say();
      }
    }

    private void say() throws IOException {
      String line =
          String.format(
              "{\"records\":%d,\"polls\":1,\"ms\":%d,\"cpu_ns\":%d}%n",
              records, System.currentTimeMillis(), SYSTEM.getProcessCpuTime());
      Files.writeString(file, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }
  }

  /** Reads Avro behind a schema's id; a record without a value deletes the row of its key. */
  private static final class Orders implements KafkaRecordDeserializationSchema<RowData> {
    private static final long serialVersionUID = 1;
    private final String registry;
    private final String job;
    private transient Count count;
    private transient GenericDatumReader<GenericRecord> reader;
    private transient BinaryDecoder decoder;
    private transient GenericRecord record;
    private transient int schema;

    Orders(String registry, String job) {
      this.registry = registry;
      this.job = job;
    }

    @Override
    public void open(DeserializationSchema.InitializationContext context) {
      count = COUNTS.get(job);
      schema = -1;
    }

    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> message, Collector<RowData> out)
        throws IOException {
      count.one();
      GenericRowData row = new GenericRowData(4);
      if (message.value() == null) {
        row.setRowKind(RowKind.DELETE);
        row.setField(0, StringData.fromBytes(message.key()));
      } else {
        ByteBuffer bytes = ByteBuffer.wrap(message.value());
        if (bytes.get() != 0) {
          throw new IOException("no magic byte");
        }
        read(bytes.getInt(), message.value());
        row.setRowKind(RowKind.UPDATE_AFTER);
        row.setField(0, StringData.fromString(record.get(0).toString()));
        row.setField(1, StringData.fromString(record.get(1).toString()));
        byte[] amount = ((ByteBuffer) record.get(2)).array();
        row.setField(2, DecimalData.fromUnscaledLong(new BigInteger(amount).longValueExact(), 12, 2));
        long micros = (Long) record.get(3);
        row.setField(
            3,
            TimestampData.fromEpochMillis(
                Math.floorDiv(micros, 1000L), (int) Math.floorMod(micros, 1000L) * 1000));
      }
      out.collect(row);
    }

    private void read(int id, byte[] value) throws IOException {
      if (id != schema) {
        reader = new GenericDatumReader<>(new Schema.Parser().parse(schemaOf(id)));
        schema = id;
      }
      decoder = DecoderFactory.get().binaryDecoder(value, 5, value.length - 5, decoder);
      record = reader.read(record, decoder);
    }

    private String schemaOf(int id) throws IOException {
      HttpRequest request = HttpRequest.newBuilder(URI.create(registry + "/schemas/ids/" + id)).build();
      try {
        HttpResponse<String> answer =
            HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        return new ObjectMapper().readTree(answer.body()).get("schema").asText();
      } catch (InterruptedException e) {
        throw new IOException(e);
      }
    }

    @Override
    public TypeInformation<RowData> getProducedType() {
      return InternalTypeInfo.of(ROW);
    }
  }

  private static JobClient start(
      String bootstrap,
      String topic,
      String registry,
      Map<String, String> catalog,
      TableIdentifier table,
      long interval,
      int parallelism)
      throws Exception {
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
    environment.setParallelism(parallelism);
    environment.enableCheckpointing(interval, CheckpointingMode.EXACTLY_ONCE);
    KafkaSource<RowData> source =
        KafkaSource.<RowData>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(topic)
            .setGroupId("flink-" + table.name())
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setDeserializer(new Orders(registry, table.name()))
            .build();
    FlinkSink.forRowData(
            environment.fromSource(
                source, WatermarkStrategy.noWatermarks(), "orders", InternalTypeInfo.of(ROW)))
        .tableLoader(
            TableLoader.fromCatalog(CatalogLoader.rest("bench", new Configuration(), catalog), table))
        .equalityFieldColumns(List.of("order_id"))
        .upsert(true)
        .append();
    return environment.executeAsync(table.name());
  }

  /**
   * Runs jobs until the process is ended.
   *
   * @param arguments bootstrap servers, topic, registry, catalog, warehouse, namespace, records, ms
   *     between checkpoints, parallelism, folder
   */
  public static void main(String[] arguments) throws Exception {
    Map<String, String> catalog = Map.of("uri", arguments[3], "warehouse", arguments[4]);
    Path folder = Path.of(arguments[9]);
    while (true) {
      for (Path file : waiting(folder)) {
        String name = file.getFileName().toString().replace(".start", "");
        COUNTS.put(name, new Count(folder.resolve(name + ".probe"), Long.parseLong(arguments[6])));
        Files.delete(file);
        JobClient job =
            start(
                arguments[0],
                arguments[1],
                arguments[2],
                catalog,
                TableIdentifier.of(arguments[5], name),
                Long.parseLong(arguments[7]),
                Integer.parseInt(arguments[8]));
        Path stop = folder.resolve(name + ".stop");
        while (!Files.exists(stop)) {
          if (job.getJobStatus().get(30, TimeUnit.SECONDS).isTerminalState()) {
            job.getJobExecutionResult().get(30, TimeUnit.SECONDS);
          }
          Thread.sleep(100);
        }
        job.cancel().get(60, TimeUnit.SECONDS);
        COUNTS.remove(name);
        Files.write(folder.resolve(name + ".ended"), "".getBytes(StandardCharsets.UTF_8));
      }
      Thread.sleep(100);
    }
  }

  private static List<Path> waiting(Path folder) throws IOException {
    try (java.util.stream.Stream<Path> files = Files.list(folder)) {
      return files.filter(file -> file.toString().endsWith(".start")).toList();
    }
  }
}
