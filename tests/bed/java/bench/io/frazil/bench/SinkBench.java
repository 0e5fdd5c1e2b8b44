package io.frazil.bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.TreeMap;
import java.util.function.LongFunction;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * The sinks alone, in turn, in one JVM: {@code FOLDER INPUT RECORDS ROUNDS BATCH [KEY=VALUE]...}. The
 * input is {@code struct}, {@code json} (both behind JsonConverter) or {@code json-raw} (Frazil gets
 * the bytes); keys and values are further ones for Frazil, which runs with them and, as {@code plain},
 * also without delta encodings. Prints a line of JSON for each run.
 */
public final class SinkBench {
  static final String TOPIC = "bench";
  private static final String ENCODINGS = "iceberg.tables.write-props.frazil.parquet.encodings";

  private static final OperatingSystemMXBean SYSTEM =
      (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  /** Something that takes all records of a run; when it is finished, they are in its table. */
  interface Target {
    void put(List<SinkRecord> records);

    void finish();
  }

  private final SinkTables tables;
  private final String input;
  private final long records;
  private final int batch;
  private final Map<String, String> keys;

  private SinkBench(SinkTables tables, String input, long records, int batch, Map<String, String> keys) {
    this.tables = tables;
    this.input = input;
    this.records = records;
    this.batch = batch;
    this.keys = keys;
  }

  public static void main(String[] arguments) {
    Map<String, String> keys = new TreeMap<>();
    for (int at = 5; at < arguments.length; at++) {
      int equals = arguments[at].indexOf('=');
      keys.put(arguments[at].substring(0, equals), arguments[at].substring(equals + 1));
    }
    int rounds = Integer.parseInt(arguments[3]);
    List<String> sides = List.of("none", "peer", "frazil", "plain");
    try (SinkTables tables = new SinkTables(Path.of(arguments[0]))) {
      SinkBench bench = new SinkBench(tables, arguments[1], Long.parseLong(arguments[2]),
          Integer.parseInt(arguments[4]), keys);
      for (int round = 0; round <= rounds; round++) {
        for (int side = 0; side < sides.size(); side++) {
          bench.run(sides.get((side + round) % sides.size()), round);
        }
      }
    }
  }

  private void run(String side, int round) {
    String table = side + "_" + round;
    LongFunction<SinkRecord> source = source(side);
    System.gc();
    long cpu = SYSTEM.getProcessCpuTime();
    long thread = THREADS.getCurrentThreadCpuTime();
    long wall = System.nanoTime();
    Target target = target(side, table);
    for (long first = 0; first < records; first += batch) {
      long end = Math.min(first + batch, records);
      List<SinkRecord> some = new ArrayList<>(batch);
      for (long number = first; number < end; number++) {
        some.add(source.apply(number));
      }
      target.put(some);
    }
    target.finish();
    System.out.printf("{\"round\":%d,\"side\":\"%s\",\"table\":\"%s\",\"cpu_ns\":%d,\"thread_ns\":%d,\"wall_ns\":%d}%n",
        round, side, table, SYSTEM.getProcessCpuTime() - cpu, THREADS.getCurrentThreadCpuTime() - thread,
        System.nanoTime() - wall);
  }

  private Target target(String side, String table) {
    return switch (side) {
      case "none" -> new Target() {
        @Override
        public void put(List<SinkRecord> some) {}

        @Override
        public void finish() {}
      };
      case "peer" -> tables.peer(table);
      case "frazil" -> new FrazilTarget(tables.frazil(table, keys), records);
      case "plain" -> {
        Map<String, String> plain = new TreeMap<>(keys);
        plain.put(ENCODINGS, "plain-dictionary");
        yield new FrazilTarget(tables.frazil(table, plain), records);
      }
      default -> throw new IllegalArgumentException(side);
    };
  }

  /** Returns what makes the record of a number; what a converter does counts for the sink it serves. */
  private LongFunction<SinkRecord> source(String side) {
    SplittableRandom random = new SplittableRandom(42);
    Event event = new Event();
    if (input.equals("struct")) {
      return number -> {
        event.become(number, random.nextLong(), 0);
        return record(number, Event.SCHEMA, event.struct());
      };
    }
    StringBuilder text = new StringBuilder(512);
    LongFunction<byte[]> bytes = number -> {
      event.become(number, random.nextLong(), 0);
      text.setLength(0);
      event.json(text);
      return text.toString().getBytes(StandardCharsets.UTF_8);
    };
    if (side.equals("none") || input.equals("json-raw") && !side.equals("peer")) {
      return number -> record(number, Schema.OPTIONAL_BYTES_SCHEMA, bytes.apply(number));
    }
    JsonConverter converter = new JsonConverter();
    converter.configure(Map.of("schemas.enable", "false"), false);
    return number -> {
      SchemaAndValue value = converter.toConnectData(TOPIC, bytes.apply(number));
      return record(number, value.schema(), value.value());
    };
  }

  private static SinkRecord record(long number, Schema schema, Object value) {
    return new SinkRecord(TOPIC, 0, null, null, schema, value, number, number, TimestampType.CREATE_TIME);
  }
}
