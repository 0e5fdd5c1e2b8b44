package io.frazil.bench;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import org.apache.kafka.connect.sink.SinkTaskContext;

/** Frazil's connector and task, called as Connect calls them. */
final class FrazilTarget implements SinkBench.Target {
  static final String CONNECTOR = "io.frazil.connect.FrazilSinkConnector";
  private static final TopicPartition PARTITION = new TopicPartition(SinkBench.TOPIC, 0);
  private static final long WAIT_NS = 60_000_000_000L;

  private final SinkTask task;
  private final Context context;
  private final long records;

  FrazilTarget(Map<String, String> config, long records) {
    this.records = records;
    SinkConnector connector = (SinkConnector) make(CONNECTOR);
    connector.start(config);
    Map<String, String> own = connector.taskConfigs(1).get(0);
    task = (SinkTask) make(connector.taskClass().getName());
    context = new Context(own);
    task.initialize(context);
    task.start(own);
    task.open(Set.of(PARTITION));
  }

  @Override
  public void put(List<SinkRecord> batch) {
    long deadline = System.nanoTime() + WAIT_NS;
    while (context.paused) {
      task.put(List.of());
      pause(deadline);
    }
    while (true) {
      try {
        task.put(batch);
        return;
      } catch (RetriableException e) {
        pause(deadline);
      }
    }
  }

  /** Commits what is open, and insists that it is everything. */
  @Override
  public void finish() {
    Map<TopicPartition, OffsetAndMetadata> all = Map.of(PARTITION, new OffsetAndMetadata(records));
    task.preCommit(all);
    task.close(Set.of(PARTITION));
    task.put(List.of()); // Throws what went wrong in the calls that never throw.
    task.stop();
    if (context.rewound) {
      throw new IllegalStateException("records were asked for again");
    }
  }

  private static void pause(long deadline) {
    if (System.nanoTime() > deadline) {
      throw new IllegalStateException("the task takes no more records");
    }
    try {
      Thread.sleep(2);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException(e);
    }
  }

  private static Object make(String name) {
    try {
      return Class.forName(name).getDeclaredConstructor().newInstance();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("the plugin is not on the class path", e);
    }
  }

  /** What Connect would be to the task. */
  private static final class Context implements SinkTaskContext {
    private final Map<String, String> config;
    private boolean paused;
    private boolean rewound;

    Context(Map<String, String> config) {
      this.config = config;
    }

    @Override
    public Map<String, String> configs() {
      return config;
    }

    @Override
    public void offset(Map<TopicPartition, Long> offsets) {
      rewound |= offsets.values().stream().anyMatch(offset -> offset > 0);
    }

    @Override
    public void offset(TopicPartition partition, long offset) {
      offset(Map.of(partition, offset));
    }

    @Override
    public void timeout(long timeoutMs) {}

    @Override
    public Set<TopicPartition> assignment() {
      return new HashSet<>(Set.of(PARTITION));
    }

    @Override
    public void pause(TopicPartition... partitions) {
      paused = true;
    }

    @Override
    public void resume(TopicPartition... partitions) {
      paused = false;
    }

    @Override
    public void requestCommit() {}

    @Override
    public PluginMetrics pluginMetrics() {
      return null;
    }

    @Override
    public ErrantRecordReporter errantRecordReporter() {
      return null;
    }
  }
}
