package io.frazil.connect;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/** Writes effects as the native side does, for scripted sessions. */
final class Answers {
    private final Map<TopicPartition, Long> durable = new LinkedHashMap<>();
    private final Map<TopicPartition, Long> rewinds = new LinkedHashMap<>();
    private final List<Object[]> rejected = new ArrayList<>();
    private int flags;
    private int errorKind;
    private String errorMessage;
    private final List<byte[]> messages = new ArrayList<>();

    static byte[] none() {
        return new Answers().encode();
    }

    Answers durable(TopicPartition partition, long offset) {
        durable.put(partition, offset);
        return this;
    }

    Answers rewind(TopicPartition partition, long offset) {
        rewinds.put(partition, offset);
        return this;
    }

    Answers reject(int row, TopicPartition partition, long offset, String message) {
        rejected.add(new Object[] {row, partition, offset, message});
        return this;
    }

    Answers pause() {
        flags |= 1;
        return this;
    }

    Answers resume() {
        flags |= 2;
        return this;
    }

    Answers requestCommit() {
        flags |= 4;
        return this;
    }

    Answers error(int kind, String message) {
        flags |= 16;
        errorKind = kind;
        errorMessage = message;
        return this;
    }

    Answers message(String message) {
        messages.add(message.getBytes(StandardCharsets.UTF_8));
        return this;
    }

    Answers message(ByteBuffer written) {
        messages.add(Arrays.copyOf(written.array(), written.position()));
        return this;
    }

    byte[] encode() {
        ByteBuffer bytes = ByteBuffer.allocate(1 << 16).order(ByteOrder.LITTLE_ENDIAN);
        bytes.put((byte) 2).put((byte) flags);
        if (errorMessage != null) {
            bytes.put((byte) errorKind);
            text(bytes, "CODE");
            text(bytes, errorMessage);
        }
        for (Map<TopicPartition, Long> offsets : List.of(durable, rewinds)) {
            bytes.putInt(offsets.size());
            offsets.forEach((partition, offset) -> position(bytes, partition, offset));
        }
        bytes.putInt(rejected.size());
        for (Object[] row : rejected) {
            bytes.putInt((int) row[0]);
            position(bytes, (TopicPartition) row[1], (long) row[2]);
            text(bytes, "CODE");
            text(bytes, "db.t");
            text(bytes, "");
            text(bytes, (String) row[3]);
        }
        bytes.putInt(0).putLong(0);
        bytes.putInt(messages.size());
        messages.forEach(message -> bytes.putInt(message.length).put(message));
        return Arrays.copyOf(bytes.array(), bytes.position());
    }

    private static void position(ByteBuffer bytes, TopicPartition partition, long offset) {
        text(bytes, partition.topic());
        bytes.putInt(partition.partition()).putLong(offset);
    }

    private static void text(ByteBuffer bytes, String text) {
        byte[] utf8 = text.getBytes(StandardCharsets.UTF_8);
        bytes.putInt(utf8.length).put(utf8);
    }
}
