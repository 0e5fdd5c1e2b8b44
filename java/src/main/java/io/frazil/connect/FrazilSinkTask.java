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
    /** Connect expects `put` back long before `max.poll.interval.ms`, whose default is 5 minutes. */
    private static final long DEAD_LETTER_WAIT_MS = 60_000;

    private Delivery delivery;

    /** Creates the task; the library is loaded by {@link #start}. */
    public FrazilSinkTask() {}

    @Override
    public String version() {
        return Version.JAR;
    }

    @Override
    public void start(Map<String, String> properties) {
        stop(); // Connect may start a task again whose last stop failed.
        Session session = NativeSink.open(new HashMap<>(properties));
        delivery = new Delivery(context, session, ErrantRecords.of(context, properties, DEAD_LETTER_WAIT_MS));
    }

    @Override
    public void open(Collection<TopicPartition> partitions) {
        delivery.open(partitions);
    }

    @Override
    public void put(Collection<SinkRecord> records) {
        delivery.put(records);
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
        delivery = null;
        if (ended != null) {
            ended.stop();
        }
    }
}
