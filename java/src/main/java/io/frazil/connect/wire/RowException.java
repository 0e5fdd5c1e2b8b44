package io.frazil.connect.wire;

/**
 * One record cannot be written: it is reported for that record, never for the batch.
 *
 * <p>The message names types, lengths and columns, never a value. It has no stack trace: it is
 * part of the normal course of things.
 */
public final class RowException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** A value's class is not one of Connect's for its schema, or for schemaless data. */
    public static final String TYPE_UNSUPPORTED = "RECORD_TYPE_UNSUPPORTED";
    /** A value does not fit the schema that it came with. */
    public static final String VALUE_OUT_OF_RANGE = "RECORD_VALUE_OUT_OF_RANGE";
    /** A text has half of a surrogate pair and is therefore not Unicode. */
    public static final String TEXT_INVALID = "RECORD_TEXT_INVALID";
    /** A value or schema nests too deep, or contains itself. */
    public static final String TOO_DEEP = "RECORD_TOO_DEEP";
    /** A record is larger than a frame. */
    public static final String TOO_LARGE = "RECORD_TOO_LARGE";
    /** A schema cannot be registered. */
    public static final String SCHEMA_REFUSED = "RECORD_SCHEMA_REFUSED";

    private final String code;

    public RowException(String code, String message) {
        super(message, null, false, false);
        this.code = code;
    }

    /** Returns the stable code. */
    public String code() {
        return code;
    }
}
