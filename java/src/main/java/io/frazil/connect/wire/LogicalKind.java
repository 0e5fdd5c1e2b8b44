package io.frazil.connect.wire;

import java.math.BigDecimal;
import java.math.RoundingMode;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;

/** Connect's built-in logical types, whose values have a Java class of their own. */
enum LogicalKind {
    NONE,
    DECIMAL,
    DATE,
    TIME,
    TIMESTAMP;

    private static final long DAY_MS = 86_400_000L;
    /** More digits than this between two scales are never a number that someone meant. */
    private static final long RESCALE_DIGITS_MAX = 10_000;

    /** Returns the logical type of {@code schema}, by its name and physical type together. */
    static LogicalKind of(Schema schema) {
        String name = schema.name();
        if (name == null) {
            return NONE;
        }
        switch (schema.type()) {
            case BYTES:
                return name.equals(Decimal.LOGICAL_NAME) ? DECIMAL : NONE;
            case INT32:
                return name.equals(Date.LOGICAL_NAME) ? DATE : name.equals(Time.LOGICAL_NAME) ? TIME : NONE;
            case INT64:
                return name.equals(Timestamp.LOGICAL_NAME) ? TIMESTAMP : NONE;
            default:
                return NONE;
        }
    }

    /** Returns the day of a moment, floored. */
    static int days(java.util.Date value) {
        return fitting(Math.floorDiv(value.getTime(), DAY_MS), "date");
    }

    /** Returns the milliseconds of a time of day; whether they are within a day is not looked at. */
    static int timeMs(java.util.Date value) {
        return fitting(value.getTime(), "time");
    }

    private static int fitting(long value, String type) {
        if (value != (int) value) {
            throw new RowException(RowException.VALUE_OUT_OF_RANGE, "a " + type + " does not fit 32 bits");
        }
        return (int) value;
    }

    /** Returns the scale of a Decimal schema. */
    static int scale(Schema schema) {
        String scale = schema.parameters() == null ? null : schema.parameters().get(Decimal.SCALE_FIELD);
        try {
            return Integer.parseInt(scale);
        } catch (NumberFormatException notANumber) {
            throw new RowException(
                    RowException.SCHEMA_REFUSED, "a Decimal schema needs an integer parameter `scale`");
        }
    }

    /** Returns the unscaled bytes of {@code value} at {@code scale}, when that loses nothing. */
    static byte[] unscaled(BigDecimal value, int scale) {
        BigDecimal scaled = value;
        if (value.scale() != scale) {
            try {
                if (Math.abs((long) value.scale() - scale) > RESCALE_DIGITS_MAX) {
                    throw new ArithmeticException();
                }
                scaled = value.setScale(scale, RoundingMode.UNNECESSARY);
            } catch (ArithmeticException inexact) {
                throw new RowException(
                        RowException.VALUE_OUT_OF_RANGE,
                        "a decimal of scale " + value.scale() + " does not fit the scale " + scale + " of its schema");
            }
        }
        return scaled.unscaledValue().toByteArray();
    }
}
