package io.frazil.connect;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.errors.RetriableException;
import org.junit.Test;

/** Reads the effects that {@code rust/core/tests/golden_frames.rs} writes. */
public class EffectsTest {
    private static Effects golden(String name) throws Exception {
        return Effects.decode(GoldenFiles.read("effects/" + name));
    }

    @Test
    public void everyEffectArrives() throws Exception {
        Effects effects = golden("all.bin");
        Map<TopicPartition, Long> durable = new LinkedHashMap<>();
        durable.put(new TopicPartition("größe", 0), 7L);
        durable.put(new TopicPartition("größe", 1), Long.MAX_VALUE);
        assertEquals(durable, effects.durable());
        assertEquals(Collections.singletonMap(new TopicPartition("größe", 2), 0L), effects.rewinds());
        assertTrue(effects.pause() && effects.resume() && effects.requestCommit());
        assertEquals(1_500, effects.timeoutMillis());
        List<Effects.Rejected> rejected = effects.rejected();
        assertEquals(2, rejected.size());
        assertEquals(3, rejected.get(0).row());
        assertEquals(new TopicPartition("größe", 1), rejected.get(0).partition());
        assertEquals(40, rejected.get(0).offset());
        Rejection reason = rejected.get(0).reason();
        assertEquals("VALUE_OUT_OF_RANGE", reason.code());
        assertEquals("db.größe", reason.table());
        assertEquals("v", reason.column());
        assertEquals("column `v`: does not fit int", reason.reason());
        assertEquals("", rejected.get(1).reason().column());
        assertEquals(255, rejected.get(1).row());
        List<String> log = effects.log().stream().map(line -> line.level() + line.text()).collect(Collectors.toList());
        assertEquals(
                Arrays.asList("0a line of Error", "1a line of Warn", "2a line of Info", "3a line of Debug"), log);
        assertEquals(9, effects.logDropped());
        assertEquals(2, effects.messages().size());
        assertArrayEquals("a message".getBytes(StandardCharsets.UTF_8), effects.messages().get(0));
        assertArrayEquals(new byte[] {0, (byte) 255}, effects.messages().get(1));
        assertTrue(effects.keys() && effects.headers() && effects.topics());
        assertNull(effects.error());
    }

    @Test
    public void noEffectAsksForNothing() throws Exception {
        Effects effects = golden("none.bin");
        assertTrue(effects.durable().isEmpty() && effects.rewinds().isEmpty());
        assertTrue(effects.rejected().isEmpty() && effects.log().isEmpty() && effects.messages().isEmpty());
        assertFalse(effects.pause() || effects.resume() || effects.requestCommit());
        assertFalse(effects.keys() || effects.headers() || effects.topics());
        assertEquals(-1, effects.timeoutMillis());
        assertNull(effects.error());
    }

    @Test
    public void eachKindOfErrorHasItsException() throws Exception {
        assertEquals(RetriableException.class, golden("retriable.bin").error().getClass());
        assertEquals(DataException.class, golden("data.bin").error().getClass());
        assertEquals(ConfigException.class, golden("config.bin").error().getClass());
        assertEquals("create it [TABLE_NOT_FOUND, table=a.b]", golden("config.bin").error().getMessage());
        assertEquals(ConnectException.class, golden("fatal.bin").error().getClass());
    }

    @Test
    public void brokenBytesAreAnErrorThatNamesTheCause() throws Exception {
        byte[] all = GoldenFiles.read("effects/all.bin");
        for (int length = 0; length < all.length; length++) {
            byte[] cut = Arrays.copyOf(all, length);
            ConnectException error = assertThrows(ConnectException.class, () -> Effects.decode(cut));
            assertTrue(error.getMessage(), error.getMessage().contains("[WIRE_CORRUPT]"));
        }
        byte[] longer = Arrays.copyOf(all, all.length + 1);
        assertThrows(ConnectException.class, () -> Effects.decode(longer));
        all[0] = 9;
        ConnectException error = assertThrows(ConnectException.class, () -> Effects.decode(all));
        assertTrue(error.getMessage(), error.getMessage().contains("[WIRE_VERSION]"));
    }
}
