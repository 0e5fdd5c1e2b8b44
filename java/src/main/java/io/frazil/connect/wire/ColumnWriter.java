package io.frazil.connect.wire;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;

/**
 * Writes values that have a schema, column by column ({@code docs/wire-format.md}, "Columns").
 *
 * <p>Values of one level are gathered into an array, one for each frame, then written in one loop.
 * Nothing else is allocated but the UTF-8 of texts and the digits of decimals.
 */
final class ColumnWriter {
    private static final byte[] NO_BYTES = {};
    /** Columns of texts that are told apart; a power of two. */
    private static final int TEXT_COLUMNS = 64;
    /** Frames that go without another attempt when texts of a column could not be turned together. */
    private static final byte FRAMES_APART = 31;

    private final ByteSink out;
    /**
     * The gathered values of each nesting level. They do not outlive their frame: an array that was kept
     * would grow old, and to put a young object into an old array costs a fence.
     */
    private final Object[][] gathered = new Object[SchemaWriter.NESTING_MAX + 2][];
    private final String[] path = new String[SchemaWriter.NESTING_MAX + 2];
    private final StructPath around = new StructPath();
    private final AsciiTexts texts = new AsciiTexts();
    /** For each column of texts, by its place in the frame: frames that turn them one by one still. */
    private final byte[] apart = new byte[TEXT_COLUMNS];
    private int textColumns;

    ColumnWriter(ByteSink out) {
        this.out = out;
    }

    /** Forgets the values, so that they can be collected. */
    void clear() {
        textColumns = 0;
        Arrays.fill(gathered, null);
    }

    /** Writes the first {@code rows} of {@code values} as a column of {@code schema}. */
    void write(Schema schema, Object[] values, int rows) {
        column(schema, values, rows, 0);
    }

    /** As {@link #write}, of a field, which messages name. */
    void writeField(String name, Schema schema, Object[] values, int rows) {
        path[0] = name;
        column(schema, values, rows, 1);
        path[0] = null;
    }

    private void column(Schema schema, Object[] values, int rows, int depth) {
        nulls(values, rows);
        if (around.enter(schema, depth)) {
            repeated(schema, values, rows, depth);
            return;
        }
        int at;
        switch (LogicalKind.of(schema)) {
            case DECIMAL:
                decimals(schema, values, rows, depth);
                return;
            case DATE:
                at = out.reserve(4 * rows);
                for (int row = 0; row < rows; row++) {
                    java.util.Date value = as(java.util.Date.class, values[row], schema, depth);
                    out.setI32(at + 4 * row, value == null ? 0 : LogicalKind.days(value));
                }
                return;
            case TIME:
                at = out.reserve(4 * rows);
                for (int row = 0; row < rows; row++) {
                    java.util.Date value = as(java.util.Date.class, values[row], schema, depth);
                    out.setI32(at + 4 * row, value == null ? 0 : LogicalKind.timeMs(value));
                }
                return;
            case TIMESTAMP:
                at = out.reserve(8 * rows);
                for (int row = 0; row < rows; row++) {
                    java.util.Date value = as(java.util.Date.class, values[row], schema, depth);
                    out.setI64(at + 8 * row, value == null ? 0 : value.getTime());
                }
                return;
            default:
                plain(schema, values, rows, depth);
        }
    }

    private void nulls(Object[] values, int rows) {
        int nulls = 0;
        for (int row = 0; row < rows; row++) {
            if (values[row] == null) {
                nulls++;
            }
        }
        out.i32(nulls);
        if (nulls == 0) {
            return;
        }
        int bitmap = out.skip((rows + 7) / 8);
        for (int row = 0; row < rows; row += 8) {
            int bits = 0;
            for (int bit = 0; bit < 8 && row + bit < rows; bit++) {
                bits |= values[row + bit] == null ? 0 : 1 << bit;
            }
            out.setU8(bitmap + row / 8, bits);
        }
    }

