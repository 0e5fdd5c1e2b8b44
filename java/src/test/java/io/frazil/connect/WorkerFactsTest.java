package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** What the native side is told of the worker. */
public class WorkerFactsTest {
    private static final String OWN = "consumer.override.max.poll.interval.ms";

    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    @Test
    public void theConnectorsPollIntervalComesBeforeTheWorkersAndThatBeforeKafkas() throws Exception {
        Path file = folder.getRoot().toPath().resolve("connect.properties");
        Files.write(file, List.of("bootstrap.servers=b:1", "consumer.max.poll.interval.ms=120000"));
        String worker = "org.apache.kafka.connect.cli.ConnectDistributed " + file;
        assertEquals(40_000, WorkerFacts.pollIntervalMs(Map.of(OWN, " 40000 "), worker));
        assertEquals(120_000, WorkerFacts.pollIntervalMs(Map.of(), worker));
        Map<String, String> forbidden = Map.of(KafkaSettings.FROM_WORKER_KEY, "false");
        assertEquals(300_000, WorkerFacts.pollIntervalMs(forbidden, worker));
        assertEquals(300_000, WorkerFacts.pollIntervalMs(Map.of(), "org.example.Embedded"));
        assertEquals(300_000, WorkerFacts.pollIntervalMs(Map.of(OWN, "soon"), worker));
    }

    @Test
    public void theLargestHeapIsTold() {
        Map<String, String> config = Map.of("name", "orders");
        Map<String, String> told = WorkerFacts.with(config);
        assertEquals(Long.toString(Runtime.getRuntime().maxMemory()), told.get(WorkerFacts.HEAP_KEY));
        assertEquals("300000", told.get(WorkerFacts.POLL_INTERVAL_KEY));
        assertEquals("orders", told.get("name"));
        assertFalse(config.containsKey(WorkerFacts.HEAP_KEY));
    }
}
