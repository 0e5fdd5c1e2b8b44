package io.frazil.bench;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * Says when a connector's consumers got their first and their last record: the same clock for every
 * sink, and nothing per record. All tasks of a connector count together, by their group.
 */
public final class Probe implements ConsumerInterceptor<byte[], byte[]> {
  private static final Map<String, Count> COUNTS = new ConcurrentHashMap<>();
  private static final OperatingSystemMXBean SYSTEM =
      (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

  private Count count;

  private static final class Count {
    private final Path file;
    private final long wanted;
    private long records;
    private long polls;

    Count(Path file, long wanted) {
      this.file = file;
      this.wanted = wanted;
    }

    synchronized void add(int polled) {
      boolean first = records == 0;
      if (first) {
        say();
      }
      records += polled;
      polls++;
      if (records >= wanted) {
        say();
      }
    }

    private void say() {
      String line = String.format("{\"records\":%d,\"polls\":%d,\"ms\":%d,\"cpu_ns\":%d}%n",
          records, polls, System.currentTimeMillis(), SYSTEM.getProcessCpuTime());
      try {
        Files.writeString(file, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }

  @Override
  public void configure(Map<String, ?> config) {
    Path file = Path.of(config.get("frazil.bench.file").toString());
    long wanted = Long.parseLong(config.get("frazil.bench.records").toString());
    count = COUNTS.computeIfAbsent(config.get("group.id").toString(), group -> new Count(file, wanted));
  }

  @Override
  public ConsumerRecords<byte[], byte[]> onConsume(ConsumerRecords<byte[], byte[]> records) {
    if (!records.isEmpty()) {
      count.add(records.count());
    }
    return records;
  }

  @Override
  public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {}

  @Override
  public void close() {}
}
