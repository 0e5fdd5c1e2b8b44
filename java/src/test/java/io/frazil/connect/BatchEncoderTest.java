package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.Test;

/** How a batch is cut into frames and what happens to records that cannot be encoded. */
public class BatchEncoderTest {
    private final BatchEncoder encoder = new BatchEncoder();
    private final Received received = new Received();
    private int registered;

    /** What came out, in order. */
    private static final class Received implements BatchEncoder.Sink {
        final List<List<SinkRecord>> frames = new ArrayList<>();
        final List<Integer> lengths = new ArrayList<>();
        final List<String> failures = new ArrayList<>();
        final List<String> order = new ArrayList<>();

        @Override
        public void block(ByteBuffer frame, int length, List<SinkRecord> rows) {
            assertTrue(frame.isDirect());
            assertEquals(0, frame.position());
            assertEquals(length, frame.limit());
            assertEquals("FRZF", new String(new byte[] {frame.get(0), frame.get(1), frame.get(2), frame.get(3)}));
            assertEquals(length, frame.duplicate().order(ByteOrder.LITTLE_ENDIAN).getInt(8));
            frames.add(rows);
            lengths.add(length);
            order.add("frame");
        }

        @Override
        public void unencodable(SinkRecord record, Rejection reason) {
            failures.add(reason.toString());
            order.add("failed " + record.kafkaOffset());
        }
    }

    private void encode(SinkRecord... records) {
        encoder.encode(Arrays.asList(records), bytes -> ++registered, received);
    }

    private static SinkRecord record(Schema schema, Object value, long offset) {
        return new SinkRecord("orders", 4, null, null, schema, value, offset);
    }

    private void assertRefused(Schema schema, Object value, String expected) {
        received.failures.clear();
        encode(record(schema, value, 1));
        assertEquals(1, received.failures.size());
        assertTrue(received.failures.get(0), received.failures.get(0).contains(expected));
    }

    private static Schema structOf(Schema field) {
        return SchemaBuilder.struct().field("v", field).build();
    }

    @Test
    public void theBufferOfALargeFrameIsLetGoAfterIt() {
        List<Integer> capacities = new ArrayList<>();
        BatchEncoder.Sink sink = new BatchEncoder.Sink() {
            @Override
            public void block(ByteBuffer frame, int length, List<SinkRecord> rows) {
                capacities.add(frame.capacity());
            }

            @Override
            public void unencodable(SinkRecord record, Rejection reason) {
                throw new AssertionError(reason.toString());
            }
        };
        for (int size : new int[] {10, 20 << 20, 10, 2 << 20, 10}) {
            SinkRecord record = record(Schema.BYTES_SCHEMA, new byte[size], 1);
            encoder.encode(List.of(record), bytes -> 1, sink);
        }
        assertTrue(capacities.toString(), capacities.get(1) > 20 << 20);
        assertEquals("small again", capacities.get(0), capacities.get(2));
        assertTrue("2 MiB are kept: " + capacities, capacities.get(4) > 2 << 20);
    }

    @Test
    public void aRecordThatCannotBeEncodedIsToldBeforeItsFrame() {
        SinkRecord good = record(null, 1L, 7);
        SinkRecord bad = record(null, new Thread(), 8);
        encode(good, bad);
        assertEquals(Arrays.asList("failed 8", "frame"), received.order);
        assertEquals(Collections.singletonList(Arrays.asList(good, bad)), received.frames);
        assertTrue(received.failures.get(0), received.failures.get(0).startsWith("a java.lang.Thread is none"));
    }

    @Test
    public void aThrowingSinkEndsTheBatchAndTheNextOneIsWhole() {
        BatchEncoder.Sink throwing = new BatchEncoder.Sink() {
            @Override
            public void block(ByteBuffer frame, int length, List<SinkRecord> rows) {
                throw new ConnectException("no frame should come");
            }

            @Override
            public void unencodable(SinkRecord record, Rejection reason) {
                throw new DataException(reason.toString());
            }
        };
        List<SinkRecord> batch = Arrays.asList(record(null, 1L, 1), record(null, new Thread(), 2));
        assertThrows(DataException.class, () -> encoder.encode(batch, bytes -> 1, throwing));
        encode(record(null, 1L, 1));
        assertEquals(1, received.frames.get(0).size());
    }

    @Test
    public void messagesNameTheColumnAndNeverTheValue() {
        Schema inner = structOf(Decimal.schema(2));
        Struct struct = new Struct(inner).put("v", new BigDecimal("1.23456789"));
        Schema outer = SchemaBuilder.struct().field("lines", SchemaBuilder.array(inner).build()).build();
        Struct value = new Struct(outer).put("lines", Collections.singletonList(struct));
        assertRefused(outer, value, "column `lines.element.v`: a decimal of scale 8 does not fit the scale 2");
        assertTrue(!received.failures.get(0).contains("23456"));
        assertRefused(structOf(Schema.STRING_SCHEMA), new Struct(structOf(Schema.STRING_SCHEMA)).put("v", "x\uDC00"),
                "column `v`: a text of 2 characters has half of a surrogate pair");
    }

