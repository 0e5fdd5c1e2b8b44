package io.frazil.connect.wire;

import java.math.BigDecimal;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;

/** Writes the canonical bytes of a Connect schema ({@code docs/wire-format.md}, "Schemas"). */
public final class SchemaWriter {
    /** The version of the layout. */
    public static final int VERSION = 1;
    /** Levels of a schema; {@code NESTING_MAX} of the native library. */
    static final int NESTING_MAX = 64;
    /** Nodes of a schema; {@code SCHEMA_FIELDS_MAX} of the native library. */
    private static final int NODES_MAX = 10_000;
    private static final int BYTES_MAX = 16 << 20;
    private static final long MILLIS_PER_DAY = 86_400_000;

    private static final int FLAG_OPTIONAL = 1;
    private static final int FLAG_NAME = 1 << 1;
    private static final int FLAG_VERSION = 1 << 2;
    private static final int FLAG_DOC = 1 << 3;
    private static final int FLAG_DEFAULT = 1 << 4;
    private static final int FLAG_PARAMETERS = 1 << 5;
    private static final int FLAG_DEFAULT_TEXT = 1 << 6;

    private final ByteSink sink = new ByteSink(BYTES_MAX);
    private final StructPath around = new StructPath();
    private int nodes;

    private SchemaWriter() {}

    /**
     * Returns the canonical bytes.
     *
     * @throws RowException when the schema nests too deep or is too large
     */
    public static byte[] write(Schema schema) {
        SchemaWriter writer = new SchemaWriter();
        writer.sink.u8(VERSION);
        try {
            writer.node(schema, 1);
        } catch (ByteSink.FullException full) {
            throw new RowException(RowException.SCHEMA_REFUSED, "a schema takes more than " + BYTES_MAX + " bytes");
        }
        return writer.sink.toByteArray();
    }

    private void node(Schema schema, int depth) {
        if (depth > NESTING_MAX) {
            throw new RowException(
                    RowException.TOO_DEEP,
                    "a schema nests deeper than " + NESTING_MAX + " levels or contains itself");
        }
        if (++nodes > NODES_MAX) {
            throw new RowException(
                    RowException.SCHEMA_REFUSED, "a schema has more than " + NODES_MAX + " fields on all levels");
        }
        if (around.enter(schema, depth)) {
            // From here on the values travel as JSON; see ColumnWriter.
            sink.u8(kind(Schema.Type.STRING));
            sink.u8(schema.isOptional() ? FLAG_OPTIONAL : 0);
            return;
        }
        Map<String, String> parameters = schema.parameters();
        boolean parametrised = parameters != null && !parameters.isEmpty();
        String defaultText = defaultText(schema);
        sink.u8(kind(schema.type()));
        sink.u8((schema.isOptional() ? FLAG_OPTIONAL : 0)
                | (schema.name() != null ? FLAG_NAME : 0)
                | (schema.version() != null ? FLAG_VERSION : 0)
                | (schema.doc() != null ? FLAG_DOC : 0)
                | (schema.defaultValue() != null ? FLAG_DEFAULT : 0)
                | (parametrised ? FLAG_PARAMETERS : 0)
                | (defaultText != null ? FLAG_DEFAULT_TEXT : 0));
        if (schema.name() != null) {
            sink.text(schema.name());
        }
        if (schema.version() != null) {
            sink.i32(schema.version());
        }
        if (schema.doc() != null) {
            sink.text(schema.doc());
        }
        if (parametrised) {
            sink.i32(parameters.size());
            for (Map.Entry<String, String> parameter : new TreeMap<>(parameters).entrySet()) {
                sink.text(parameter.getKey());
                sink.text(parameter.getValue());
            }
        }
        if (defaultText != null) {
            sink.text(defaultText);
        }
        children(schema, depth);
    }

    /** Returns the default of a scalar other than bytes, else null. */
    private static String defaultText(Schema schema) {
        Object value = schema.defaultValue();
        if (value instanceof BigDecimal) {
            return ((BigDecimal) value).toPlainString();
        }
        if (value instanceof java.util.Date) {
            long millis = ((java.util.Date) value).getTime();
            boolean isDay = Date.LOGICAL_NAME.equals(schema.name());
            return Long.toString(isDay ? Math.floorDiv(millis, MILLIS_PER_DAY) : millis);
        }
        boolean isScalar = value instanceof Number || value instanceof Boolean || value instanceof String;
        return isScalar ? value.toString() : null;
    }

    private void children(Schema schema, int depth) {
        switch (schema.type()) {
            case MAP:
                node(schema.keySchema(), depth + 1);
                node(schema.valueSchema(), depth + 1);
                break;
            case ARRAY:
                node(schema.valueSchema(), depth + 1);
                break;
            case STRUCT:
                sink.i32(schema.fields().size());
                for (Field field : schema.fields()) {
                    sink.text(field.name());
                    node(field.schema(), depth + 1);
                }
                break;
            default:
                break;
        }
    }

    private static int kind(Schema.Type type) {
        switch (type) {
            case INT8:
                return 1;
            case INT16:
                return 2;
            case INT32:
                return 3;
            case INT64:
                return 4;
            case FLOAT32:
                return 5;
            case FLOAT64:
                return 6;
            case BOOLEAN:
                return 7;
            case STRING:
                return 8;
            case BYTES:
                return 9;
            case ARRAY:
                return 10;
            case MAP:
                return 11;
            case STRUCT:
                return 12;
            default:
                throw new RowException(RowException.SCHEMA_REFUSED, "a schema has the unknown type " + type);
        }
    }
}
