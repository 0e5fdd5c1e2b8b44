package io.frazil.connect.wire;

import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.List;
import java.util.function.ToIntFunction;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Cuts a batch into blocks and writes each as a frame.
 *
 * <p>A block ends where the value or key schema changes, at 256 rows, and at about 1 MiB, foreseen
 * from the size of the rows before. A record that cannot be written stays in its block as a row
 * of which only the offset counts: offsets move on only over records that Rust has seen.
 */
public final class BlockEncoder {
    /** Takes frames and failures. What it throws ends the batch. */
    public interface Target {
        /** Takes a frame; {@code rows} are its records, the failed ones included. */
        void frame(ByteBuffer frame, int length, List<SinkRecord> rows);

        /** Takes a record that cannot be written, before the frame that has its offset. */
        void failed(SinkRecord record, RowException failure);
    }

    private final FrameWriter writer;
    private final SchemaIds valueIds = new SchemaIds();
    private final SchemaIds keyIds = new SchemaIds();
    private final Block block = new Block();
    private int rowsPerFrame = BatchLimits.BLOCK_ROWS_MAX;
    private boolean withKeys = true;

    public BlockEncoder(boolean withHeaders) {
        writer = new FrameWriter(withHeaders);
    }

    /** Writes keys, headers and the topics that transforms left, or leaves them out. */
    public void parts(boolean keys, boolean headers, boolean topics) {
        withKeys = keys;
        writer.parts(keys, headers, topics);
    }

    /** Encodes {@code records} in their order; {@code register} gives a schema its id. */
    public void encode(Collection<SinkRecord> records, ToIntFunction<byte[]> register, Target target) {
        block.clear();
        try {
            for (SinkRecord record : records) {
                if (block.size() >= rowsPerFrame) {
                    flush(target);
                }
                add(record, register, target);
            }
            flush(target);
        } finally {
            block.clear();
        }
    }

    private void add(SinkRecord record, ToIntFunction<byte[]> register, Target target) {
        Schema valueSchema = schemaOf(record.valueSchema(), record.value());
        Schema keySchema = withKeys ? schemaOf(record.keySchema(), record.key()) : null;
        int valueId;
        int keyId;
        try {
            valueId = record.value() == null ? 0 : valueIds.of(valueSchema, register);
            keyId = !withKeys || record.key() == null ? 0 : keyIds.of(keySchema, register);
        } catch (RowException failure) {
            block.addFailed(record, failure);
            return;
        }
        if (!block.takes(record, valueId, keyId)) {
            flush(target);
        }
        block.add(record, valueSchema, valueId, keySchema, keyId);
    }

    private static Schema schemaOf(Schema schema, Object value) {
        return schema == null && value instanceof Struct ? ((Struct) value).schema() : schema;
    }

    private void flush(Target target) {
        send(0, block.size(), target);
        block.clear();
    }

    private void send(int from, int to, Target target) {
        if (from == to) {
            return;
        }
        int length;
        try {
            length = write(from, to);
        } catch (ByteSink.FullException full) {
            int middle = (from + to) / 2;
            send(from, middle, target);
            send(middle, to, target);
            return;
        }
        int fitting = (int) ((long) BatchLimits.FRAME_BYTES_SOFT * (to - from) / length);
        rowsPerFrame = Math.max(1, Math.min(BatchLimits.BLOCK_ROWS_MAX, fitting));
        for (int row = from; row < to; row++) {
            if (block.isSkipped(row)) {
                target.failed(block.record(row), block.failure(row));
            }
        }
        target.frame(writer.buffer(), length, block.records(from, to));
        writer.release();
    }

    /** Writes rows; those that cannot be written are found one by one and skipped. */
    private int write(int from, int to) {
        try {
            return writer.write(block, from, to);
        } catch (RowException oneOfThem) {
            for (int row = from; row < to; row++) {
                probe(row);
            }
        } catch (ByteSink.FullException full) {
            if (to - from > 1) {
                throw full;
            }
            probe(from);
        }
        return writer.write(block, from, to);
    }

    private void probe(int row) {
        if (block.isSkipped(row)) {
            return;
        }
        try {
            writer.write(block, row, row + 1);
        } catch (RowException failure) {
            block.fail(row, failure);
        } catch (ByteSink.FullException full) {
            SinkRecord record = block.record(row);
            block.fail(row, new RowException(
                    RowException.TOO_LARGE,
                    "the record at " + SourceCoordinates.topic(record) + "-" + SourceCoordinates.partition(record)
                            + "-" + SourceCoordinates.offset(record) + " takes more than the "
                            + BatchLimits.FRAME_BYTES_MAX + " bytes of a frame; make the producer's records smaller"));
        }
    }
}