    @Test
    public void valuesThatWouldWrapOrBeCutAreRefused() {
        assertRefused(org.apache.kafka.connect.data.Date.SCHEMA, new Date(Long.MAX_VALUE), "a date does not fit");
        assertRefused(Time.SCHEMA, new Date(1L << 40), "a time does not fit");
        assertRefused(Decimal.schema(2), new BigDecimal("1E+2000000000"), "[RECORD_VALUE_OUT_OF_RANGE]");
        assertRefused(Schema.INT32_SCHEMA, 1L, "a java.lang.Long does not fit the schema INT32");
        assertRefused(Schema.STRING_SCHEMA, new byte[1], "[RECORD_TYPE_UNSUPPORTED]");
        assertRefused(null, Collections.singletonMap("a", 'c'), "java.lang.Character");
        Struct other = new Struct(structOf(Schema.INT8_SCHEMA)).put("v", (byte) 1);
        assertRefused(structOf(Schema.INT16_SCHEMA), other, "a struct has another schema than its column");
    }

    @Test
    public void nestingHasALimit() {
        Map<String, Object> endless = new HashMap<>();
        endless.put("self", endless);
        assertRefused(null, endless, "[RECORD_TOO_DEEP]");
        Schema deep = Schema.INT8_SCHEMA;
        for (int level = 0; level < 64; level++) {
            deep = SchemaBuilder.array(deep).build();
        }
        assertRefused(deep, Collections.emptyList(), "[RECORD_TOO_DEEP]");
        assertEquals(0, registered);
    }

    @Test
    public void aRefusedSchemaRefusesItsRecordsOnly() {
        Schema refused = SchemaBuilder.int8().name("refused").build();
        List<SinkRecord> batch = Arrays.asList(
                record(Schema.INT8_SCHEMA, (byte) 1, 1), record(refused, (byte) 2, 2),
                record(Schema.INT8_SCHEMA, (byte) 3, 3));
        encoder.encode(batch, bytes -> {
            if (bytes.length > 3) {
                throw new DataException("not this one");
            }
            return 1;
        }, received);
        assertEquals(Collections.singletonList(batch), received.frames);
        assertEquals(Collections.singletonList("not this one [RECORD_SCHEMA_REFUSED]"), received.failures);
    }

    @Test
    public void aSchemaIsRegisteredOnceWhateverItsObject() {
        for (int copy = 0; copy < 3; copy++) {
            Schema schema = structOf(SchemaBuilder.int64().build());
            encode(record(schema, new Struct(schema).put("v", 1L), copy));
        }
        assertEquals(1, registered);
    }

    @Test
    public void largeRecordsMakeSmallFrames() {
        String text = String.join("", Collections.nCopies(100_000, "x"));
        SinkRecord[] records = new SinkRecord[300];
        for (int index = 0; index < records.length; index++) {
            records[index] = record(Schema.STRING_SCHEMA, text, index);
        }
        encode(records);
        // The first frame cannot know; the ones after it keep to about 1 MiB.
        assertEquals(256, received.frames.get(0).size());
        for (int length : received.lengths.subList(1, received.lengths.size())) {
            assertTrue("a frame of " + length + " bytes", length <= 1 << 20);
        }
        assertEquals(300, received.frames.stream().mapToInt(List::size).sum());
    }

    @Test
    public void framesOverTheLimitAreSplitAndARecordOverItIsRefused() {
        byte[] large = new byte[30 << 20];
        SinkRecord first = record(null, large, 1);
        SinkRecord tooLarge = record(null, new byte[(64 << 20) + 1], 4);
        encode(first, record(null, large, 2), record(null, large, 3), tooLarge);
        assertEquals(4, received.frames.stream().mapToInt(List::size).sum());
        assertTrue(received.lengths.stream().allMatch(length -> length <= 64 << 20));
        assertEquals(1, received.failures.size());
        assertTrue(received.failures.get(0), received.failures.get(0).startsWith("the record at orders-4-4 takes more"));
        assertTrue(received.failures.get(0), received.failures.get(0).endsWith("[RECORD_TOO_LARGE]"));
        assertSame(first, received.frames.get(0).get(0));
    }

    @Test
    public void aQuestionMarkIsNotHalfAPair() {
        encode(record(null, "why? \uD83D\uDE00 ????????", 1), record(null, "é?漢", 2));
        assertEquals(Collections.emptyList(), received.failures);
        for (int at = 0; at < 20; at++) {
            StringBuilder text = new StringBuilder("aaaaaaaaaaaaaaaaaaaa");
            text.setCharAt(at, '\uD800');
            assertRefused(null, text.toString(), "[RECORD_TEXT_INVALID]");
        }
    }
}
