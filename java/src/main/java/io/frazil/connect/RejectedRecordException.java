package io.frazil.connect;

import org.apache.kafka.connect.errors.DataException;

/**
 * Says why a record is in the dead letter queue. Its name stands in the header
 * {@code __connect.errors.exception.class.name}, so that these records can be told from those that a
 * converter or a transform refused; its message, one JSON object, in
 * {@code __connect.errors.exception.message} ({@code docs/cookbook/dead-letters.md}).
 */
public final class RejectedRecordException extends DataException {
    private static final long serialVersionUID = 1L;

    /** Creates the exception. */
    public RejectedRecordException(String json) {
        super(json);
    }
}
