package io.frazil.connect;

import io.frazil.connect.wire.ByteSink;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/** The requests of {@code control} ({@code docs/wire-format.md}, "Requests"). */
final class Requests {
    private static final int VERSION = 1;
    private static final int ASSIGN = 1;
    private static final int REVOKE = 2;
    private static final int LOST = 3;
    private static final int PRE_COMMIT = 4;
    private static final int TICK = 5;
    private static final int CANCEL = 6;
    private static final int CHANNEL = 7;
    private static final int ALTER_OFFSETS = 8;
    private static final int EPOCH = 9;
    private static final int TOPICS = 10;
    private static final int METRICS = 11;
    private static final int BYTES_MAX = 16 << 20;

    private Requests() {}

    /** These partitions are now ours. */
    static byte[] assign(Collection<TopicPartition> partitions) {
        return withPartitions(ASSIGN, partitions);
    }

    /** These partitions go to another task in good order. */
    static byte[] revoke(Collection<TopicPartition> partitions) {
        return withPartitions(REVOKE, partitions);
    }

    /** These partitions were taken without a chance to finish. */
    static byte[] lost(Collection<TopicPartition> partitions) {
        return withPartitions(LOST, partitions);
    }

    /** Connect would commit these next offsets. */
    static byte[] preCommit(Map<TopicPartition, Long> offsets) {
        ByteSink sink = start(PRE_COMMIT);
        sink.i32(offsets.size());
        offsets.forEach((partition, offset) -> {
            partition(sink, partition);
            sink.i64(offset);
        });
        return sink.toByteArray();
    }

    /** Time passed without records. */
    static byte[] tick() {
        return start(TICK).toByteArray();
    }

    /** The session ends soon: stop waiting. */
    static byte[] cancel() {
        return start(CANCEL).toByteArray();
    }

    /** These partitions are to be read again, from the beginning where the offset is null; all when there are none. */
    static byte[] alterOffsets(Map<TopicPartition, Long> offsets) {
        ByteSink sink = start(ALTER_OFFSETS);
        sink.i32(offsets.size());
        offsets.forEach((partition, offset) -> {
            partition(sink, partition);
            sink.u8(offset == null ? 0 : 1);
            sink.i64(offset == null ? 0 : offset);
        });
        return sink.toByteArray();
    }

    /** This is what source topics are now. */
    static byte[] topics(Map<String, SourceTopic> topics) {
        ByteSink sink = start(TOPICS);
        sink.i32(topics.size());
        topics.forEach((name, topic) -> {
            sink.text(name);
            // As a UUID is written: the most significant byte first.
            sink.raw(ByteBuffer.allocate(16)
                    .putLong(topic.id().getMostSignificantBits())
                    .putLong(topic.id().getLeastSignificantBits())
                    .flip());
            sink.i32(topic.partitions());
        });
        return sink.toByteArray();
    }

    /** Which epoch do tasks have that start now? */
    static byte[] epoch() {
        return start(EPOCH).toByteArray();
    }

    /** What is there to show? The one request that any thread may send. */
    static byte[] metrics() {
        return start(METRICS).toByteArray();
    }

    /** One record of the control topic. */
    static final class Received {
        /** More than any message of ours has: what is longer is foreign, and the rest of it does not matter. */
        static final int VALUE_BYTES_MAX = 512 << 10;

        private final long offset;
        private final long ageMillis;
        private final byte[] value;

        Received(long offset, long ageMillis, byte[] value) {
            this.offset = offset;
            this.ageMillis = ageMillis;
            this.value = value == null ? new byte[0] : value;
        }

        /** Returns the bytes that it takes in a request. */
        int size() {
            return 20 + Math.min(value.length, VALUE_BYTES_MAX);
        }
    }

    /** What the control topic brought, and whether this process leads. */
    static byte[] channel(boolean leader, long nowMillis, Collection<Received> records) {
        ByteSink sink = start(CHANNEL);
        sink.u8(leader ? 1 : 0);
        sink.i64(nowMillis);
        sink.i32(records.size());
        for (Received record : records) {
            int length = Math.min(record.value.length, Received.VALUE_BYTES_MAX);
            sink.i64(record.offset);
            sink.i64(record.ageMillis);
            sink.i32(length);
            sink.raw(ByteBuffer.wrap(record.value, 0, length));
        }
        return sink.toByteArray();
    }

    private static byte[] withPartitions(int kind, Collection<TopicPartition> partitions) {
        ByteSink sink = start(kind);
        sink.i32(partitions.size());
        partitions.forEach(partition -> partition(sink, partition));
        return sink.toByteArray();
    }

    private static ByteSink start(int kind) {
        ByteSink sink = new ByteSink(BYTES_MAX);
        sink.u8(VERSION);
        sink.u8(kind);
        return sink;
    }

    private static void partition(ByteSink sink, TopicPartition partition) {
        sink.text(partition.topic());
        sink.i32(partition.partition());
    }
}
