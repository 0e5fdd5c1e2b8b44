package io.frazil.connect.wire;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.function.Function;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.Test;

/** Texts are the same bytes whether they are turned together or one by one. */
public class TextsTest {
    private static final String[] PIECES = {"a", "?", "0123456789", "~\0", "é", "ÿ", "Ł", "語", "\uD83E\uDD80", "\uD800"};
    private static final int ASCII = 4;
    private static final int VALID = 9;

    private final Random random = new Random(7);

    private String text(int pieces, int length) {
        StringBuilder text = new StringBuilder();
        for (int left = random.nextInt(length); left > 0; left--) {
            text.append(PIECES[random.nextInt(pieces)]);
        }
        return text.toString();
    }

    private String[] texts(int frame, int rows) {
        // Rare enough that most frames try to turn their texts together.
        String[] texts = new String[rows];
        for (int row = 0; row < rows; row++) {
            texts[row] = random.nextInt(9) == 0 ? null : text(ASCII, 12);
        }
        if (frame % 50 == 1) {
            texts[random.nextInt(rows)] = text(VALID, 12);
        }
        if (frame % 20 == 2) {
            texts[random.nextInt(rows)] = String.join("", Collections.nCopies(70_000 + frame, "x"));
        }
        return texts;
    }

    private static byte[] utf8(String[] texts) {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (String text : texts) {
            if (text != null) {
                byte[] one = text.getBytes(StandardCharsets.UTF_8);
                all.write(one, 0, one.length);
            }
        }
        return all.toByteArray();
    }

    private static void assertColumn(String[] texts, ByteSink sink) {
        ByteBuffer column = ByteBuffer.wrap(sink.toByteArray()).order(ByteOrder.LITTLE_ENDIAN);
        if (column.getInt() > 0) {
            column.position(column.position() + (texts.length + 7) / 8);
        }
        assertEquals(0, column.getInt());
        int end = 0;
        for (String text : texts) {
            end += text == null ? 0 : text.getBytes(StandardCharsets.UTF_8).length;
            assertEquals(end, column.getInt());
        }
        byte[] bytes = new byte[column.remaining()];
        column.get(bytes);
        assertArrayEquals(utf8(texts), bytes);
    }

    // Promise: texts of structs arrive as they are, whatever characters other texts of the batch have
    @Test
    public void columnsOfAnyTextsAreTheirUtf8() {
        ByteSink sink = new ByteSink(64 << 20);
        ColumnWriter columns = new ColumnWriter(sink);
        for (int frame = 0; frame < 400; frame++) {
            sink.clear();
            String[] texts = texts(frame, 1 + random.nextInt(256));
            columns.write(Schema.OPTIONAL_STRING_SCHEMA, texts, texts.length);
            columns.clear();
            assertColumn(texts, sink);
        }
    }

    // Promise: texts of records without a schema arrive as they are, whatever characters other texts of the batch have
    @Test
    public void textsOfRecordsAreTheirUtf8() {
        BlockEncoder encoder = new BlockEncoder(false);
        for (int batch = 0; batch < 400; batch++) {
            String[] texts = texts(batch, 1 + random.nextInt(256));
            List<String> read = new ArrayList<>();
            frames(encoder, texts, text -> text).forEach(frame -> readColumn(frame, read));
            assertEquals(Arrays.asList(texts), read);
        }
    }

    @Test
    public void taggedTextsAreTheirUtf8() {
        BlockEncoder encoder = new BlockEncoder(false);
        for (int batch = 0; batch < 400; batch++) {
            String[] texts = texts(batch, 1 + random.nextInt(256));
            List<String> read = new ArrayList<>();
            frames(encoder, texts, Collections::singletonList).forEach(frame -> readTags(frame, read));
            assertEquals(Arrays.asList(texts), read);
        }
    }

