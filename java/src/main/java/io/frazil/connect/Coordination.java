package io.frazil.connect;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.ConnectException;

/** Decides where the tasks of a connector agree on commits, and how that is named in Kafka. */
final class Coordination {
    static final String KEY = "frazil.coordination";
    /** Tells the tasks what was decided. */
    static final String RESOLVED_KEY = "frazil.internal.coordination";
    static final String TOPIC_KEY = "frazil.control.topic";

    private static final String LOCAL = "local";
    private static final String TOPIC = "topic";
    private static final String TOPIC_DEFAULT = "frazil-control";
    private static final String COST = " Each worker that runs tasks then commits for itself: k workers make k"
            + " snapshots per table and interval in place of one. For one set `" + KafkaSettings.PREFIX
            + "bootstrap.servers` and the login that it needs; to accept the cost set `" + KEY + "=local`";

    private final String resolved;
    private final Problem problem;

    private Coordination(String resolved, Problem problem) {
        this.resolved = resolved;
        this.problem = problem;
    }

    /** Decides for a connector of {@code tasks} tasks, by what this worker can read. */
    static Coordination of(Map<String, String> config, int tasks) {
        return of(config, tasks, KafkaSettings.of(config));
    }

    static Coordination of(Map<String, String> config, int tasks, KafkaSettings settings) {
        String asked = word(config, KEY).orElse("auto");
        String missing = settings.missing();
        switch (asked) {
            case LOCAL:
                return new Coordination(LOCAL, null);
            case TOPIC:
                return new Coordination(TOPIC, missing == null ? null : Problem.error(KEY, "`topic` needs Kafka"
                        + " client settings: " + missing + "; set `" + KafkaSettings.PREFIX
                        + "bootstrap.servers` and the login that it needs"));
            default:
                if (tasks == 1 || missing == null) {
                    return new Coordination(tasks == 1 ? LOCAL : TOPIC, null);
                }
                return new Coordination(LOCAL, Problem.warning(KEY, "comes to `local`: " + missing + "." + COST));
        }
    }

    /** Returns whether a task was told to use the control topic. */
    static boolean isTopic(Map<String, String> taskConfig) {
        return word(taskConfig, RESOLVED_KEY).filter(TOPIC::equals).isPresent();
    }

    /** Returns the control topic. */
    static String topicOf(Map<String, String> config) {
        return Optional.ofNullable(config.get(TOPIC_KEY)).map(String::trim).orElse(TOPIC_DEFAULT);
    }

    /** Returns the group that elects the coordinator: one for each group of sink consumers. */
    static String groupOf(Map<String, String> config) {
        String group = config.get("consumer.override.group.id");
        return (group == null || group.isBlank() ? "connect-" + config.get("name") : group) + "-frazil-committer";
    }

    /** Returns the writer's identity as the core computes it: the key of its control records. */
    static String widOf(Map<String, String> config) {
        String cluster = Optional.ofNullable(config.get("frazil.kafka.cluster.id")).map(String::trim).orElse("");
        String writer = Optional.ofNullable(config.get("frazil.writer.id")).map(String::trim)
                .filter(id -> !id.isEmpty()).orElse("connect-" + config.get("name").trim());
        return hex(sha256().digest(("1|" + cluster + "|" + writer).getBytes(StandardCharsets.UTF_8)), 8);
    }

    /** Returns what tells a task's configuration from others that must not share a channel with it. */
    static String fingerprint(Map<String, String> taskConfig) {
        MessageDigest digest = sha256();
        new TreeMap<>(taskConfig).forEach((key, value) -> {
            if (!key.equals(FrazilSinkConnector.TASK_KEY)) {
                digest.update((key.length() + ":" + key + value + "\n").getBytes(StandardCharsets.UTF_8));
            }
        });
        return hex(digest.digest(), 16);
    }

    /** Returns {@code local} or {@code topic}. */
    String resolved() {
        return resolved;
    }

    /** Returns what to say about it: an error when the connector cannot start. */
    Optional<Problem> problem() {
        return Optional.ofNullable(problem);
    }

    /** Throws what keeps a connector from starting. */
    void check() {
        if (problem != null && problem.isError()) {
            throw new ConfigException("`" + problem.key() + "`: " + problem.message() + " [CONFIG_INVALID]");
        }
    }

    private static Optional<String> word(Map<String, String> config, String key) {
        return Optional.ofNullable(config.get(key)).map(word -> word.trim().toLowerCase(Locale.ROOT));
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new ConnectException("this JVM has no SHA-256, which every JVM must have", e);
        }
    }

    private static String hex(byte[] bytes, int count) {
        StringBuilder text = new StringBuilder(2 * count);
        for (int i = 0; i < count; i++) {
            text.append(String.format("%02x", bytes[i]));
        }
        return text.toString();
    }
}