    private void plain(Schema schema, Object[] values, int rows, int depth) {
        int at;
        switch (schema.type()) {
            case INT8:
            case INT16:
            case INT32:
            case INT64:
                integers(schema, values, rows, depth);
                return;
            case FLOAT32:
                at = out.reserve(4 * rows);
                for (int row = 0; row < rows; row++) {
                    Float value = as(Float.class, values[row], schema, depth);
                    out.setI32(at + 4 * row, value == null ? 0 : Float.floatToRawIntBits(value));
                }
                return;
            case FLOAT64:
                at = out.reserve(8 * rows);
                for (int row = 0; row < rows; row++) {
                    Double value = as(Double.class, values[row], schema, depth);
                    out.setI64(at + 8 * row, value == null ? 0 : Double.doubleToRawLongBits(value));
                }
                return;
            case BOOLEAN:
                at = out.reserve(rows);
                for (int row = 0; row < rows; row++) {
                    Boolean value = as(Boolean.class, values[row], schema, depth);
                    out.setU8(at + row, value != null && value ? 1 : 0);
                }
                return;
            case STRING:
                strings(schema, values, rows, depth);
                return;
            case BYTES:
                bytes(schema, values, rows, depth);
                return;
            case STRUCT:
                structs(schema, values, rows, depth);
                return;
            case ARRAY:
                arrays(schema, values, rows, depth);
                return;
            case MAP:
                maps(schema, values, rows, depth);
                return;
            default:
                throw new RowException(RowException.SCHEMA_REFUSED, "a schema has the unknown type " + schema.type());
        }
    }

    private void integers(Schema schema, Object[] values, int rows, int depth) {
        int at;
        switch (schema.type()) {
            case INT8:
                at = out.reserve(rows);
                for (int row = 0; row < rows; row++) {
                    Byte value = as(Byte.class, values[row], schema, depth);
                    out.setU8(at + row, value == null ? 0 : value);
                }
                return;
            case INT16:
                at = out.reserve(2 * rows);
                for (int row = 0; row < rows; row++) {
                    Short value = as(Short.class, values[row], schema, depth);
                    out.setI16(at + 2 * row, value == null ? 0 : value);
                }
                return;
            case INT32:
                at = out.reserve(4 * rows);
                for (int row = 0; row < rows; row++) {
                    Integer value = as(Integer.class, values[row], schema, depth);
                    out.setI32(at + 4 * row, value == null ? 0 : value);
                }
                return;
            default:
                at = out.reserve(8 * rows);
                for (int row = 0; row < rows; row++) {
                    Long value = as(Long.class, values[row], schema, depth);
                    out.setI64(at + 8 * row, value == null ? 0 : value);
                }
        }
    }

    private void strings(Schema schema, Object[] values, int rows, int depth) {
        int offsets = out.skip(4 * (rows + 1));
        int column = textColumns++ & TEXT_COLUMNS - 1;
        if (apart[column] > 0) {
            apart[column]--;
        } else if (together(schema, values, rows, offsets, depth)) {
            return;
        } else {
            apart[column] = FRAMES_APART;
        }
        int data = out.length();
        for (int row = 0; row < rows; row++) {
            String value = as(String.class, values[row], schema, depth);
            if (value != null) {
                text(value, depth);
            }
            out.setI32(offsets + 4 * (row + 1), out.length() - data);
        }
    }

    /** Writes texts that are ASCII and not long; of others none, and returns false. */
    private boolean together(Schema schema, Object[] values, int rows, int offsets, int depth) {
        texts.clear();
        for (int row = 0; row < rows; row++) {
            String value = as(String.class, values[row], schema, depth);
            if (value != null && !texts.add(value)) {
                return false;
            }
            out.setI32(offsets + 4 * (row + 1), texts.length());
        }
        return texts.moveTo(out);
    }

    /** Writes structs of a schema that contains itself, where it begins again: as JSON. */
    private void repeated(Schema schema, Object[] values, int rows, int depth) {
        int offsets = out.skip(4 * (rows + 1));
        int data = out.length();
        for (int row = 0; row < rows; row++) {
            Struct value = as(Struct.class, values[row], schema, depth);
            if (value != null) {
                text(JsonText.of(value, depth + 1), depth);
            }
            out.setI32(offsets + 4 * (row + 1), out.length() - data);
        }
    }

    private void text(String value, int depth) {
        try {
            out.utf8(value);
        } catch (RowException invalid) {
            throw new RowException(invalid.code(), at(depth) + invalid.getMessage());
        }
    }

    private void bytes(Schema schema, Object[] values, int rows, int depth) {
        int offsets = out.skip(4 * (rows + 1));
        int data = out.length();
        for (int row = 0; row < rows; row++) {
            Object value = values[row];
            if (value instanceof ByteBuffer) {
                out.raw((ByteBuffer) value);
            } else if (value != null) {
                out.raw(as(byte[].class, value, schema, depth));
            }
            out.setI32(offsets + 4 * (row + 1), out.length() - data);
        }
    }

