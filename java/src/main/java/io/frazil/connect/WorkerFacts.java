package io.frazil.connect;

import java.util.HashMap;
import java.util.Map;

/** What the native side needs to know of this worker and cannot find out by itself. */
final class WorkerFacts {
    /** Tells the largest heap: what the container has beside it may be native memory. */
    static final String HEAP_KEY = "frazil.internal.heap-max-bytes";
    /** Tells how long the group waits for a task. */
    static final String POLL_INTERVAL_KEY = "frazil.internal.poll-interval-ms";

    /** Kafka's own default. */
    private static final long POLL_INTERVAL_MS = 300_000;
    private static final String POLL_INTERVAL = "max.poll.interval.ms";

    private WorkerFacts() {}

    /** Returns a configuration together with the facts. They are of this worker, so they are never stored. */
    static Map<String, String> with(Map<String, String> config) {
        Map<String, String> all = new HashMap<>(config);
        all.put(HEAP_KEY, Long.toString(Runtime.getRuntime().maxMemory()));
        all.put(POLL_INTERVAL_KEY, Long.toString(pollIntervalMs(config)));
        return all;
    }

    /** Returns the `max.poll.interval.ms` of the connector's consumers. */
    static long pollIntervalMs(Map<String, String> config) {
        return pollIntervalMs(config, System.getProperty("sun.java.command", ""));
    }

    static long pollIntervalMs(Map<String, String> config, String command) {
        String own = config.get("consumer.override." + POLL_INTERVAL);
        String found = own == null ? KafkaSettings.workersConsumer(config, command, POLL_INTERVAL) : own;
        try {
            return found == null ? POLL_INTERVAL_MS : Math.max(1, Long.parseLong(found.trim()));
        } catch (NumberFormatException e) {
            return POLL_INTERVAL_MS; // Kafka refuses it.
        }
    }
}
