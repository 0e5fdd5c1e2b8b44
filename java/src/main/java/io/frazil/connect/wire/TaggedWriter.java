package io.frazil.connect.wire;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.header.Headers;

/**
 * Writes values without a schema, each with a tag ({@code docs/wire-format.md}, "Tagged values").
 *
 * <p>Texts go to a heap of their own, keys of maps to a table of names; both belong to one frame.
 */
final class TaggedWriter {
    private static final int NULL = 0;
    private static final int FALSE = 1;
    private static final int TRUE = 2;
    private static final int INT8 = 3;
    private static final int INT16 = 4;
    private static final int INT32 = 5;
    private static final int INT64 = 6;
    private static final int FLOAT32 = 7;
    private static final int FLOAT64 = 8;
    private static final int STRING = 9;
    private static final int BYTES = 10;
    private static final int DECIMAL = 11;
    private static final int DATE = 12;
    private static final int TIME = 13;
    private static final int TIMESTAMP = 14;
    private static final int LIST = 15;
    private static final int MAP = 16;
    private static final int NAME = 17;
    private static final int CLOCK_TIME = 18;
    private static final int LOCAL = 19;
    private static final int INSTANT = 20;
    private static final int UUID = 21;

    /** Maps whose keys are data rather than names must not make the table as large as the data. */
    private static final int NAMES_MAX = 4096;
    /** Names of a record whose index is known without a look-up. */
    private static final int NAMES_EXPECTED = 256;
    /** Frames that go without another attempt when texts could not be turned together. */
    private static final int FRAMES_APART = 31;

    private final ByteSink out;
    private final ByteSink names;
    private final ByteSink text;
    private final Map<String, Integer> nameIndexes = new HashMap<>();
    /** The names of the row before in their order, mostly the same objects as those of the next row. */
    private final String[] expected = new String[NAMES_EXPECTED];
    private final int[] expectedIndexes = new int[NAMES_EXPECTED];
    private int nextName;
    private final AsciiTexts texts = new AsciiTexts();
    /** Frames that turn their texts one by one still, the one at hand included. */
    private int apart;

    /** Thrown when texts of a frame cannot be turned together: it has to be written once more. */
    static final class NotAsciiException extends RuntimeException {
        private static final long serialVersionUID = 1L;

        NotAsciiException() {
            super("texts are not ASCII", null, false, false);
        }
    }

    TaggedWriter(ByteSink out, ByteSink names, ByteSink text) {
        this.out = out;
        this.names = names;
        this.text = text;
    }

    /** Forgets the names. */
    void clear() {
        nameIndexes.clear();
        Arrays.fill(expected, null);
        texts.clear();
        apart = Math.max(0, apart - 1);
    }

    /**
     * Writes the texts that are gathered; nothing comes behind it.
     *
     * @throws NotAsciiException when the frame has to be written once more
     */
    void finish() {
        if (texts.length() > 0 && !texts.moveTo(text)) {
            apart = FRAMES_APART + 1;
            throw new NotAsciiException();
        }
    }

    int nameCount() {
        return nameIndexes.size();
    }

    /** Writes the first {@code rows} of {@code values}, which have no schema. */
    void writeRows(Object[] values, int rows) {
        int offsets = out.skip(4 * (rows + 1));
        int data = out.length();
        for (int row = 0; row < rows; row++) {
            nextName = 0;
            value(null, values[row], 1);
            out.setI32(offsets + 4 * (row + 1), out.length() - data);
        }
    }

    /** Writes the headers of each row as a map in which names may repeat. */
    void writeHeaders(Headers[] headers, int rows) {
        int offsets = out.skip(4 * (rows + 1));
        int data = out.length();
        for (int row = 0; row < rows; row++) {
            nextName = 0;
            if (headers[row] == null) {
                out.u8(NULL);
            } else {
                int start = open(MAP);
                int count = 0;
                for (Header header : headers[row]) {
                    name(header.key());
                    value(header.schema(), header.value(), 2);
                    count++;
                }
                close(start, count);
            }
            out.setI32(offsets + 4 * (row + 1), out.length() - data);
        }
    }