    private void decimals(Schema schema, Object[] values, int rows, int depth) {
        int scale = LogicalKind.scale(schema);
        int offsets = out.skip(4 * (rows + 1));
        int data = out.length();
        for (int row = 0; row < rows; row++) {
            BigDecimal value = as(BigDecimal.class, values[row], schema, depth);
            try {
                out.raw(value == null ? NO_BYTES : LogicalKind.unscaled(value, scale));
            } catch (RowException outOfRange) {
                throw new RowException(outOfRange.code(), at(depth) + outOfRange.getMessage());
            }
            out.setI32(offsets + 4 * (row + 1), out.length() - data);
        }
    }

    private void structs(Schema schema, Object[] values, int rows, int depth) {
        for (int row = 0; row < rows; row++) {
            Struct value = as(Struct.class, values[row], schema, depth);
            if (value != null && value.schema() != schema && !value.schema().equals(schema)) {
                throw new RowException(
                        RowException.TYPE_UNSUPPORTED, at(depth) + "a struct has another schema than its column");
            }
        }
        Object[] children = level(depth, rows);
        for (Field field : schema.fields()) {
            // `Struct.get` puts the default where the record says null. Where there is no default it
            // is the same as `getWithoutDefault`, without the look-up by name.
            boolean defaulted = field.schema().defaultValue() != null;
            for (int row = 0; row < rows; row++) {
                Struct parent = (Struct) values[row];
                children[row] = parent == null
                        ? null
                        : defaulted ? parent.getWithoutDefault(field.name()) : parent.get(field);
            }
            path[depth] = field.name();
            column(field.schema(), children, rows, depth + 1);
        }
        path[depth] = null;
    }

    private void arrays(Schema schema, Object[] values, int rows, int depth) {
        int offsets = out.skip(4 * (rows + 1));
        int count = 0;
        for (int row = 0; row < rows; row++) {
            List<?> value = as(List.class, values[row], schema, depth);
            count = plus(count, value == null ? 0 : value.size());
            out.setI32(offsets + 4 * (row + 1), count);
        }
        Object[] items = level(depth, count);
        int next = 0;
        for (int row = 0; row < rows; row++) {
            if (values[row] != null) {
                for (Object item : (List<?>) values[row]) {
                    items[next++] = item;
                }
            }
        }
        path[depth] = "element";
        column(schema.valueSchema(), items, count, depth + 1);
        path[depth] = null;
    }

    private void maps(Schema schema, Object[] values, int rows, int depth) {
        int offsets = out.skip(4 * (rows + 1));
        int count = 0;
        for (int row = 0; row < rows; row++) {
            Map<?, ?> value = as(Map.class, values[row], schema, depth);
            count = plus(count, value == null ? 0 : value.size());
            out.setI32(offsets + 4 * (row + 1), count);
        }
        Object[] items = level(depth, count);
        int next = 0;
        for (int row = 0; row < rows; row++) {
            if (values[row] != null) {
                for (Object key : ((Map<?, ?>) values[row]).keySet()) {
                    items[next++] = key;
                }
            }
        }
        path[depth] = "key";
        column(schema.keySchema(), items, count, depth + 1);
        next = 0;
        for (int row = 0; row < rows; row++) {
            if (values[row] != null) {
                for (Object value : ((Map<?, ?>) values[row]).values()) {
                    items[next++] = value;
                }
            }
        }
        path[depth] = "value";
        column(schema.valueSchema(), items, count, depth + 1);
        path[depth] = null;
    }

    private static int plus(int count, int more) {
        int sum = count + more;
        if (sum < 0 || sum > BatchLimits.FRAME_BYTES_MAX) {
            throw new ByteSink.FullException();
        }
        return sum;
    }

    private Object[] level(int depth, int count) {
        Object[] level = gathered[depth];
        if (level == null || level.length < count) {
            level = new Object[Math.max(count, BatchLimits.BLOCK_ROWS_MAX)];
            gathered[depth] = level;
        }
        return level;
    }

    private <T> T as(Class<T> type, Object value, Schema schema, int depth) {
        if (value == null || type.isInstance(value)) {
            return type.cast(value);
        }
        String name = schema.name() == null ? "" : " `" + schema.name() + "`";
        throw new RowException(
                RowException.TYPE_UNSUPPORTED,
                at(depth) + "a " + value.getClass().getName() + " does not fit the schema " + schema.type() + name);
    }

    /** Returns the column's name for messages. */
    private String at(int depth) {
        StringBuilder name = new StringBuilder();
        for (int level = 0; level < depth; level++) {
            name.append(level == 0 ? "" : ".").append(path[level]);
        }
        return name.length() == 0 ? "" : "column `" + name + "`: ";
    }
}
