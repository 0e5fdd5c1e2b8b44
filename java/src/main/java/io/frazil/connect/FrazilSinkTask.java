package io.frazil.connect;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** One task of the connector: its life, handed on to a {@link Delivery}. */
public final class FrazilSinkTask extends SinkTask {
    /** The part of `max.poll.interval.ms` that a `put` may wait: after the whole, partitions are lost. */
    private static final long PUT_PART = 4;

    private Delivery delivery;
    private SourceTopics topics;
    private TaskMetrics metrics;
    /** The control topic, for all tasks of this connector in this process; null without one. */
    private ControlChannel channel;

    /** Creates the task; the library is loaded by {@link #start}. */
    public FrazilSinkTask() {}

    @Override
    public String version() {
        return Version.JAR;
    }

    @Override
    public void start(Map<String, String> properties) {
        stop(); // Connect may start a task again whose last stop failed.
        Map<String, String> config = new HashMap<>(properties);
        ControlChannel joined = Coordination.isTopic(config) ? ControlChannel.join(config) : null;
        try {
            Session session = NativeSink.open(config);
            long waitMillis = WorkerFacts.pollIntervalMs(config) / PUT_PART;
            ErrantRecords errant = ErrantRecords.of(context, config, waitMillis);
            delivery = new Delivery(context, session, errant);
            metrics = new TaskMetrics(session, errant.counts());
            topics = new SourceTopics(config);
            channel = joined;
        } finally {
            if (channel == null && joined != null) {
                joined.leave();
            }
            if (topics == null) {
                stop(); // A start that fails leaves nothing behind.
            }
        }
    }

    @Override
    public void open(Collection<TopicPartition> partitions) {
        delivery.identify(topics.of(partitions)); // Before: what the tables hold is looked up by topic.
        delivery.open(partitions);
    }

    @Override
    public void put(Collection<SinkRecord> records) {
        if (channel != null && channel.failure() != null) {
            delivery.fail(channel.failure()); // Thrown by `put`, so that it is the task's own status.
        }
        try {
            delivery.put(records);
        } finally {
            metrics.refresh();
        }
    }

    @Override
    public Map<TopicPartition, OffsetAndMetadata> preCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        return delivery == null ? Map.of() : delivery.preCommit(offsets);
    }

    @Override
    public void close(Collection<TopicPartition> partitions) {
        if (delivery != null) {
            delivery.close(partitions);
        }
    }

    @Override
    public void stop() {
        Delivery ended = delivery;
        ControlChannel left = channel;
        SourceTopics asked = topics;
        TaskMetrics shown = metrics;
        metrics = null;
        delivery = null;
        channel = null;
        topics = null;
        if (shown != null) {
            shown.close(); // First: it asks the session a last time. It throws nothing.
        }
        try {
            if (ended != null) {
                ended.stop();
            }
        } finally {
            if (asked != null) {
                asked.close();
            }
            if (left != null) {
                left.leave(); // Last: what the session sends as it ends goes through it.
            }
        }
    }
}
