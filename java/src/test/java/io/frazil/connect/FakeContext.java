package io.frazil.connect;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;

/** A context that records what a task asks of it. */
final class FakeContext implements SinkTaskContext {
    final Set<TopicPartition> assigned = new HashSet<>();
    final Map<TopicPartition, Long> offsets = new HashMap<>();
    final Set<TopicPartition> paused = new HashSet<>();
    final List<SinkRecord> reported = new ArrayList<>();
    final List<Throwable> reasons = new ArrayList<>();
    /** What a report returns; null is "there is no reporter". */
    Future<Void> acknowledgement = CompletableFuture.completedFuture(null);
    long timeoutMs = -1;
    int commitsRequested;

    @Override
    public Map<String, String> configs() {
        return Map.of();
    }

    @Override
    public void offset(Map<TopicPartition, Long> rewinds) {
        if (!assigned.containsAll(rewinds.keySet())) {
            throw new IllegalStateException("a partition is not assigned, which Connect does not forgive");
        }
        offsets.putAll(rewinds);
    }

    @Override
    public void offset(TopicPartition partition, long offset) {
        offset(Map.of(partition, offset));
    }

    @Override
    public void timeout(long timeoutMs) {
        this.timeoutMs = timeoutMs;
    }

    @Override
    public Set<TopicPartition> assignment() {
        return assigned;
    }

    @Override
    public void pause(TopicPartition... partitions) {
        paused.addAll(Set.of(partitions));
    }

    @Override
    public void resume(TopicPartition... partitions) {
        paused.removeAll(Set.of(partitions));
    }

    @Override
    public void requestCommit() {
        commitsRequested++;
    }

    @Override
    public ErrantRecordReporter errantRecordReporter() {
        if (acknowledgement == null) {
            return null;
        }
        return (record, error) -> {
            reported.add(record);
            reasons.add(error);
            return acknowledgement;
        };
    }
}
