package io.frazil.connect;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.errors.RetriableException;

/** What the native side asks Java to do ({@code docs/wire-format.md}, "Effects"). */
final class Effects {
    private static final int VERSION = 2;
    private static final int FLAG_PAUSE = 1;
    private static final int FLAG_RESUME = 1 << 1;
    private static final int FLAG_REQUEST_COMMIT = 1 << 2;
    private static final int FLAG_TIMEOUT = 1 << 3;
    private static final int FLAG_ERROR = 1 << 4;
    private static final int FLAG_KEYS = 1 << 5;
    private static final int FLAG_HEADERS = 1 << 6;
    private static final int FLAG_TOPICS = 1 << 7;

    /** A record of the frame that does not fit. */
    static final class Rejected {
        private final int row;
        private final TopicPartition partition;
        private final long offset;
        private final Rejection reason;

        private Rejected(int row, TopicPartition partition, long offset, Rejection reason) {
            this.row = row;
            this.partition = partition;
            this.offset = offset;
            this.reason = reason;
        }

        /** Returns the row in the frame of this {@code put}. */
        int row() {
            return row;
        }

        TopicPartition partition() {
            return partition;
        }

        long offset() {
            return offset;
        }

        Rejection reason() {
            return reason;
        }
    }

    /** A line for the worker's log. */
    static final class LogLine {
        private final int level;
        private final String text;

        private LogLine(int level, String text) {
            this.level = level;
            this.text = text;
        }

        /** Returns 0 for error, 1 for warn, 2 for info, 3 for debug. */
        int level() {
            return level;
        }

        String text() {
            return text;
        }
    }

    private final int flags;
    private final long timeoutMillis;
    private final RuntimeException error;
    private final Map<TopicPartition, Long> durable;
    private final Map<TopicPartition, Long> rewinds;
    private final List<Rejected> rejected = new ArrayList<>();
    private final List<LogLine> log = new ArrayList<>();
    private final long logDropped;
    private final List<byte[]> messages = new ArrayList<>();

    /** Decodes the answer of {@code put} or {@code control}. */
    static Effects decode(byte[] answer) {
        try {
            return new Effects(ByteBuffer.wrap(answer).order(ByteOrder.LITTLE_ENDIAN));
        } catch (BufferUnderflowException e) {
            throw corrupt("it ends too early");
        }
    }

    private Effects(ByteBuffer bytes) {
        int version = bytes.get();
        if (version != VERSION) {
            throw new ConnectException("the native library answers in version " + version + ", the jar reads "
                    + VERSION + "; install both from one release [WIRE_VERSION]");
        }
        flags = bytes.get();
        timeoutMillis = (flags & FLAG_TIMEOUT) == 0 ? -1 : bytes.getLong();
        error = (flags & FLAG_ERROR) == 0 ? null : exception(bytes.get(), text(bytes), text(bytes));
        durable = positions(bytes);
        rewinds = positions(bytes);
        for (int left = count(bytes); left > 0; left--) {
            int row = bytes.getInt();
            TopicPartition partition = partition(bytes);
            long offset = bytes.getLong();
            Rejection reason = new Rejection(text(bytes), text(bytes), text(bytes), text(bytes));
            rejected.add(new Rejected(row, partition, offset, reason));
        }
        for (int left = count(bytes); left > 0; left--) {
            log.add(new LogLine(bytes.get(), text(bytes)));
        }
        logDropped = bytes.getLong();
        for (int left = count(bytes); left > 0; left--) {
            byte[] message = new byte[count(bytes)];
            bytes.get(message);
            messages.add(message);
        }
        if (bytes.hasRemaining()) {
            throw corrupt("bytes are left over");
        }
    }

    private static ConnectException corrupt(String problem) {
        return new ConnectException("the native library's answer is corrupt: " + problem
                + "; install the jar and the library of one release [WIRE_CORRUPT]");
    }

    private static RuntimeException exception(int kind, String code, String message) {
        String report = message.contains(code) ? message : message + " [" + code + "]";
        switch (kind) {
            case 0:
                return new RetriableException(report);
            case 1:
                return new DataException(report);
            case 2:
                return new ConfigException(report);
            case 3:
                return new ConnectException(report);
            default:
                throw corrupt("it has an unknown kind of error");
        }
    }

    private static Map<TopicPartition, Long> positions(ByteBuffer bytes) {
        Map<TopicPartition, Long> positions = new LinkedHashMap<>();
        for (int left = count(bytes); left > 0; left--) {
            TopicPartition partition = partition(bytes);
            positions.put(partition, bytes.getLong());
        }
        return positions;
    }

    private static TopicPartition partition(ByteBuffer bytes) {
        String topic = text(bytes);
        return new TopicPartition(topic, bytes.getInt());
    }

    private static int count(ByteBuffer bytes) {
        int count = bytes.getInt();
        if (count < 0 || count > bytes.remaining()) {
            throw corrupt("a count is larger than its bytes");
        }
        return count;
    }

    private static String text(ByteBuffer bytes) {
        byte[] utf8 = new byte[count(bytes)];
        bytes.get(utf8);
        return new String(utf8, StandardCharsets.UTF_8);
    }

    /** Returns the next offsets that table commits cover. */
    Map<TopicPartition, Long> durable() {
        return durable;
    }

    /** Returns where the consumer has to read again from. */
    Map<TopicPartition, Long> rewinds() {
        return rewinds;
    }

    List<Rejected> rejected() {
        return rejected;
    }

    List<LogLine> log() {
        return log;
    }

    /** Returns how many log lines were dropped since the last answer. */
    long logDropped() {
        return logDropped;
    }

    /** Returns what to send to the control topic, in this order, or what there is to show of a task. */
    List<byte[]> messages() {
        return messages;
    }

    boolean pause() {
        return (flags & FLAG_PAUSE) != 0;
    }

    boolean resume() {
        return (flags & FLAG_RESUME) != 0;
    }

    boolean requestCommit() {
        return (flags & FLAG_REQUEST_COMMIT) != 0;
    }

    /** Returns whether frames have to hold the records' keys; counts in the answer to a tick. */
    boolean keys() {
        return (flags & FLAG_KEYS) != 0;
    }

    /** Returns whether frames have to hold the records' headers; counts in the answer to a tick. */
    boolean headers() {
        return (flags & FLAG_HEADERS) != 0;
    }

    /** Returns whether frames have to say which topics transforms left; counts in the answer to a tick. */
    boolean topics() {
        return (flags & FLAG_TOPICS) != 0;
    }

    /** Returns within which time {@code put} wants to be called again, -1 when it does not matter. */
    long timeoutMillis() {
        return timeoutMillis;
    }

    /** Returns the exception to throw once all else is done, or null. */
    RuntimeException error() {
        return error;
    }
}
