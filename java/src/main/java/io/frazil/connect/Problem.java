package io.frazil.connect;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.connect.errors.ConnectException;

/** What there is to say about one key of a configuration. */
final class Problem {
    private static final int VERSION = 2;

    private final String key;
    private final boolean error;
    private final String message;

    private Problem(String key, boolean error, String message) {
        this.key = key;
        this.error = error;
        this.message = message;
    }

    static Problem error(String key, String message) {
        return new Problem(key, true, message);
    }

    static Problem warning(String key, String message) {
        return new Problem(key, false, message);
    }

    /** Reads the answer of {@link NativeSink#check}: version, count, then key, level and message. */
    static List<Problem> decode(byte[] answer) {
        ByteBuffer bytes = ByteBuffer.wrap(answer).order(ByteOrder.LITTLE_ENDIAN);
        try {
            if (bytes.get() != VERSION) {
                throw new ConnectException("the native library answers in another version [WIRE_VERSION]");
            }
            List<Problem> problems = new ArrayList<>();
            for (int left = bytes.getInt(); left > 0; left--) {
                String key = text(bytes);
                problems.add(new Problem(key, bytes.get() == 0, text(bytes)));
            }
            return problems;
        } catch (BufferUnderflowException | IllegalArgumentException e) {
            throw new ConnectException("the native library's answer to a validation is cut short [WIRE_CORRUPT]", e);
        }
    }

    String key() {
        return key;
    }

    /** Returns whether the connector cannot start with it; otherwise it is worth a line in the log. */
    boolean isError() {
        return error;
    }

    String message() {
        return message;
    }

    private static String text(ByteBuffer bytes) {
        int length = bytes.getInt();
        if (length < 0 || length > bytes.remaining()) {
            throw new BufferUnderflowException();
        }
        byte[] text = new byte[length];
        bytes.get(text);
        return new String(text, StandardCharsets.UTF_8);
    }
}
