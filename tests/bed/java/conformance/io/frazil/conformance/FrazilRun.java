package io.frazil.conformance;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** Runs a case through the connector and its tasks, called as Connect calls them. */
final class FrazilRun implements Sink {
  private static final String CONNECTOR = "io.frazil.connect.FrazilSinkConnector";
  private static final int TRIES_MAX = 50;
  private static final long WAIT_MS = 20_000;

  private final String library;

  /** Takes the native library to load, or null for the one in the JAR. */
  FrazilRun(String library) {
    this.library = library;
  }

  @Override
  public Map<String, String> defaults(Tables tables) {
    Map<String, String> config = new HashMap<>(tables.connector());
    config.put("name", "conformance");
    config.put("connector.class", CONNECTOR);
    config.put("frazil.coordination", "local");
    config.put("frazil.kafka.from-worker", "false");
    config.put("iceberg.tables", Case.TABLE);
    config.put("errors.tolerance", "all");
    config.put("errors.deadletterqueue.topic.name", "dead-letters");
    if (library != null) {
      config.put("frazil.native.path", library);
    }
    return config;
  }

  @Override
  public Outcome run(Case body, Map<String, String> config, Steps steps) {
    Outcome outcome = new Outcome();
    Map<String, String> properties = new TreeMap<>(config);
    Set<String> topics = new TreeSet<>();
    steps.sent.forEach(sent -> topics.add(sent.notation().path("topic").asText(Steps.TOPIC)));
    if (!properties.containsKey("topics.regex")) {
      properties.putIfAbsent("topics", topics.isEmpty() ? Steps.TOPIC : String.join(",", topics));
    }
    properties.put("tasks.max", Integer.toString(steps.tasks()));
    if (body.waits()) { // No commit is waited for otherwise: closing commits what is open.
      properties.putIfAbsent("iceberg.control.commit.interval-ms", "1000");
    }
    properties.putIfAbsent("iceberg.control.commit.interval-ms", "60000");
    if (body.body().path("expect").has("validate")) {
      outcome.validated = validate(properties);
      return outcome;
    }
    List<Driver> drivers = new ArrayList<>();
    try {
      start(drivers, body, properties, steps, outcome);
      for (Steps.Step step : steps.steps) {
        if (step instanceof Steps.Put put) {
          drivers.get(put.task()).put(put.records());
        } else if (step instanceof Steps.Restart restart) {
          end(drivers);
          Case.lay(properties, restart.config());
          start(drivers, body, properties, steps, outcome);
        } else {
          for (Driver driver : drivers) {
            driver.commit();
          }
        }
      }
      if (body.body().path("expect").has("committed")) {
        drivers.forEach(Driver::commit);
      }
      end(drivers);
    } catch (RuntimeException e) {
      outcome.failure = e;
      outcome.failedAt = at;
    } finally {
      drivers.forEach(Driver::stop);
    }
    return outcome;
  }

  /** The call that runs, for the outcome. */
  private String at;

  private void start(List<Driver> drivers, Case body, Map<String, String> properties, Steps steps, Outcome outcome) {
    at = "start";
    SinkConnector connector = connector();
    connector.start(properties);
    List<Map<String, String>> tasks = connector.taskConfigs(steps.tasks());
    for (int task = 0; task < tasks.size(); task++) {
      Driver driver = new Driver(connector, tasks.get(task), outcome, body.body().path("reporter").asBoolean(true));
      drivers.add(driver);
      driver.open(partitions(steps, task));
    }
  }

  private void end(List<Driver> drivers) {
    for (Driver driver : drivers) {
      driver.close();
    }
    drivers.clear();
  }

  private static Set<TopicPartition> partitions(Steps steps, int task) {
    Set<TopicPartition> partitions = new java.util.HashSet<>();
    for (Steps.Sent sent : steps.sent) {
      if (sent.notation().path("task").asInt(0) == task) {
        partitions.add(new TopicPartition(sent.notation().path("topic").asText(Steps.TOPIC),
            sent.notation().path("partition").asInt(0)));
      }
    }
    if (partitions.isEmpty()) {
      partitions.add(new TopicPartition(Steps.TOPIC, task));
    }
    return partitions;
  }

