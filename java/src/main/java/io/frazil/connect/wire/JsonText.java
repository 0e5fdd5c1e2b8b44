package io.frazil.connect.wire;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDate;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;

/**
 * Writes a value as JSON: what is below the point where a schema contains itself, which no column
 * has a type for.
 *
 * <p>The form is that of nested values in text columns ({@code docs/types.md}): compact, in the
 * order of the schema, decimals as numbers with all digits, bytes as base64, dates and times as ISO
 * text, NaN and the infinities as text.
 */
final class JsonText {
    private static final long DAY_MS = 86_400_000L;
    /** Zeros that a decimal may get before or after its digits. */
    private static final int PLAIN_SCALE_MAX = 400;

    private final StringBuilder out = new StringBuilder();

    private JsonText() {}

    /** Returns the JSON of {@code value}, a struct that is {@code depth} levels deep. */
    static String of(Struct value, int depth) {
        JsonText json = new JsonText();
        json.struct(value, depth);
        return json.out.toString();
    }

    private void value(Schema schema, Object value, int depth) {
        if (depth > SchemaWriter.NESTING_MAX) {
            throw new RowException(
                    RowException.TOO_DEEP,
                    "a value nests deeper than " + SchemaWriter.NESTING_MAX + " levels or contains itself");
        }
        if (value == null) {
            out.append("null");
        } else if (value instanceof Struct) {
            struct((Struct) value, depth);
        } else if (value instanceof List) {
            list(schema, (List<?>) value, depth);
        } else if (value instanceof Map) {
            map(schema, (Map<?, ?>) value, depth);
        } else {
            scalar(schema, value);
        }
    }

    private void struct(Struct value, int depth) {
        String separator = "{";
        for (Field field : value.schema().fields()) {
            out.append(separator);
            text(field.name());
            out.append(':');
            value(field.schema(), value.getWithoutDefault(field.name()), depth + 1);
            separator = ",";
        }
        out.append(value.schema().fields().isEmpty() ? "{}" : "}");
    }

    private void list(Schema schema, List<?> items, int depth) {
        out.append('[');
        boolean first = true;
        for (Object item : items) {
            out.append(first ? "" : ",");
            value(schema.valueSchema(), item, depth + 1);
            first = false;
        }
        out.append(']');
    }

    private void map(Schema schema, Map<?, ?> entries, int depth) {
        String separator = "";
        out.append('{');
        for (Map.Entry<?, ?> entry : entries.entrySet()) {
            out.append(separator);
            name(schema.keySchema(), entry.getKey());
            out.append(':');
            value(schema.valueSchema(), entry.getValue(), depth + 1);
            separator = ",";
        }
        out.append('}');
    }

    private void name(Schema schema, Object key) {
        if (key instanceof Struct || key instanceof List || key instanceof Map) {
            throw new RowException(RowException.TYPE_UNSUPPORTED, "a map's key is nested, which JSON has no form for");
        }
        int start = out.length();
        scalar(schema, key == null ? "null" : key);
        if (out.charAt(start) != '"') {
            out.insert(start, '"').append('"');
        }
    }

    private void scalar(Schema schema, Object value) {
        if (value instanceof String) {
            text((String) value);
        } else if (value instanceof Double || value instanceof Float) {
            boolean finite = Double.isFinite(((Number) value).doubleValue());
            out.append(finite ? value.toString() : '"' + value.toString() + '"');
        } else if (value instanceof BigDecimal) {
            BigDecimal decimal = (BigDecimal) value;
            boolean plain = Math.abs((long) decimal.scale()) <= PLAIN_SCALE_MAX;
            out.append(plain ? decimal.toPlainString() : decimal.unscaledValue() + "E" + -(long) decimal.scale());
        } else if (value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof byte[]) {
            base64(ByteBuffer.wrap((byte[]) value));
        } else if (value instanceof ByteBuffer) {
            base64(((ByteBuffer) value).duplicate());
        } else if (value instanceof java.util.Date) {
            out.append('"').append(date(schema, (java.util.Date) value)).append('"');
        } else {
            throw new RowException(
                    RowException.TYPE_UNSUPPORTED,
                    "a " + value.getClass().getName() + " is none of the classes that Connect knows");
        }
    }

    private void base64(ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        out.append('"').append(Base64.getEncoder().encodeToString(copy)).append('"');
    }

    private static String date(Schema schema, java.util.Date value) {
        switch (LogicalKind.of(schema)) {
            case DATE:
                return LocalDate.ofEpochDay(LogicalKind.days(value)).toString();
            case TIME:
                long ms = LogicalKind.timeMs(value);
                if (ms < 0 || ms >= DAY_MS) {
                    throw new RowException(RowException.VALUE_OUT_OF_RANGE, "a time is not within one day");
                }
                String text = String.format("%02d:%02d:%02d", ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
                return ms % 1000 == 0 ? text : String.format("%s.%03d", text, ms % 1000);
            default:
                return Instant.ofEpochMilli(value.getTime()).toString();
        }
    }

    private void text(String value) {
        out.append('"');
        for (int at = 0; at < value.length(); at++) {
            char letter = value.charAt(at);
            if (letter == '"' || letter == '\\') {
                out.append('\\').append(letter);
            } else if (letter < ' ') {
                out.append(String.format("\\u%04x", (int) letter));
            } else {
                out.append(letter);
            }
        }
        out.append('"');
    }
}