    private void value(Schema schema, Object value, int depth) {
        if (depth > SchemaWriter.NESTING_MAX) {
            throw new RowException(
                    RowException.TOO_DEEP,
                    "a value nests deeper than " + SchemaWriter.NESTING_MAX + " levels or contains itself");
        }
        if (value == null) {
            out.u8(NULL);
        } else if (value instanceof String) {
            string((String) value);
        } else if (value instanceof Number) {
            number((Number) value);
        } else if (value instanceof Boolean) {
            out.u8((Boolean) value ? TRUE : FALSE);
        } else if (value instanceof Map) {
            map(schema, (Map<?, ?>) value, depth);
        } else if (value instanceof List) {
            list(schema, (List<?>) value, depth);
        } else if (value instanceof java.util.Date) {
            date(schema, (java.util.Date) value);
        } else if (value instanceof byte[]) {
            out.u8(BYTES);
            out.i32(((byte[]) value).length);
            out.raw((byte[]) value);
        } else if (value instanceof ByteBuffer) {
            out.u8(BYTES);
            out.i32(((ByteBuffer) value).remaining());
            out.raw((ByteBuffer) value);
        } else if (value instanceof Struct) {
            struct((Struct) value, depth);
        } else {
            object(value);
        }
    }

    /** Writes what is none of Connect's classes, but what transforms put into maps. */
    private void object(Object value) {
        if (value instanceof LocalDate) {
            long days = ((LocalDate) value).toEpochDay();
            if (days != (int) days) {
                throw new RowException(RowException.VALUE_OUT_OF_RANGE, "a date does not fit 32 bits");
            }
            out.u8(DATE);
            out.i32((int) days);
        } else if (value instanceof LocalTime) {
            out.u8(CLOCK_TIME);
            out.i64(((LocalTime) value).toNanoOfDay());
        } else if (value instanceof LocalDateTime) {
            moment(LOCAL, ((LocalDateTime) value).toEpochSecond(ZoneOffset.UTC), ((LocalDateTime) value).getNano());
        } else if (value instanceof Instant) {
            moment(INSTANT, ((Instant) value).getEpochSecond(), ((Instant) value).getNano());
        } else if (value instanceof OffsetDateTime) {
            moment(INSTANT, ((OffsetDateTime) value).toEpochSecond(), ((OffsetDateTime) value).getNano());
        } else if (value instanceof ZonedDateTime) {
            moment(INSTANT, ((ZonedDateTime) value).toEpochSecond(), ((ZonedDateTime) value).getNano());
        } else if (value instanceof java.util.UUID) {
            out.u8(UUID);
            out.i64(Long.reverseBytes(((java.util.UUID) value).getMostSignificantBits()));
            out.i64(Long.reverseBytes(((java.util.UUID) value).getLeastSignificantBits()));
        } else {
            throw unsupported(value);
        }
    }

    private void moment(int tag, long seconds, int nanos) {
        out.u8(tag);
        out.i64(seconds);
        out.i32(nanos);
    }

    private static RowException unsupported(Object value) {
        return new RowException(
                RowException.TYPE_UNSUPPORTED,
                "a " + value.getClass().getName() + " is none of the classes that Connect knows");
    }

    private void string(String value) {
        int at = out.reserve(9);
        out.setU8(at, STRING);
        if (apart == 0 && gathers(value)) {
            out.setI32(at + 1, text.length() + texts.length() - value.length());
            out.setI32(at + 5, value.length());
        } else {
            out.setI32(at + 1, text.length());
            out.setI32(at + 5, text.utf8(value));
        }
    }

    /** Adds a text to those that are turned together, or returns false when it is long. */
    private boolean gathers(String value) {
        if (texts.add(value)) {
            return true;
        }
        finish();
        return texts.add(value);
    }

