package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.Test;

/** Writes the frames that {@code rust/core/tests/golden_frames.rs} reads. */
public class GoldenFramesTest {
    private final GoldenFiles golden = new GoldenFiles();
    private final BatchEncoder encoder = new BatchEncoder();
    private long nextOffset = 100;

    private SinkRecord record(Schema schema, Object value) {
        return new SinkRecord("orders", 0, null, null, schema, value, nextOffset++);
    }

    private static Schema optional(Schema.Type type) {
        return SchemaBuilder.type(type).optional().build();
    }

    private static Map<Object, Object> map(Object... keysAndValues) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int index = 0; index < keysAndValues.length; index += 2) {
            map.put(keysAndValues[index], keysAndValues[index + 1]);
        }
        return map;
    }

    @Test
    public void scalars() throws Exception {
        SchemaBuilder builder = SchemaBuilder.struct().name("shop.Scalars").version(3).doc("every scalar");
        List<Schema.Type> types = Arrays.stream(Schema.Type.values())
                .filter(Schema.Type::isPrimitive)
                .collect(Collectors.toList());
        for (Schema.Type type : types) {
            builder.field(type.getName(), SchemaBuilder.type(type).build());
            builder.field(type.getName() + "_optional", optional(type));
        }
        Schema schema = builder.build();
        Object[][] values = {
            {Byte.MIN_VALUE, Short.MIN_VALUE, Integer.MIN_VALUE, Long.MIN_VALUE, Float.MIN_VALUE, -0.0, false, "",
                new byte[0]},
            {Byte.MAX_VALUE, Short.MAX_VALUE, Integer.MAX_VALUE, Long.MAX_VALUE, Float.NaN,
                Double.POSITIVE_INFINITY, true, "größe ? 漢 \uD83D\uDE00 \u0000", new byte[] {0, -1}},
            {(byte) 1, (short) 2, 3, 4L, 5.5f, 6.25, true, "seven", ByteBuffer.wrap(new byte[] {7, 8, 9}, 1, 2)},
        };
        List<SinkRecord> records = new ArrayList<>();
        for (Object[] row : values) {
            Struct struct = new Struct(schema);
            for (int index = 0; index < types.size(); index++) {
                struct.put(types.get(index).getName(), row[index]);
                if (records.size() != 1) {
                    struct.put(types.get(index).getName() + "_optional", row[index]);
                }
            }
            records.add(record(schema, struct));
        }
        golden.put(encoder, records);
        golden.verify("scalars.bin");
    }

    @Test
    public void logicalTypes() throws Exception {
        Schema schema = SchemaBuilder.struct()
                .field("price", Decimal.builder(2).optional().build())
                .field("thousands", Decimal.builder(-3).optional().build())
                .field("day", org.apache.kafka.connect.data.Date.builder().optional().build())
                .field("time", Time.builder().optional().build())
                .field("at", Timestamp.builder().optional().build())
                .field("prices", SchemaBuilder.array(Decimal.schema(1)).optional().build())
                .field("micros", SchemaBuilder.int64().name("io.debezium.time.MicroTimestamp").version(1).build())
                .build();
        Struct before = new Struct(schema)
                .put("price", new BigDecimal("-123.45"))
                .put("thousands", new BigDecimal("5E+3"))
                .put("day", new Date(-1))
                .put("time", new Date(0))
                .put("at", new Date(-1))
                .put("prices", Arrays.asList(new BigDecimal("0.5"), new BigDecimal("12.8")))
                .put("micros", -62135596800000000L);
        Struct large = new Struct(schema)
                .put("price", new BigDecimal(BigInteger.TEN.pow(40), 2))
                .put("day", new Date(86_400_000L * 20_000 + 5))
                .put("time", new Date(86_399_999))
                .put("at", new Date(253402300799999L))
                .put("prices", Collections.emptyList())
                .put("micros", 0L);
        Struct other = new Struct(schema)
                .put("price", new BigDecimal("1"))
                .put("thousands", new BigDecimal("-7000"))
                .put("micros", 1L);
        golden.put(encoder, Arrays.asList(record(schema, before), record(schema, large), record(schema, other)));
        golden.verify("logical_types.bin");
        assertEquals(Collections.emptyList(), golden.failures());
    }

    @Test
    public void nestedValues() throws Exception {
        Schema line = SchemaBuilder.struct().name("line").optional()
                .field("sku", Schema.STRING_SCHEMA)
                .field("count", SchemaBuilder.int32().optional().defaultValue(1).build())
                .build();
        Schema schema = SchemaBuilder.struct().parameter("owner", "shop").parameter("area", "eu")
                .field("first", line)
                .field("lines", SchemaBuilder.array(line).optional().build())
                .field("matrix", SchemaBuilder.array(SchemaBuilder.array(Schema.INT16_SCHEMA).build()).build())
                .field("counts", SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.OPTIONAL_INT64_SCHEMA).build())
                .field("by_id", SchemaBuilder.map(Schema.INT32_SCHEMA, line).optional().build())
                .field("status", SchemaBuilder.string().optional().defaultValue("new").build())
                .build();
        Struct one = new Struct(line).put("sku", "a").put("count", 3);
        Struct nulls = new Struct(line).put("sku", "é");
        Struct full = new Struct(schema)
                .put("first", one)
                .put("lines", Arrays.asList(one, null, nulls))
                .put("matrix", Arrays.asList(Arrays.asList((short) 1, (short) 2), Collections.emptyList()))
                .put("counts", map("x", 1L, "y", null))
                .put("by_id", map(5, one, 6, nulls, 7, null))
                .put("status", "paid");
        Struct sparse = new Struct(schema)
                .put("matrix", Collections.emptyList())
                .put("counts", Collections.emptyMap());
        golden.put(encoder, Arrays.asList(record(schema, full), record(schema, sparse)));
        golden.verify("nested.bin");
    }

    // Promise: a schema that contains itself lands, as JSON from where it begins again
    @Test
    public void recursiveValues() throws Exception {
        SchemaBuilder builder = SchemaBuilder.struct().name("shop.Category").optional();
        builder.field("name", Schema.STRING_SCHEMA)
                .field("since", org.apache.kafka.connect.data.Date.builder().optional().build())
                .field("price", Decimal.builder(2).optional().build())
                .field("parent", builder)
                .field("children", SchemaBuilder.array(builder).optional().build())
                .field("by_name", SchemaBuilder.map(Schema.STRING_SCHEMA, builder).optional().build());
        Schema schema = builder.build();
        // What is inside has the builder's schema, as with the converters of Avro and Protobuf.
        Struct root = new Struct(builder).put("name", "root \"1\"\n").put("since", new Date(-1))
                .put("price", new BigDecimal("-1.50"));
        Struct middle = new Struct(builder).put("name", "größe").put("parent", root);
        Struct leaf = new Struct(schema).put("name", "leaf").put("parent", middle)
                .put("children", Arrays.asList(root, null)).put("by_name", map("a", root));
        Struct alone = new Struct(schema).put("name", "alone");
        golden.put(encoder, Arrays.asList(record(schema, leaf), record(schema, alone)));
        golden.verify("recursive.bin");
        assertEquals(Collections.emptyList(), golden.failures());
    }

    @Test
    public void schemalessValues() throws Exception {
        Schema inner = SchemaBuilder.struct()
                .field("day", org.apache.kafka.connect.data.Date.SCHEMA)
                .field("time", Time.SCHEMA)
                .field("d", SchemaBuilder.int32().optional().defaultValue(9).build())
                .build();
        Struct struct = new Struct(inner).put("day", new Date(-1)).put("time", new Date(1));
        Map<Object, Object> all = map(
                "null", null, "true", true, "false", false, "int8", (byte) -8, "int16", (short) -16, "int32", -32,
                "int64", -64L, "float32", 0.5f, "float64", -0.25, "string", "größe \uD83D\uDE00", "bytes",
                new byte[] {1, 2}, "buffer", ByteBuffer.wrap(new byte[] {3}), "decimal", new BigDecimal("-1.50"),
                "tiny", new BigDecimal("1E+100"), "date", new Date(-5), "list",
                Arrays.asList(1, "two", null, Arrays.asList(3L)), "map", map("int32", map(), 7, "seven"), "struct",
                struct, "java", map(
                        "date", LocalDate.of(2023, 5, 18), "time", LocalTime.of(7, 14, 21, 888_000_001),
                        "local", LocalDateTime.of(1969, 12, 31, 23, 59, 59, 1), "instant", Instant.ofEpochSecond(-1, 5),
                        "offset", OffsetDateTime.of(2023, 5, 18, 7, 14, 21, 260_514_000, ZoneOffset.ofHours(-8)),
                        "zoned", ZonedDateTime.of(2023, 5, 18, 7, 14, 21, 0, ZoneOffset.UTC),
                        "uuid", UUID.fromString("f24f9b64-81fa-49d1-b74e-8c09a6e31c56")));
        List<SinkRecord> records = Arrays.asList(
                record(null, all),
                record(null, map("int32", 1, "new", "x")),
                record(null, "text"),
                record(null, 12L),
                record(null, null),
                record(null, Arrays.asList(true, map("int32", 2))),
                record(null, new byte[] {9}));
        golden.put(encoder, records);
        golden.verify("schemaless.bin");
    }

    @Test
    public void plainRecords() throws Exception {
        List<SinkRecord> records = Arrays.asList(
                record(null, map("id", 1L, "name", "größe", "mixed", 5L, "nothing", null, "paid", true)),
                record(null, map("id", 2L, "name", null, "mixed", 5.5, "price", -0.25)),
                record(null, null),
                record(null, map()),
                record(null, map("price", Double.NaN, "mixed", "five", "id", Long.MIN_VALUE)));
        golden.put(encoder, records);
        golden.verify("records.bin");
    }

    @Test
    public void valuesWithASchemaThatIsNotAStruct() throws Exception {
        Schema map = SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.INT32_SCHEMA).build();
        List<SinkRecord> records = Arrays.asList(
                record(Schema.STRING_SCHEMA, "one"),
                record(Schema.STRING_SCHEMA, "two"),
                record(Schema.OPTIONAL_STRING_SCHEMA, null),
                record(map, map("a", 1)),
                record(SchemaBuilder.array(Schema.FLOAT64_SCHEMA).build(), Arrays.asList(1.0, 2.0)),
                record(Timestamp.SCHEMA, new Date(1)),
                record(Schema.BYTES_SCHEMA, ByteBuffer.wrap(new byte[] {1, 2, 3})));
        assertEquals(5, golden.put(encoder, records).size());
        golden.verify("plain_values.bin");
    }

    @Test
    public void keysAndTombstones() throws Exception {
        Schema key = SchemaBuilder.struct().field("id", Schema.INT64_SCHEMA).build();
        Schema value = SchemaBuilder.struct().field("v", Schema.OPTIONAL_INT32_SCHEMA).build();
        List<SinkRecord> records = new ArrayList<>();
        for (long id = 0; id < 9; id++) {
            Object row = id % 3 == 1 ? null : new Struct(value).put("v", id == 2 ? null : (int) id);
            Struct keyRow = id == 4 ? null : new Struct(key).put("id", id);
            records.add(new SinkRecord(
                    "orders", 0, id == 4 ? null : key, keyRow, row == null ? null : value, row, nextOffset++));
        }
        records.add(new SinkRecord("orders", 0, null, "text key", null, null, nextOffset++));
        records.add(new SinkRecord("orders", 0, null, map("k", 1), value, new Struct(value), nextOffset++));
        records.add(new SinkRecord("orders", 0, null, null, null, null, nextOffset++));
        assertEquals(2, golden.put(encoder, records).size());
        golden.verify("keys.bin");
    }

    @Test
    public void headers() throws Exception {
        Headers headers = new ConnectHeaders()
                .addString("trace", "t-1")
                .addInt("retry", 2)
                .addString("trace", "t-2")
                .addDate("day", new Date(86_400_000L))
                .addDecimal("cost", new BigDecimal("1.25"))
                .add("none", null, null);
        List<SinkRecord> records = Arrays.asList(
                new SinkRecord("orders", 0, null, null, Schema.INT32_SCHEMA, 1, 1L, 5L, TimestampType.CREATE_TIME,
                        headers),
                new SinkRecord("orders", 0, null, null, Schema.INT32_SCHEMA, 2, 2L));
        golden.put(new BatchEncoder(true), records);
        golden.verify("headers.bin");
    }

    @Test
    public void sourcesOfRecords() throws Exception {
        List<SinkRecord> records = new ArrayList<>();
        long[][] partitionsAndOffsets = {{0, 5}, {0, 6}, {0, 9}, {0, 9}, {0, 10}, {1, 0}, {1, 1}, {0, 11}};
        for (long[] source : partitionsAndOffsets) {
            records.add(new SinkRecord("orders", (int) source[0], null, null, Schema.INT64_SCHEMA, source[1],
                    source[1], source[1] % 2 == 0 ? null : 1_000L * source[1], TimestampType.CREATE_TIME));
        }
        SinkRecord plain = new SinkRecord("other", 3, null, null, Schema.INT64_SCHEMA, 1L, 40L);
        records.add(plain.newRecord("renamed", 77, null, null, Schema.INT64_SCHEMA, 2L, -1L));
        golden.put(encoder, records);
        golden.verify("sources.bin");
    }

    @Test
    public void topicsThatTransformsLeft() throws Exception {
        List<SinkRecord> records = new ArrayList<>();
        String[] topics = {"orders", "orders", "db.t", "db.t", "db.u", "orders"};
        for (int row = 0; row < topics.length; row++) {
            SinkRecord read = new SinkRecord("orders", 0, Schema.STRING_SCHEMA, "left out", Schema.INT32_SCHEMA, row, row);
            records.add(read.newRecord(topics[row], 0, read.keySchema(), read.key(), read.valueSchema(), row, null));
        }
        encoder.parts(false, false, true);
        golden.put(encoder, records);
        golden.verify("renamed.bin");
    }

    @Test
    public void recordsThatCannotBeEncoded() throws Exception {
        List<SinkRecord> records = Arrays.asList(
                record(null, map("a", 1)),
                record(null, map("a", new StringBuilder("not Connect's"))),
                record(null, map("a", "half \uD800 a pair")),
                record(null, map("a", 2)));
        List<List<SinkRecord>> frames = golden.put(encoder, records);
        assertEquals(Collections.singletonList(records), frames);
        assertEquals(2, golden.failures().size());
        assertTrue(golden.failures().get(0), golden.failures().get(0).contains("[RECORD_TYPE_UNSUPPORTED]"));
        assertTrue(golden.failures().get(1), golden.failures().get(1).contains("[RECORD_TEXT_INVALID]"));
        golden.verify("skipped.bin");
    }

    @Test
    public void blocks() throws Exception {
        Schema old = SchemaBuilder.struct().field("id", Schema.INT64_SCHEMA).build();
        Schema wide = SchemaBuilder.struct().field("id", Schema.INT64_SCHEMA)
                .field("note", Schema.OPTIONAL_STRING_SCHEMA).build();
        List<SinkRecord> records = new ArrayList<>();
        for (long id = 0; id < 259; id++) {
            records.add(record(old, new Struct(old).put("id", id)));
        }
        records.add(record(wide, new Struct(wide).put("id", 259L)));
        records.add(record(old, new Struct(old).put("id", 260L)));
        List<Integer> sizes = golden.put(encoder, records).stream().map(List::size).collect(Collectors.toList());
        assertEquals(Arrays.asList(256, 3, 1, 1), sizes);
        golden.verify("blocks.bin");
    }

    @Test
    public void requests() throws Exception {
        TopicPartition first = new TopicPartition("orders", 0);
        TopicPartition second = new TopicPartition("größe", Integer.MAX_VALUE);
        golden.request(Requests.assign(Arrays.asList(first, second)));
        golden.request(Requests.revoke(Collections.singletonList(first)));
        golden.request(Requests.lost(Collections.emptyList()));
        Map<TopicPartition, Long> offsets = new LinkedHashMap<>();
        offsets.put(first, 7L);
        offsets.put(second, Long.MAX_VALUE);
        golden.request(Requests.preCommit(offsets));
        golden.request(Requests.tick());
        golden.request(Requests.cancel());
        golden.request(Requests.channel(true, 1_700_000_000_000L, Collections.emptyList()));
        byte[] huge = new byte[Requests.Received.VALUE_BYTES_MAX + 1];
        assertEquals(Requests.Received.VALUE_BYTES_MAX + 20, new Requests.Received(0, 0, huge).size());
        golden.request(Requests.channel(false, -1, Arrays.asList(
                new Requests.Received(7, 0, new byte[] {0, (byte) 255}),
                new Requests.Received(Long.MAX_VALUE, 3_600_000, null))));
        golden.verify("requests.bin");
    }
}
