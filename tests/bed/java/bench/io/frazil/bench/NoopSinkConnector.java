package io.frazil.bench;

import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** A sink that drops every record: what consumer, converter and framework cost without a sink. */
public final class NoopSinkConnector extends SinkConnector {
  private Map<String, String> properties = Map.of();

  @Override
  public String version() {
    return "bench";
  }

  @Override
  public void start(Map<String, String> given) {
    properties = Map.copyOf(given);
  }

  @Override
  public void stop() {}

  @Override
  public Class<? extends Task> taskClass() {
    return NoopSinkTask.class;
  }

  @Override
  public List<Map<String, String>> taskConfigs(int tasks) {
    return Collections.nCopies(tasks, properties);
  }

  @Override
  public ConfigDef config() {
    return new ConfigDef();
  }

  /** Its task. */
  public static final class NoopSinkTask extends SinkTask {
    @Override
    public String version() {
      return "bench";
    }

    @Override
    public void start(Map<String, String> given) {}

    @Override
    public void put(Collection<SinkRecord> records) {}

    @Override
    public void stop() {}
  }
}
