package io.frazil.connect.wire;

import static org.junit.Assert.assertEquals;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.Test;

/** Which blocks of records without a schema go into columns. What they hold is in the golden frames. */
public class MapsWriterTest {
    private static final int TAGGED = 2;
    private static final int IN_COLUMNS = 3;

    private static Map<Object, Object> map(Object... keysAndValues) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int index = 0; index < keysAndValues.length; index += 2) {
            map.put(keysAndValues[index], keysAndValues[index + 1]);
        }
        return map;
    }

    /** Returns the layout of the values of the one frame that the records become. */
    private static int layout(BlockEncoder encoder, List<?> values) {
        List<SinkRecord> records = new ArrayList<>();
        for (Object value : values) {
            records.add(new SinkRecord("t", 0, null, null, null, value, records.size()));
        }
        List<Integer> layouts = new ArrayList<>();
        encoder.encode(records, schema -> 1, new BlockEncoder.Target() {
            @Override
            public void frame(ByteBuffer frame, int length, List<SinkRecord> rows) {
                layouts.add((int) frame.get(36));
            }

            @Override
            public void failed(SinkRecord record, RowException failure) {
                throw failure;
            }
        });
        assertEquals(1, layouts.size());
        return layouts.get(0);
    }

    private static int layout(Object... values) {
        return layout(new BlockEncoder(false), Arrays.asList(values));
    }

    @Test
    public void recordsOfPlainValuesGoIntoColumns() {
        Map<Object, Object> plain = map("a", 1L, "b", "x", "c", 0.5, "d", true, "e", null);
        assertEquals(IN_COLUMNS, layout(plain, null, map(), map("a", "now a text")));
        assertEquals(IN_COLUMNS, layout(map("b", 1L, "a", 2L), map("a", 1L, "b", 2L), map("b", 3L)));
        assertEquals(0, layout(new Object[] {null, null}));
    }

    @Test
    public void recordsWithOtherValuesDoNot() {
        Map<Object, Object> plain = map("a", 1L);
        for (Object other : Arrays.asList(1, (short) 1, (byte) 1, 1f, new byte[1], new java.util.Date(),
                Collections.emptyList(), map(), new java.math.BigDecimal(1))) {
            assertEquals(TAGGED, layout(plain, map("a", other)));
        }
        assertEquals(TAGGED, layout(plain, "no record"));
        assertEquals(TAGGED, layout(map(1L, "a key that is no name")));
        assertEquals(TAGGED, layout(Collections.singletonMap(null, 1L)));
    }

    @Test
    public void wideRecordsDoAndSparseOnesDoNot() {
        List<Object> wide = new ArrayList<>();
        List<Object> sparse = new ArrayList<>();
        Map<Object, Object> tooWide = new LinkedHashMap<>();
        for (int row = 0; row < 20; row++) {
            Map<Object, Object> record = new LinkedHashMap<>();
            for (int name = 0; name < 200; name++) {
                record.put("n" + name, 1L);
            }
            wide.add(record);
            sparse.add(Collections.singletonMap("n" + row, 1L));
        }
        for (int name = 0; name < 1025; name++) {
            tooWide.put("n" + name, 1L);
        }
        assertEquals(IN_COLUMNS, layout(new BlockEncoder(false), wide));
        assertEquals(TAGGED, layout(new BlockEncoder(false), sparse));
        assertEquals(TAGGED, layout(tooWide));
        tooWide.remove("n0");
        assertEquals(IN_COLUMNS, layout(tooWide));
    }

    @Test
    public void blocksGoIntoColumnsAgainSomeTimeAfterOneThatDidNot() {
        BlockEncoder encoder = new BlockEncoder(false);
        List<?> plain = Collections.singletonList(map("a", 1L));
        assertEquals(TAGGED, layout(encoder, Collections.singletonList(map("a", map()))));
        int apart = 0;
        while (layout(encoder, plain) == TAGGED) {
            apart++;
        }
        assertEquals(15, apart);
        assertEquals(IN_COLUMNS, layout(encoder, plain));
    }
}
