package io.frazil.connect;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Resets of source offsets, and the writer epoch that they raise.
 *
 * <p>The tables hold the offsets that they contain, so a reset of the consumer group alone would
 * only make the sink skip what it has. Connect calls {@link #alter} before it changes the group, on
 * a stopped connector, possibly on one that was never started: everything it needs is opened here,
 * and making the same request again does no harm.
 */
final class OffsetReset {
    /** Tells a task how many resets there were when it was configured. */
    static final String EPOCH_KEY = "frazil.internal.epoch";
    /** Tells the native side that this handle is no task's. */
    static final String ROLE_KEY = "frazil.internal.role";

    private static final Logger LOG = LoggerFactory.getLogger(OffsetReset.class);

    private OffsetReset() {}

    /** Makes every table of the connector ready for its records to come again from these offsets. */
    static void alter(Map<String, String> config, Map<TopicPartition, Long> offsets) {
        long epoch = ask(config, Requests.alterOffsets(offsets));
        LOG.info("Connector {}: offsets of {} were reset in its tables; writer epoch {}", config.get("name"),
                offsets.isEmpty() ? "all partitions" : offsets.size() + " partitions", epoch);
    }

    /** Returns the epoch of tasks that are configured now. A catalog that is away is no epoch 0. */
    static long epoch(Map<String, String> config) {
        try {
            return ask(config, Requests.epoch());
        } catch (ConnectException e) {
            throw new ConnectException("the tables cannot be asked whether offsets were reset, so no task is"
                    + " started yet: " + e.getMessage(), e);
        }
    }

    private static long ask(Map<String, String> config, byte[] request) {
        Map<String, String> admin = new HashMap<>(config);
        admin.put(ROLE_KEY, "admin");
        Effects effects;
        try (NativeSink sink = NativeSink.open(admin)) {
            effects = Effects.decode(sink.control(request));
        }
        for (Effects.LogLine line : effects.log()) {
            LOG.info("Connector {}: {}", config.get("name"), line.text());
        }
        Long epoch = effects.durable().get(new TopicPartition("", 0));
        if (epoch == null) {
            throw new ConnectException("the native library gave no epoch;"
                    + " install the jar and the library of one release [WIRE_CORRUPT]");
        }
        return epoch;
    }
}
