package io.frazil.connect;

import static org.junit.Assert.assertEquals;

import java.util.Map;
import org.junit.Test;

public class ControlClientsTest {
    private static final Map<String, String> CONFIG = Map.of("name", "orders");

    // Promise: A coordinator that died is replaced after six seconds, or after what `iceberg.kafka.session.timeout.ms` says
    @Test
    public void aDeadLeaderIsMissedSoonUnlessTheSettingsSayOtherwise() {
        Map<String, String> settings = Map.of("bootstrap.servers", "127.0.0.1:9");
        Map<String, Object> usual = new ControlClients(CONFIG, settings).election();
        assertEquals("6000", usual.get("session.timeout.ms"));
        assertEquals("2000", usual.get("heartbeat.interval.ms"));
        Map<String, String> slow = Map.of("bootstrap.servers", "127.0.0.1:9", "session.timeout.ms", "30000");
        assertEquals("30000", new ControlClients(CONFIG, slow).election().get("session.timeout.ms"));
    }
}
