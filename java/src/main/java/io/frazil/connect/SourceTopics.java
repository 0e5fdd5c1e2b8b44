package io.frazil.connect;

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The ids of source topics, by which a topic that was deleted and made again is known to be another
 * one, and how many partitions they have. Connect tells only names and the partitions of this task, so
 * the cluster is asked where its address and login are known. A topic of which nothing is told is left
 * out: the native side then goes by the name.
 */
final class SourceTopics implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(SourceTopics.class);
    /** `open` runs in a rebalance, for which the other members wait. */
    private static final int WAIT_MS = 5_000;

    private final Map<String, String> settings;
    private final Function<Map<String, Object>, Admin> clients;
    private Admin admin;
    private boolean warned;

    SourceTopics(Map<String, String> config) {
        this(config, KafkaSettings.of(config).values(), Admin::create);
    }

    SourceTopics(Map<String, String> config, Map<String, String> settings, Function<Map<String, Object>, Admin> clients) {
        this.settings = new HashMap<>(settings);
        if (!settings.isEmpty()) {
            this.settings.put("client.id", settings.getOrDefault("client.id", "frazil") + "-" + config.get("name")
                    + "-topics-" + config.getOrDefault(FrazilSinkConnector.TASK_KEY, "0"));
        }
        this.clients = clients;
    }

    /** Returns what these partitions' topics are, as far as the cluster tells it. */
    Map<String, SourceTopic> of(Collection<TopicPartition> partitions) {
        Set<String> topics = new TreeSet<>();
        partitions.forEach(partition -> topics.add(partition.topic()));
        if (settings.isEmpty() || topics.isEmpty()) {
            return Map.of();
        }
        Map<String, SourceTopic> told = new HashMap<>();
        try {
            if (admin == null) {
                Map<String, Object> values = new HashMap<>(settings);
                values.put("request.timeout.ms", Integer.toString(WAIT_MS));
                values.put("default.api.timeout.ms", Integer.toString(WAIT_MS));
                admin = clients.apply(values);
            }
            admin.describeTopics(topics).allTopicNames().get(WAIT_MS, TimeUnit.MILLISECONDS)
                    .forEach((topic, described) -> {
                        if (!Uuid.ZERO_UUID.equals(described.topicId())) { // What a cluster says that has no ids.
                            told.put(topic, new SourceTopic(described.topicId(), described.partitions().size()));
                        }
                    });
        } catch (ExecutionException | TimeoutException | KafkaException e) {
            warnOnce(e instanceof ExecutionException ? e.getCause() : e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return told;
    }

    private void warnOnce(Throwable error) {
        if (!warned) {
            warned = true;
            LOG.warn("The ids and partitions of the topics are not known, so one that is deleted and made again"
                    + " is not recognised by its id, nor one that gets more partitions ({})",
                    error.getClass().getSimpleName());
        }
    }

    @Override
    public void close() {
        if (admin != null) {
            admin.close(Duration.ofSeconds(1));
            admin = null;
        }
    }
}
