package io.frazil.connect.wire;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;

/**
 * Writes records without a schema column by column ({@code docs/wire-format.md}, "Records in columns"),
 * where all values of a block are maps of texts, 64-bit numbers, doubles, booleans and nulls, as
 * {@code JsonConverter} makes them of flat objects.
 *
 * <p>A block with anything else is left to {@link TaggedWriter}. Which it is is known before a byte is
 * written. What is gathered does not outlive its frame: to put a young object into an old array costs a
 * fence.
 */
final class MapsWriter {
    private static final int NOTHING = 0;
    private static final int BOOLEAN = 1;
    private static final int INT64 = 2;
    private static final int FLOAT64 = 3;
    private static final int STRING = 4;
    private static final int TAGGED = 5;
    private static final int OTHER = -1;
    /** By kind. */
    private static final Schema[] SCHEMAS = {
        null,
        Schema.OPTIONAL_BOOLEAN_SCHEMA,
        Schema.OPTIONAL_INT64_SCHEMA,
        Schema.OPTIONAL_FLOAT64_SCHEMA,
        Schema.OPTIONAL_STRING_SCHEMA,
    };

    /** Names with which a block is left to tags: a column has room for all rows. */
    private static final int COLUMNS_MAX = 1024;
    /** What part of that room may stay empty, as its denominator: sparse records are left to tags too. */
    private static final int SPARSE = 8;
    /** Frames that go without another attempt when one had values of other classes. */
    private static final int FRAMES_APART = 15;

    private final ByteSink out;
    private final ColumnWriter columns;
    private final TaggedWriter tagged;
    /** Frames that are left to tags still. */
    private int apart;

    MapsWriter(ByteSink out, ColumnWriter columns, TaggedWriter tagged) {
        this.out = out;
        this.columns = columns;
        this.tagged = tagged;
    }

    /** The values of one name in the rows of a block. */
    private static final class Column {
        final String name;
        final int index;
        final Object[] values;
        /** Rows that have the name. */
        int count;
        /** A byte for each row, 1 where it has the name; null while those are the first rows. */
        byte[] present;
        int kind;

        Column(String name, int index, int rows) {
            this.name = name;
            this.index = index;
            values = new Object[rows];
        }

        /** Sets the value of a row, or returns false when it has one. */
        boolean set(int row, Object value) {
            if (present != null || count != row) {
                if (!setApart(row)) {
                    return false;
                }
            }
            values[row] = value;
            count++;
            return true;
        }

        private boolean setApart(int row) {
            if (present == null) {
                present = firstRows();
            }
            boolean isFirst = present[row] == 0;
            present[row] = 1;
            return isFirst;
        }

        private byte[] firstRows() {
            byte[] rows = new byte[values.length];
            Arrays.fill(rows, 0, count, (byte) 1);
            return rows;
        }

        /** Returns a byte for each row, 1 where it has the name; null when all have. */
        byte[] presence() {
            return count == values.length ? null : present == null ? firstRows() : present;
        }
    }

    /** The columns of a block in the order in which their names came. */
    private static final class Columns {
        final int rows;
        final Map<String, Column> byName = new HashMap<>();
        Column[] all = new Column[16];
        int count;
        long entries;

        Columns(int rows) {
            this.rows = rows;
        }

        /** Returns the column of a name, a new one when there is none; null when it cannot have one. */
        Column of(Object key) {
            if (!(key instanceof String)) {
                return null;
            }
            Column known = byName.get(key);
            if (known != null) {
                return known;
            }
            if (count == COLUMNS_MAX) {
                return null;
            }
            Column column = new Column((String) key, count, rows);
            byName.put(column.name, column);
            if (count == all.length) {
                all = Arrays.copyOf(all, 2 * count);
            }
            all[count++] = column;
            return column;
        }

        /** Adds a record, or returns false when it does not go into columns. */
        boolean add(int row, Map<?, ?> record) {
            int place = 0;
            for (Map.Entry<?, ?> entry : record.entrySet()) {
                Object key = entry.getKey();
                // Maps that are made alike have their names in one order, mostly the same objects.
                Column column = place < count ? all[place] : null;
                if (column == null || column.name != key) {
                    column = of(key);
                    if (column == null) {
                        return false;
                    }
                }
                place = column.index + 1;
                if (!column.set(row, entry.getValue())) {
                    return false;
                }
                entries++;
            }
            return true;
        }

        boolean isSparse() {
            return entries * SPARSE < (long) count * rows;
        }
    }

    /**
     * Writes {@code rows} values, or nothing and returns false when they are not all plain records.
     *
     * @throws RowException when one of the texts is none
     */
    boolean write(Object[] values, int rows) {
        if (apart > 0) {
            apart--;
            return false;
        }
        Columns found = gather(values, rows);
        if (found == null) {
            apart = FRAMES_APART;
            return false;
        }
        nulls(values, rows);
        out.i32(found.count);
        for (int index = 0; index < found.count; index++) {
            column(found.all[index], rows);
        }
        return true;
    }

    private static Columns gather(Object[] values, int rows) {
        Columns found = new Columns(rows);
        for (int row = 0; row < rows; row++) {
            Object value = values[row];
            if (value != null && !(value instanceof Map && found.add(row, (Map<?, ?>) value))) {
                return null;
            }
        }
        if (found.isSparse()) {
            return null;
        }
        for (int index = 0; index < found.count; index++) {
            Column column = found.all[index];
            column.kind = kind(column.values, rows);
            if (column.kind == OTHER) {
                return null;
            }
        }
        return found;
    }

    private static int kind(Object[] values, int rows) {
        int kind = NOTHING;
        Class<?> known = null;
        for (int row = 0; row < rows; row++) {
            Object value = values[row];
            if (value == null || value.getClass() == known) {
                continue;
            }
            int other = kind(value);
            if (other == OTHER) {
                return OTHER;
            }
            kind = kind == NOTHING ? other : TAGGED;
            known = value.getClass();
        }
        return kind;
    }

    private static int kind(Object value) {
        return value instanceof String ? STRING
                : value instanceof Long ? INT64
                : value instanceof Double ? FLOAT64
                : value instanceof Boolean ? BOOLEAN
                : OTHER;
    }

    private void nulls(Object[] values, int rows) {
        boolean any = false;
        for (int row = 0; row < rows; row++) {
            any |= values[row] == null;
        }
        out.u8(any ? 1 : 0);
        if (any) {
            int at = out.reserve(rows);
            for (int row = 0; row < rows; row++) {
                out.setU8(at + row, values[row] == null ? 1 : 0);
            }
        }
    }

    private void column(Column column, int rows) {
        out.i32(tagged.index(column.name));
        out.u8(column.kind);
        byte[] presence = column.presence();
        out.u8(presence == null ? 0 : 1);
        if (presence != null) {
            out.raw(presence);
        }
        if (column.kind == TAGGED) {
            tagged.writeRows(column.values, rows);
        } else if (column.kind != NOTHING) {
            columns.writeField(column.name, SCHEMAS[column.kind], column.values, rows);
        }
    }
}