    /** Returns the frames of records with what {@code value} makes of each text. */
    private static List<byte[]> frames(BlockEncoder encoder, String[] texts, Function<String, Object> value) {
        List<SinkRecord> records = new ArrayList<>();
        for (String text : texts) {
            Object map = Collections.singletonMap("n", value.apply(text));
            records.add(new SinkRecord("t", 0, null, null, null, map, records.size()));
        }
        List<byte[]> frames = new ArrayList<>();
        encoder.encode(records, schema -> 1, new BlockEncoder.Target() {
            @Override
            public void frame(ByteBuffer frame, int length, List<SinkRecord> rows) {
                byte[] bytes = new byte[length];
                frame.duplicate().get(bytes);
                frames.add(bytes);
            }

            @Override
            public void failed(SinkRecord record, RowException failure) {
                throw failure;
            }
        });
        return frames;
    }

    /** Returns a frame from where its heap of texts begins. */
    private static ByteBuffer heap(byte[] bytes, int layout) {
        ByteBuffer frame = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        assertEquals(layout, frame.get(36));
        frame.position(40 + 4 + 1 + 20 + 8 + 8 * frame.getInt(12));
        assertEquals(1, frame.getInt());
        assertEquals('n', frame.get());
        return frame;
    }

    /** Reads the one text of each row of a frame of records in columns. */
    private static void readColumn(byte[] bytes, List<String> into) {
        ByteBuffer frame = heap(bytes, 3);
        int rows = frame.getInt(12);
        assertEquals(0, frame.getInt());
        assertEquals(0, frame.get());
        assertEquals(1, frame.getInt());
        assertEquals(0, frame.getInt());
        int kind = frame.get();
        assertEquals(0, frame.get());
        if (kind == 0) {
            into.addAll(Collections.nCopies(rows, null));
            return;
        }
        assertEquals(4, kind);
        byte[] present = new byte[(rows + 7) / 8];
        if (frame.getInt() == 0) {
            Arrays.fill(present, (byte) -1);
        } else {
            frame.get(present);
        }
        int offsets = frame.position();
        int data = offsets + 4 * (rows + 1);
        for (int row = 0; row < rows; row++) {
            int start = frame.getInt(offsets + 4 * row);
            String text = new String(bytes, data + start, frame.getInt(offsets + 4 * row + 4) - start,
                    StandardCharsets.UTF_8);
            into.add((present[row / 8] >> row % 8 & 1) == 0 ? null : text);
        }
    }

    /** Reads the one text of each row of a frame of maps with tags. */
    private static void readTags(byte[] bytes, List<String> into) {
        ByteBuffer frame = heap(bytes, 2);
        int rows = frame.getInt(12);
        byte[] heap = new byte[frame.getInt()];
        frame.get(heap);
        frame.position(frame.position() + 4 * (rows + 1));
        for (int row = 0; row < rows; row++) {
            assertEquals(16, frame.get());
            frame.getInt();
            assertEquals(1, frame.getInt());
            assertEquals(17, frame.get());
            assertEquals(0, frame.getInt());
            assertEquals(15, frame.get());
            frame.getInt();
            assertEquals(1, frame.getInt());
            into.add(frame.get() == 0 ? null : new String(heap, frame.getInt(), frame.getInt(), StandardCharsets.UTF_8));
        }
    }

    @Test
    public void halfASurrogatePairIsNoQuestionMark() {
        for (String other : new String[] {"?", "a", "é"}) {
            ByteSink sink = new ByteSink(1 << 20);
            ColumnWriter columns = new ColumnWriter(sink);
            Object[] texts = {other, "x\uD800", other};
            RowException refused =
                    assertThrows(RowException.class, () -> columns.write(Schema.STRING_SCHEMA, texts, 3));
            assertEquals(RowException.TEXT_INVALID, refused.code());
        }
        AsciiTexts texts = new AsciiTexts();
        ByteSink sink = new ByteSink(1 << 20);
        assertTrue(texts.add("\uD800"));
        assertFalse(texts.moveTo(sink));
        assertEquals(0, sink.length());
        assertTrue(texts.add("?"));
        assertTrue(texts.moveTo(sink));
        assertArrayEquals(new byte[] {'?'}, sink.toByteArray());
    }
}
