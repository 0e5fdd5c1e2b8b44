package io.frazil.connect.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Writes one block of records as a frame ({@code docs/wire-format.md}, "Frames").
 *
 * <p>The sections grow in heap arrays and are copied once, one after the other, into one direct
 * buffer. All of these are kept for the next frame: the buffer's content is only valid until then.
 */
final class FrameWriter {
    private static final int MAGIC = 'F' | 'R' << 8 | 'Z' << 16 | 'F' << 24;
    private static final int VERSION = 1;
    private static final int FLAG_SKIPPED = 1;
    private static final int RUN_CONTIGUOUS = 1;
    private static final int RUN_RENAMED = 1 << 1;
    private static final int MODE_NONE = 0;
    private static final int MODE_COLUMNS = 1;
    private static final int MODE_TAGGED = 2;
    private static final int MODE_MAPS = 3;
    private static final int LENGTH_AT = 8;
    private static final int NAMES_AT = 32;
    private static final int MODES_AT = 36;
    private static final int BUFFER_BYTES_MIN = 64 << 10;

    private boolean withKeys = true;
    private boolean withHeaders;
    private boolean withTopics;
    private final ByteSink head = new ByteSink(BatchLimits.FRAME_BYTES_MAX);
    private final ByteSink names = new ByteSink(BatchLimits.FRAME_BYTES_MAX);
    private final ByteSink text = new ByteSink(BatchLimits.FRAME_BYTES_MAX);
    private final ByteSink body = new ByteSink(BatchLimits.FRAME_BYTES_MAX);
    private final ColumnWriter columns = new ColumnWriter(body);
    private final TaggedWriter tagged = new TaggedWriter(body, names, text);
    private final MapsWriter maps = new MapsWriter(body, columns, tagged);
    private final List<String> topics = new ArrayList<>();
    private ByteBuffer buffer = allocate(BUFFER_BYTES_MIN);

    FrameWriter(boolean withHeaders) {
        this.withHeaders = withHeaders;
    }

    void parts(boolean keys, boolean headers, boolean topics) {
        withKeys = keys;
        withHeaders = headers;
        withTopics = topics;
    }

    private static ByteBuffer allocate(int capacity) {
        return ByteBuffer.allocateDirect(capacity).order(ByteOrder.LITTLE_ENDIAN);
    }

    /** Returns the direct buffer with the last frame from position 0 to its limit. */
    ByteBuffer buffer() {
        return buffer;
    }

    /** Lets go of a buffer that a large frame needed: it is native memory, which the library counts. */
    void release() {
        if (buffer.capacity() > BatchLimits.FRAME_BUFFER_KEPT) {
            buffer = allocate(BUFFER_BYTES_MIN);
        }
    }

    /**
     * Writes the rows of {@code block} from {@code from} to before {@code to}; skipped ones without
     * key, value and headers.
     *
     * @return the length of the frame
     * @throws RowException when one of the rows cannot be written
     * @throws ByteSink.FullException when the frame would be too large
     */
    int write(Block block, int from, int to) {
        try {
            return attempt(block, from, to);
        } catch (TaggedWriter.NotAsciiException oneByOneNow) {
            return attempt(block, from, to);
        }
    }

    private int attempt(Block block, int from, int to) {
        int rows = to - from;
        for (ByteSink sink : Arrays.asList(head, names, text, body)) {
            sink.clear();
        }
        tagged.clear();
        topics.clear();
        try {
            sources(block, from, rows);
            // Not kept from frame to frame: to put a young object into an old array costs a fence.
            Object[] values = new Object[rows];
            boolean anyValue = false;
            for (int row = 0; row < rows; row++) {
                values[row] = block.isSkipped(from + row) ? null : block.record(from + row).value();
                anyValue |= values[row] != null;
            }
            boolean inColumns = anyValue && block.valueSchema() == null && maps.write(values, rows);
            head.setU8(MODES_AT, inColumns ? MODE_MAPS : section(block.valueSchema(), values, anyValue));
            if (withKeys) {
                boolean anyKey = false;
                for (int row = 0; row < rows; row++) {
                    values[row] = block.isSkipped(from + row) ? null : block.record(from + row).key();
                    anyKey |= values[row] != null;
                }
                head.setU8(MODES_AT + 1, section(block.keySchema(), values, anyKey));
            }
            if (withHeaders) {
                Headers[] headers = new Headers[rows];
                for (int row = 0; row < rows; row++) {
                    headers[row] = block.isSkipped(from + row) ? null : block.record(from + row).headers();
                }
                tagged.writeHeaders(headers, rows);
                head.setU8(MODES_AT + 2, MODE_TAGGED);
            }
            tagged.finish();
        } finally {
            columns.clear();
        }
        return assemble();
    }

