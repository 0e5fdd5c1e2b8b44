package io.frazil.connect;

import io.frazil.connect.wire.BlockEncoder;
import io.frazil.connect.wire.RowException;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.List;
import org.apache.kafka.connect.sink.SinkRecord;

/** Turns the records of a {@code put} into frames, in order, in one buffer that is used again. */
final class BatchEncoder {
    /** Takes what comes out. What it throws ends the batch. */
    interface Sink {
        /**
         * Takes a frame, whose bytes are valid during this call only.
         *
         * @param rows the records of the frame by row, those included that were unencodable
         */
        void block(ByteBuffer frame, int length, List<SinkRecord> rows);

        /**
         * Takes a record that cannot be encoded. The next frame skips it but has its offset, so
         * it must be set aside for good before this returns.
         */
        void unencodable(SinkRecord record, Rejection reason);
    }

    /** Gives a schema its id. A {@code DataException} refuses the records that have this schema. */
    interface Registrar {
        int register(byte[] schema);
    }

    private final BlockEncoder encoder;

    /** Creates an encoder that leaves headers out. */
    BatchEncoder() {
        this(false);
    }

    BatchEncoder(boolean withHeaders) {
        encoder = new BlockEncoder(withHeaders);
    }

    /** From the next batch on writes what is asked for beside values, and nothing else. */
    void parts(boolean keys, boolean headers, boolean topics) {
        encoder.parts(keys, headers, topics);
    }

    void encode(Collection<SinkRecord> records, Registrar registrar, Sink sink) {
        encoder.encode(records, registrar::register, new BlockEncoder.Target() {
            @Override
            public void frame(ByteBuffer frame, int length, List<SinkRecord> rows) {
                sink.block(frame, length, rows);
            }

            @Override
            public void failed(SinkRecord record, RowException failure) {
                sink.unencodable(record, Rejection.ofEncoder(failure.code(), failure.getMessage()));
            }
        });
    }
}
