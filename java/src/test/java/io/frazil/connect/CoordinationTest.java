package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.junit.Test;

/** Where tasks agree on commits. */
public class CoordinationTest {
    private static final KafkaSettings SOME = KafkaSettings.of(Map.of("iceberg.kafka.bootstrap.servers", "b:1"), "");
    private static final KafkaSettings NONE = KafkaSettings.of(Map.of(), "");

    private static Coordination of(String asked, int tasks, KafkaSettings settings) {
        Map<String, String> config = asked == null ? Map.of() : Map.of(Coordination.KEY, asked);
        return Coordination.of(config, tasks, settings);
    }

    // Promise: `auto` is `topic` for several tasks when client settings can be read, else `local`
    @Test
    public void autoChoosesByTasksAndSettings() {
        for (String auto : new String[] {null, "auto", " AUTO "}) {
            assertEquals("local", of(auto, 1, SOME).resolved());
            assertEquals("local", of(auto, 1, NONE).resolved());
            assertEquals("topic", of(auto, 2, SOME).resolved());
            assertEquals("local", of(auto, 2, NONE).resolved());
        }
        assertFalse(of(null, 1, NONE).problem().isPresent());
        assertFalse(of(null, 2, SOME).problem().isPresent());
        assertEquals("local", of("local", 9, SOME).resolved());
        assertFalse(of("local", 9, NONE).problem().isPresent());
        assertEquals("topic", of("Topic", 1, SOME).resolved());
    }

    // Promise: when several tasks cannot coordinate through a topic, validation warns and states the cost
    @Test
    public void aFallbackToLocalWarnsWithItsCost() {
        Coordination fallback = of("auto", 4, NONE);
        fallback.check();
        Problem warning = fallback.problem().get();
        assertFalse(warning.isError());
        assertEquals("frazil.coordination", warning.key());
        assertTrue(warning.message(), warning.message().contains("k workers make k snapshots per table and interval"));
        assertTrue(warning.message(), warning.message().contains("`iceberg.kafka.bootstrap.servers`"));
    }

    @Test
    public void anExplicitTopicWithoutSettingsIsRefused() {
        Coordination refused = of("topic", 4, NONE);
        assertTrue(refused.problem().get().isError());
        ConfigException error = assertThrows(ConfigException.class, refused::check);
        assertTrue(error.getMessage(), error.getMessage().contains("`frazil.coordination`: `topic` needs Kafka client"));
    }

    @Test
    public void namesFollowTheSinksOwn() {
        Map<String, String> config = new HashMap<>(Map.of("name", "orders"));
        assertEquals("connect-orders-frazil-committer", Coordination.groupOf(config));
        assertEquals("frazil-control", Coordination.topicOf(config));
        config.put("consumer.override.group.id", "mine");
        config.put(Coordination.TOPIC_KEY, " own-control ");
        assertEquals("mine-frazil-committer", Coordination.groupOf(config));
        assertEquals("own-control", Coordination.topicOf(config));
        assertFalse(Coordination.isTopic(config));
        config.put(Coordination.RESOLVED_KEY, "topic");
        assertTrue(Coordination.isTopic(config));
    }

    @Test
    public void theWritersIdentityIsTheCores() {
        // As `the_writers_identity_is_stable` in core/config/tests.rs has it.
        Map<String, String> config = new HashMap<>(Map.of("name", "orders", "frazil.kafka.cluster.id",
                "MkU3OEVBNTcwNTJENDM2Qk"));
        assertEquals("fc849f98828ebff4", Coordination.widOf(config));
        assertEquals("c0d0d73f4619b9de", Coordination.widOf(Map.of("name", "orders", "frazil.writer.id", "old")));
        assertEquals(Coordination.widOf(Map.of("name", "orders")),
                Coordination.widOf(Map.of("name", "orders", "frazil.writer.id", " ")));
    }

    @Test
    public void tasksOfOneConfigurationShareAChannelAndNoOthers() {
        Map<String, String> first = Map.of("name", "a", FrazilSinkConnector.TASK_KEY, "0", "k", "v");
        Map<String, String> second = Map.of("name", "a", FrazilSinkConnector.TASK_KEY, "1", "k", "v");
        Map<String, String> changed = Map.of("name", "a", FrazilSinkConnector.TASK_KEY, "0", "k", "w");
        assertEquals(Coordination.fingerprint(first), Coordination.fingerprint(second));
        assertNotEquals(Coordination.fingerprint(first), Coordination.fingerprint(changed));
    }
}