    private void number(Number value) {
        if (value instanceof Long) {
            int at = out.reserve(9);
            out.setU8(at, INT64);
            out.setI64(at + 1, (Long) value);
        } else if (value instanceof Integer) {
            out.u8(INT32);
            out.i32((Integer) value);
        } else if (value instanceof Double) {
            int at = out.reserve(9);
            out.setU8(at, FLOAT64);
            out.setI64(at + 1, Double.doubleToRawLongBits((Double) value));
        } else if (value instanceof Float) {
            out.u8(FLOAT32);
            out.i32(Float.floatToRawIntBits((Float) value));
        } else if (value instanceof Short) {
            out.u8(INT16);
            out.i16((Short) value);
        } else if (value instanceof Byte) {
            out.u8(INT8);
            out.u8((Byte) value);
        } else if (value instanceof BigDecimal) {
            byte[] unscaled = ((BigDecimal) value).unscaledValue().toByteArray();
            out.u8(DECIMAL);
            out.i32(((BigDecimal) value).scale());
            out.i32(unscaled.length);
            out.raw(unscaled);
        } else {
            throw unsupported(value);
        }
    }

    private void date(Schema schema, java.util.Date value) {
        switch (schema == null ? LogicalKind.NONE : LogicalKind.of(schema)) {
            case DATE:
                out.u8(DATE);
                out.i32(LogicalKind.days(value));
                return;
            case TIME:
                out.u8(TIME);
                out.i32(LogicalKind.timeMs(value));
                return;
            default:
                out.u8(TIMESTAMP);
                out.i64(value.getTime());
        }
    }

    private void list(Schema schema, List<?> items, int depth) {
        Schema element = schema != null && schema.type() == Schema.Type.ARRAY ? schema.valueSchema() : null;
        int start = open(LIST);
        int count = 0;
        for (Object item : items) {
            value(element, item, depth + 1);
            count++;
        }
        close(start, count);
    }

    private void map(Schema schema, Map<?, ?> entries, int depth) {
        boolean known = schema != null && schema.type() == Schema.Type.MAP;
        int start = open(MAP);
        int count = 0;
        for (Map.Entry<?, ?> entry : entries.entrySet()) {
            if (entry.getKey() instanceof String) {
                name((String) entry.getKey());
            } else {
                value(known ? schema.keySchema() : null, entry.getKey(), depth + 1);
            }
            value(known ? schema.valueSchema() : null, entry.getValue(), depth + 1);
            count++;
        }
        close(start, count);
    }

    /** A struct inside schemaless data becomes a map; its field schemas still type its values. */
    private void struct(Struct value, int depth) {
        int start = open(MAP);
        for (Field field : value.schema().fields()) {
            name(field.name());
            value(field.schema(), value.getWithoutDefault(field.name()), depth + 1);
        }
        close(start, value.schema().fields().size());
    }

    private void name(String name) {
        int place = nextName++;
        if (place < NAMES_EXPECTED && expected[place] == name) {
            nameAt(expectedIndexes[place]);
            return;
        }
        int index = index(name);
        if (index < 0) {
            string(name);
            return;
        }
        if (place < NAMES_EXPECTED) {
            expected[place] = name;
            expectedIndexes[place] = index;
        }
        nameAt(index);
    }

    /** Returns the index of a name in the frame's table of names, -1 when the table is full. */
    int index(String name) {
        Integer known = nameIndexes.get(name);
        if (known != null) {
            return known;
        }
        int index = nameIndexes.size();
        if (index >= NAMES_MAX) {
            return -1;
        }
        names.text(name);
        nameIndexes.put(name, index);
        return index;
    }

    private void nameAt(int index) {
        int at = out.reserve(5);
        out.setU8(at, NAME);
        out.setI32(at + 1, index);
    }

    private int open(int tag) {
        out.u8(tag);
        return out.skip(8);
    }

    private void close(int start, int count) {
        out.setI32(start, out.length() - start - 8);
        out.setI32(start + 4, count);
    }
}