    private int section(Schema schema, Object[] values, boolean any) {
        if (!any) {
            return MODE_NONE;
        }
        if (schema == null) {
            tagged.writeRows(values, values.length);
            return MODE_TAGGED;
        }
        columns.write(schema, values, values.length);
        return MODE_COLUMNS;
    }

    private void sources(Block block, int from, int rows) {
        String topic = null;
        for (int row = 0; row < rows; row++) {
            String next = SourceCoordinates.topic(block.record(from + row));
            if (!next.equals(topic) && !topics.contains(next)) {
                topics.add(next);
            }
            topic = next;
            String renamed = renamed(block.record(from + row));
            if (renamed != null && !topics.contains(renamed)) {
                topics.add(renamed);
            }
        }
        boolean anySkipped = block.anySkipped(from, from + rows);
        head.i32(MAGIC);
        head.i16((short) VERSION);
        head.i16((short) (anySkipped ? FLAG_SKIPPED : 0));
        head.i32(0); // length
        head.i32(rows);
        head.i32(block.valueSchemaId());
        head.i32(block.keySchemaId());
        head.i32(topics.size());
        int runsAt = head.skip(4);
        head.skip(8); // names and modes
        for (String name : topics) {
            head.text(name);
        }
        head.setI32(runsAt, runs(block, from, rows));
        for (int row = 0; row < rows; row++) {
            Long timestamp = block.record(from + row).timestamp();
            head.i64(timestamp == null ? Long.MIN_VALUE : timestamp);
        }
        if (anySkipped) {
            for (int row = 0; row < rows; row += 8) {
                int bits = 0;
                for (int bit = 0; bit < 8 && row + bit < rows; bit++) {
                    bits |= block.isSkipped(from + row + bit) ? 1 << bit : 0;
                }
                head.u8(bits);
            }
        }
    }

    /** Returns the topic that transforms gave a record, where they did and somebody asks; else null. */
    private String renamed(SinkRecord record) {
        String topic = record.topic();
        return !withTopics || topic == null || topic.equals(SourceCoordinates.topic(record)) ? null : topic;
    }

    private int runs(Block block, int from, int rows) {
        int runs = 0;
        int start = 0;
        while (start < rows) {
            SinkRecord first = block.record(from + start);
            String topic = SourceCoordinates.topic(first);
            int partition = SourceCoordinates.partition(first);
            long base = SourceCoordinates.offset(first);
            String renamed = renamed(first);
            long last = base;
            boolean contiguous = true;
            int end = start + 1;
            for (; end < rows; end++) {
                SinkRecord next = block.record(from + end);
                long offset = SourceCoordinates.offset(next);
                if (offset <= last
                        || SourceCoordinates.partition(next) != partition
                        || !SourceCoordinates.topic(next).equals(topic)
                        || !Objects.equals(renamed(next), renamed)) {
                    break;
                }
                contiguous &= offset == last + 1;
                last = offset;
            }
            head.i32(topics.indexOf(topic));
            head.i32(partition);
            head.i32(start);
            head.i32(end - start);
            head.i32((contiguous ? RUN_CONTIGUOUS : 0) | (renamed == null ? 0 : RUN_RENAMED));
            if (renamed != null) {
                head.i32(topics.indexOf(renamed));
            }
            for (int row = start; row < (contiguous ? start + 1 : end); row++) {
                head.i64(SourceCoordinates.offset(block.record(from + row)));
            }
            runs++;
            start = end;
        }
        return runs;
    }

    private int assemble() {
        head.setI32(NAMES_AT, tagged.nameCount());
        long total = (long) head.length() + names.length() + 4 + text.length() + body.length();
        if (total > BatchLimits.FRAME_BYTES_MAX) {
            throw new ByteSink.FullException();
        }
        int length = (int) total;
        head.setI32(LENGTH_AT, length);
        if (buffer.capacity() < length) {
            buffer = allocate((int) Math.min(BatchLimits.FRAME_BYTES_MAX, Math.max(length, 2L * buffer.capacity())));
        }
        buffer.clear();
        head.copyTo(buffer);
        names.copyTo(buffer);
        buffer.putInt(text.length());
        text.copyTo(buffer);
        body.copyTo(buffer);
        buffer.flip();
        return length;
    }
}