  private static Map<String, List<String>> validate(Map<String, String> properties) {
    Map<String, List<String>> errors = new TreeMap<>();
    for (ConfigValue value : connector().validate(properties).configValues()) {
      if (!value.errorMessages().isEmpty()) {
        errors.put(value.name(), value.errorMessages());
      }
    }
    return errors;
  }

  /** One task and the loop around it. */
  private final class Driver {
    private final SinkTask task;
    private final FakeContext context;
    private final Outcome outcome;
    private final List<SinkRecord> history = new ArrayList<>();
    private final Map<TopicPartition, Long> next = new HashMap<>();

    Driver(SinkConnector connector, Map<String, String> config, Outcome outcome, boolean reporter) {
      task = (SinkTask) make(connector.taskClass().getName());
      this.outcome = outcome;
      context = new FakeContext(config, outcome, reporter);
      task.initialize(context);
      task.start(config);
    }

    void open(Set<TopicPartition> partitions) {
      at = "open";
      context.assigned.addAll(partitions);
      task.open(partitions);
    }

    void put(List<Steps.Sent> records) {
      at = "put";
      List<SinkRecord> batch = new ArrayList<>();
      for (Steps.Sent sent : records) {
        batch.add(sent.record());
        next.put(new TopicPartition(sent.record().originalTopic(), sent.record().originalKafkaPartition()),
            sent.record().originalKafkaOffset() + 1);
      }
      history.addAll(batch);
      deliver(batch);
    }

    /** Delivers again what the task wants again: a whole batch, or from an offset on. */
    private void deliver(List<SinkRecord> records) {
      List<SinkRecord> batch = records;
      for (int attempt = 1; ; attempt++) {
        RetriableException refused = null;
        try {
          task.put(batch);
        } catch (RetriableException e) {
          refused = e;
        }
        if (!context.rewinds.isEmpty()) {
          batch = again();
        } else if (refused == null) {
          return;
        }
        if (attempt == TRIES_MAX) {
          throw refused != null ? refused : new IllegalStateException("rewound again and again");
        }
        pause(20);
      }
    }

    private List<SinkRecord> again() {
      Map<TopicPartition, Long> from = new HashMap<>(context.rewinds);
      context.rewinds.clear();
      List<SinkRecord> batch = new ArrayList<>();
      for (SinkRecord record : history) {
        Long offset = from.get(new TopicPartition(record.originalTopic(), record.originalKafkaPartition()));
        if (offset != null && record.originalKafkaOffset() >= offset) {
          batch.add(record);
        }
      }
      return batch;
    }

    private Map<TopicPartition, OffsetAndMetadata> asked() {
      Map<TopicPartition, OffsetAndMetadata> asked = new HashMap<>();
      next.forEach((partition, offset) -> asked.put(partition, new OffsetAndMetadata(offset)));
      return asked;
    }

    private boolean preCommit() {
      at = "preCommit";
      boolean all = true;
      for (Map.Entry<TopicPartition, OffsetAndMetadata> answer : task.preCommit(asked()).entrySet()) {
        outcome.committed.put(answer.getKey().toString(), answer.getValue().offset());
        all &= answer.getValue().offset() >= next.get(answer.getKey());
      }
      return all;
    }

    void commit() {
      long deadline = System.nanoTime() + WAIT_MS * 1_000_000;
      while (!preCommit()) {
        if (System.nanoTime() > deadline) {
          throw new IllegalStateException("not committed in " + WAIT_MS + " ms");
        }
        pause(10);
        at = "put";
        deliver(List.of());
      }
    }

    void close() {
      preCommit();
      at = "close";
      task.close(context.assigned);
      context.assigned.clear();
      task.put(List.of()); // Throws what went wrong in the calls that never throw.
      at = "stop";
      task.stop();
    }

    void stop() {
      try {
        task.stop();
      } catch (RuntimeException e) {
        if (outcome.failure == null) {
          outcome.failure = e;
          outcome.failedAt = "stop";
        }
      }
    }
  }

  /** The plugin is found by name, as Connect finds it: any build of it can be run. */
  private static SinkConnector connector() {
    return (SinkConnector) make(CONNECTOR);
  }

  private static Object make(String name) {
    try {
      return Class.forName(name).getDeclaredConstructor().newInstance();
    } catch (ReflectiveOperationException e) {
      throw new CaseException("the plugin is not on the class path", e);
    }
  }

  private static void pause(long millis) {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException(e);
    }
  }
}
