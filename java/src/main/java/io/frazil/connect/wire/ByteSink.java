package io.frazil.connect.wire;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * A heap array that grows and takes little-endian numbers.
 *
 * <p>Heap and one bulk copy is faster than absolute puts into a direct buffer. The array is kept
 * between frames; {@link #clear} only forgets the content.
 */
public final class ByteSink {
    private static final VarHandle SHORTS =
            MethodHandles.byteArrayViewVarHandle(short[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle INTS =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle LONGS =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final int CAPACITY_MIN = 1024;
    /** Kept over {@link #clear}; what one odd record needed beyond it is given back. */
    private static final int CAPACITY_KEPT = 8 << 20;

    private final int limit;
    private byte[] bytes = new byte[CAPACITY_MIN];
    private int length;

    /** Thrown when a sink would grow over its limit. */
    public static final class FullException extends RuntimeException {
        private static final long serialVersionUID = 1L;

        FullException() {
            super("sink is full", null, false, false);
        }
    }

    /** Creates a sink that refuses to hold more than {@code limit} bytes. */
    public ByteSink(int limit) {
        this.limit = limit;
    }

    /** Forgets the content. */
    public void clear() {
        length = 0;
        if (bytes.length > CAPACITY_KEPT) {
            bytes = new byte[CAPACITY_MIN];
        }
    }

    /** Returns the number of bytes written. */
    public int length() {
        return length;
    }

    /** Appends the content to {@code target}. */
    public void copyTo(ByteBuffer target) {
        target.put(bytes, 0, length);
    }

    /** Returns a copy of the content. */
    public byte[] toByteArray() {
        return Arrays.copyOf(bytes, length);
    }

    /** Makes room for {@code count} bytes, all of them written or zero, and returns where they start. */
    public int skip(int count) {
        int at = reserve(count);
        Arrays.fill(bytes, at, at + count, (byte) 0);
        return at;
    }

    /** Makes room for {@code count} bytes, all of which the caller overwrites, and returns where they start. */
    int reserve(int count) {
        int at = length;
        if (count > limit - at) {
            throw new FullException();
        }
        int needed = at + count;
        if (needed > bytes.length) {
            bytes = Arrays.copyOf(bytes, (int) Math.min(limit, Math.max(needed, bytes.length * 2L)));
        }
        length = needed;
        return at;
    }

    // In each of these the array may move while room is made: the position comes first.

    public void u8(int value) {
        int at = reserve(1);
        bytes[at] = (byte) value;
    }

    public void i16(short value) {
        int at = reserve(2);
        SHORTS.set(bytes, at, value);
    }

    public void i32(int value) {
        int at = reserve(4);
        INTS.set(bytes, at, value);
    }

    public void i64(long value) {
        int at = reserve(8);
        LONGS.set(bytes, at, value);
    }

    /** Overwrites the byte at {@code at}. */
    public void setU8(int at, int value) {
        bytes[at] = (byte) value;
    }

    /** Overwrites the two bytes at {@code at}. */
    void setI16(int at, short value) {
        SHORTS.set(bytes, at, value);
    }

    /** Overwrites the eight bytes at {@code at}. */
    void setI64(int at, long value) {
        LONGS.set(bytes, at, value);
    }

    /** Overwrites the four bytes at {@code at}. */
    public void setI32(int at, int value) {
        INTS.set(bytes, at, value);
    }

    /** Appends {@code value} as it is. */
    public void raw(byte[] value) {
        int at = reserve(value.length);
        System.arraycopy(value, 0, bytes, at, value.length);
    }

    /** Appends the remaining bytes of {@code value} and leaves its position alone. */
    public void raw(ByteBuffer value) {
        int count = value.remaining();
        int at = reserve(count);
        value.duplicate().get(bytes, at, count);
    }

    /** Appends the UTF-8 of {@code value} without a length and returns how many bytes it took. */
    public int utf8(String value) {
        byte[] utf8 = value.getBytes(StandardCharsets.UTF_8);
        int at = length;
        raw(utf8);
        // Half a surrogate pair becomes '?'; only a text that got one has to be looked at.
        if (hasQuestionMark(at, utf8.length) && hasLoneSurrogate(value)) {
            throw new RowException(
                    RowException.TEXT_INVALID,
                    "a text of " + value.length() + " characters has half of a surrogate pair; correct the producer");
        }
        return utf8.length;
    }

    /** Appends the length of {@code value} in UTF-8, and the UTF-8. */
    public void text(String value) {
        int at = length;
        i32(0);
        setI32(at, utf8(value));
    }

    /** Forgets what stands behind {@code length}. */
    void truncate(int length) {
        this.length = length;
    }

    /** Tells whether one of the bytes is {@code '?'}. */
    boolean hasQuestionMark(int from, int count) {
        final long ones = 0x0101010101010101L;
        int at = from;
        int end = from + count;
        for (; at + 8 <= end; at += 8) {
            long zeroWhereFound = (long) LONGS.get(bytes, at) ^ ones * '?';
            if (((zeroWhereFound - ones) & ~zeroWhereFound & ones << 7) != 0) {
                return true;
            }
        }
        for (; at < end; at++) {
            if (bytes[at] == '?') {
                return true;
            }
        }
        return false;
    }

    private static boolean hasLoneSurrogate(String value) {
        for (int index = 0; index < value.length(); index++) {
            char unit = value.charAt(index);
            if (!Character.isSurrogate(unit)) {
                continue;
            }
            boolean paired = Character.isHighSurrogate(unit)
                    && index + 1 < value.length()
                    && Character.isLowSurrogate(value.charAt(index + 1));
            if (!paired) {
                return true;
            }
            index++;
        }
        return false;
    }
}
