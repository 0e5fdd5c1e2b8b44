package io.frazil.connect.wire;

import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.sink.SinkRecord;

/** Records that follow each other and have one value schema and one key schema. */
final class Block {
    /** A new list for each block: to put a young object into an old array costs a fence. */
    private List<SinkRecord> records = List.of();
    /** Why the record at the same index cannot be written, null when it can; null when all can. */
    private RowException[] failures;
    private final Side value = new Side();
    private final Side key = new Side();

    /** The schema of values or keys. A null fits every schema, so it does not decide. */
    private static final class Side {
        boolean decided;
        int id;
        Schema schema;

        boolean takes(Object of, int otherId) {
            return of == null || !decided || id == otherId;
        }

        void add(Object of, int otherId, Schema otherSchema) {
            if (of != null && !decided) {
                decided = true;
                id = otherId;
                schema = otherSchema;
            }
        }

        void clear() {
            decided = false;
            id = 0;
            schema = null;
        }
    }

    boolean takes(SinkRecord record, int valueId, int keyId) {
        return value.takes(record.value(), valueId) && key.takes(record.key(), keyId);
    }

    void add(SinkRecord record, Schema valueSchema, int valueId, Schema keySchema, int keyId) {
        value.add(record.value(), valueId, valueSchema);
        key.add(record.key(), keyId, keySchema);
        append(record);
    }

    /** Adds a record of which only the offset counts. */
    void addFailed(SinkRecord record, RowException failure) {
        append(record);
        fail(records.size() - 1, failure);
    }

    private void append(SinkRecord record) {
        if (records.isEmpty()) {
            records = new ArrayList<>(BatchLimits.BLOCK_ROWS_MAX);
        }
        records.add(record);
    }

    void fail(int row, RowException failure) {
        if (failures == null) {
            failures = new RowException[BatchLimits.BLOCK_ROWS_MAX];
        }
        failures[row] = failure;
    }

    void clear() {
        records = List.of();
        failures = null;
        value.clear();
        key.clear();
    }

    int size() {
        return records.size();
    }

    SinkRecord record(int row) {
        return records.get(row);
    }

    RowException failure(int row) {
        return failures == null ? null : failures[row];
    }

    boolean isSkipped(int row) {
        return failures != null && failures[row] != null;
    }

    boolean anySkipped(int from, int to) {
        if (failures == null) {
            return false;
        }
        for (int row = from; row < to; row++) {
            if (isSkipped(row)) {
                return true;
            }
        }
        return false;
    }

    /** Returns a copy of the records from {@code from} to before {@code to}. */
    List<SinkRecord> records(int from, int to) {
        return new ArrayList<>(records.subList(from, to));
    }

    Schema valueSchema() {
        return value.schema;
    }

    int valueSchemaId() {
        return value.id;
    }

    Schema keySchema() {
        return key.schema;
    }

    int keySchemaId() {
        return key.id;
    }
}
