package io.frazil.connect.wire;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Where Kafka has a record: its topic, partition and offset before any transform (KIP-793).
 *
 * <p>Connect has them since 3.6. On an older runtime the record's own coordinates are taken, which
 * are the same unless a transform renamed the topic.
 */
public final class SourceCoordinates {
    private static final MethodHandle TOPIC = find("originalTopic", "topic", String.class);
    private static final MethodHandle PARTITION = find("originalKafkaPartition", "kafkaPartition", Integer.class);
    private static final MethodHandle OFFSET = find("originalKafkaOffset", "kafkaOffset", long.class);

    private SourceCoordinates() {}

    private static MethodHandle find(String original, String current, Class<?> type) {
        MethodHandles.Lookup lookup = MethodHandles.publicLookup();
        MethodType signature = MethodType.methodType(type);
        MethodType called = MethodType.methodType(type, SinkRecord.class);
        try {
            try {
                return lookup.findVirtual(SinkRecord.class, original, signature).asType(called);
            } catch (NoSuchMethodException olderThan36) {
                return lookup.findVirtual(SinkRecord.class, current, signature).asType(called);
            }
        } catch (ReflectiveOperationException foreign) {
            throw new LinkageError("SinkRecord has no method " + current, foreign);
        }
    }

    public static String topic(SinkRecord record) {
        try {
            return (String) TOPIC.invokeExact(record);
        } catch (Throwable error) {
            throw failed(error);
        }
    }

    public static int partition(SinkRecord record) {
        Integer partition;
        try {
            partition = (Integer) PARTITION.invokeExact(record);
        } catch (Throwable error) {
            throw failed(error);
        }
        if (partition == null) {
            throw new ConnectException("a record of topic " + topic(record) + " has no partition [RECORD_UNPLACED]");
        }
        return partition;
    }

    public static long offset(SinkRecord record) {
        try {
            return (long) OFFSET.invokeExact(record);
        } catch (Throwable error) {
            throw failed(error);
        }
    }

    private static RuntimeException failed(Throwable error) {
        if (error instanceof Error) {
            throw (Error) error;
        }
        return new ConnectException("a record cannot tell where it comes from [RECORD_UNPLACED]", error);
    }
}
