package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.ConnectException;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** The life of a task against the real library. */
public class FrazilSinkTaskTest {
    private static final TopicPartition P0 = new TopicPartition("orders", 0);

    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    private final FakeContext context = new FakeContext();
    private final FrazilSinkTask task = new FrazilSinkTask();

    @Before
    public void initialize() {
        task.initialize(context);
        context.assigned.add(P0);
    }

    @Test
    public void aTaskLivesAndLivesAgain() throws Exception {
        for (int life = 0; life < 2; life++) {
            task.start(Configs.localTask(folder.newFolder().toPath()));
            task.open(List.of(P0));
            task.put(List.of());
            assertTrue("an idle task is called again soon", context.timeoutMs > 0 && context.timeoutMs <= 500);
            assertEquals(Map.of(P0, 42L), preCommit(42));
            task.close(List.of(P0));
            task.stop();
            task.stop();
        }
    }

    @Test
    public void startingTwiceEndsTheFirstSession() throws Exception {
        task.start(Configs.localTask(folder.newFolder().toPath()));
        task.start(Configs.localTask(folder.newFolder().toPath()));
        task.open(List.of(P0));
        task.put(List.of());
        task.stop();
    }

    @Test
    public void aConfigurationThatCannotWorkFailsTheStartAndNothingElse() throws Exception {
        Map<String, String> config = Configs.localTask(folder.getRoot().toPath());
        config.remove("iceberg.catalog.type");
        assertThrows(ConfigException.class, () -> task.start(config));
        // Connect goes on to end the task that did not start.
        assertEquals(Map.of(), task.preCommit(Map.of(P0, new OffsetAndMetadata(1))));
        task.close(List.of(P0));
        task.stop();
    }

    @Test
    public void aTaskThatShallUseATopicAndCannotSaysWhatToDo() throws Exception {
        Map<String, String> config = Configs.localTask(folder.getRoot().toPath());
        config.put(Coordination.RESOLVED_KEY, "topic");
        ConnectException error = assertThrows(ConnectException.class, () -> task.start(config));
        assertTrue(error.getMessage(), error.getMessage().contains("[CONTROL_NO_SETTINGS]"));
        config.put("iceberg.kafka.bootstrap.servers", "127.0.0.1:1");
        config.put("iceberg.kafka.interceptor.classes", "x.Y");
        assertThrows("before any client is made", ConfigException.class, () -> task.start(config));
        task.stop();
    }

    @Test
    public void withoutBrokersATaskGoesOnAndEndsAndBeginsAgain() throws Exception {
        Map<String, String> config = Configs.localTask(folder.getRoot().toPath());
        config.put(Coordination.RESOLVED_KEY, "topic");
        config.put("iceberg.kafka.bootstrap.servers", "127.0.0.1:1");
        for (int life = 0; life < 2; life++) {
            task.start(config);
            task.open(List.of(P0));
            task.put(List.of());
            assertEquals(Map.of(P0, 42L), preCommit(42));
            task.put(List.of());
            task.close(List.of(P0));
            long begun = System.nanoTime();
            task.stop();
            assertTrue("a task has 5 s to end", System.nanoTime() - begun < 4_500_000_000L);
        }
    }

    private Map<TopicPartition, Long> preCommit(long asked) {
        Map<TopicPartition, OffsetAndMetadata> answer = task.preCommit(Map.of(P0, new OffsetAndMetadata(asked)));
        return Map.of(P0, answer.get(P0).offset());
    }
}
