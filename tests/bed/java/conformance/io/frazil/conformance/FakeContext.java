package io.frazil.conformance;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkTaskContext;

/** What Connect would be to a task: notes what the task asks for. */
final class FakeContext implements SinkTaskContext {
  final Set<TopicPartition> assigned = new HashSet<>();
  final Map<TopicPartition, Long> rewinds = new HashMap<>();
  private final Map<String, String> config;
  private final Outcome outcome;
  private final boolean reporter;

  FakeContext(Map<String, String> config, Outcome outcome, boolean reporter) {
    this.config = config;
    this.outcome = outcome;
    this.reporter = reporter;
  }

  @Override
  public Map<String, String> configs() {
    return config;
  }

  @Override
  public void offset(Map<TopicPartition, Long> offsets) {
    rewinds.putAll(offsets);
  }

  @Override
  public void offset(TopicPartition partition, long offset) {
    rewinds.put(partition, offset);
  }

  @Override
  public void timeout(long timeoutMs) {}

  @Override
  public Set<TopicPartition> assignment() {
    return assigned;
  }

  @Override
  public void pause(TopicPartition... partitions) {}

  @Override
  public void resume(TopicPartition... partitions) {}

  @Override
  public void requestCommit() {}

  @Override
  public ErrantRecordReporter errantRecordReporter() {
    if (!reporter) {
      return null;
    }
    return (record, error) -> {
      String place = record.originalTopic() + "-" + record.originalKafkaPartition() + "-" + record.originalKafkaOffset();
      outcome.rejected.add(new Outcome.Rejected(place, error.getMessage()));
      return CompletableFuture.completedFuture(null);
    };
  }
}
