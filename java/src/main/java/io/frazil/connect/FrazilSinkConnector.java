package io.frazil.connect;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkConnector;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Writes the topics of a connector into Iceberg tables: each record exactly once. */
public final class FrazilSinkConnector extends SinkConnector {
    /** Tells a task its number, from 0. */
    static final String TASK_KEY = "frazil.internal.task";
    /** Tells a task how many there are. */
    static final String TASKS_KEY = "frazil.internal.tasks";
    /** Where the answer of {@code validate} has what is no error. */
    static final String WARNINGS_KEY = "frazil.warnings";

    /** Tells the checks of {@code validate} how many partitions topics have. */
    static final String PARTITIONS_KEY = "frazil.internal.topic-partitions";

    private static final Logger LOG = LoggerFactory.getLogger(FrazilSinkConnector.class);
    private static final int WARNINGS_REMEMBERED_MAX = 10_000;
    /** Connect validates a configuration many times and with one cached connector: warn once. */
    private static final Set<String> WARNED = ConcurrentHashMap.newKeySet();

    private Map<String, String> config = Collections.emptyMap();

    /** Creates the connector; Connect does so while it scans, so nothing is loaded here. */
    public FrazilSinkConnector() {}

    @Override
    public String version() {
        return Version.JAR;
    }

    @Override
    public ConfigDef config() {
        return SinkConfig.definition();
    }

    @Override
    public Class<? extends Task> taskClass() {
        return FrazilSinkTask.class;
    }

    @Override
    public void start(Map<String, String> properties) {
        config = new HashMap<>(properties);
    }

    @Override
    public void stop() {
        config = Collections.emptyMap();
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        String epoch = Long.toString(OffsetReset.epoch(config));
        Coordination coordination = Coordination.of(config, maxTasks);
        coordination.check();
        coordination.problem().ifPresent(problem -> warnOnce(config.get("name"), problem));
        List<Map<String, String>> tasks = new ArrayList<>(maxTasks);
        for (int task = 0; task < maxTasks; task++) {
            // Nothing here is derived from a secret: derived values are stored and served in clear.
            Map<String, String> properties = new HashMap<>(config);
            properties.put(TASK_KEY, Integer.toString(task));
            properties.put(TASKS_KEY, Integer.toString(maxTasks));
            properties.put(OffsetReset.EPOCH_KEY, epoch);
            properties.put(Coordination.RESOLVED_KEY, coordination.resolved());
            tasks.add(properties);
        }
        return tasks;
    }

    /** Checks the whole configuration in the native core and puts each error on its key. */
    @Override
    public Config validate(Map<String, String> properties) {
        Map<String, List<String>> errors = new LinkedHashMap<>();
        List<String> warnings = new ArrayList<>();
        try {
            NativeLibrary.load(properties);
            KafkaSettings kafka = KafkaSettings.of(properties);
            Coordination coordination = Coordination.of(properties, tasksOf(properties), kafka);
            Map<String, String> resolved = new HashMap<>(properties);
            resolved.put(Coordination.RESOLVED_KEY, coordination.resolved());
            List<Problem> problems = Problem.decode(NativeSink.check(resolved));
            // A login that the core refuses is not tried.
            List<Problem> ofTopics = problems.stream().anyMatch(Problem::isError)
                    ? List.of()
                    : TopicChecks.of(properties, kafka, coordination.resolved());
            boolean sound = Stream.concat(problems.stream(), ofTopics.stream()).noneMatch(Problem::isError);
            if (sound && changesRows(properties)) {
                Map<String, Integer> partitions = TopicChecks.partitions(properties, kafka);
                if (!partitions.isEmpty()) {
                    resolved.put(PARTITIONS_KEY, counts(partitions));
                    problems = Problem.decode(NativeSink.check(resolved));
                }
            }
            if (problems.stream().noneMatch(problem -> problem.key().equals(Coordination.KEY))) {
                coordination.problem().ifPresent(problems::add);
            }
            problems.addAll(ofTopics);
            for (Problem problem : problems) {
                if (problem.isError()) {
                    // Connect's answer to a POST shows only the messages, so each names its key.
                    errors.computeIfAbsent(problem.key(), key -> new ArrayList<>())
                            .add("`" + problem.key() + "`: " + problem.message());
                } else {
                    warnings.add("`" + problem.key() + "`: " + problem.message());
                    warnOnce(properties.get("name"), problem);
                }
            }
        } catch (ConnectException e) {
            errors.put(NativeLibrary.PATH_KEY, new ArrayList<>(List.of(e.getMessage())));
        }
        Map<String, ConfigValue> values = new LinkedHashMap<>();
        for (ConfigValue value : SinkConfig.definition(properties).validate(properties)) {
            values.put(value.name(), value);
        }
        errors.forEach((key, messages) -> values.put(key, withErrors(key, properties.get(key), values.get(key), messages)));
        // Connect's answer knows errors only, so what is none stands there as the value of a key.
        values.computeIfPresent(WARNINGS_KEY, (key, value) -> new ConfigValue(
                key, warnings.isEmpty() ? null : String.join("\n", warnings), new ArrayList<>(), value.errorMessages()));
        return new Config(new ArrayList<>(values.values()));
    }

    @Override
    public boolean alterOffsets(Map<String, String> connectorConfig, Map<TopicPartition, Long> offsets) {
        OffsetReset.alter(connectorConfig, offsets);
        return true;
    }

    /** The core's messages name the remedy, so they replace what ConfigDef says about the same key. */
    private static ConfigValue withErrors(String key, String submitted, ConfigValue parsed, List<String> messages) {
        if (parsed != null) {
            return new ConfigValue(key, parsed.value(), parsed.recommendedValues(), messages);
        }
        Object value = submitted != null && SinkConfig.isSecret(key) ? new Password(submitted) : submitted;
        return new ConfigValue(key, isParsedByConnect(key) ? null : value, new ArrayList<>(), messages);
    }

    /** Connect writes a value by the type that its own definition has: a text where it wants a class or
     * a list fails its whole answer. Its own part of the answer shows the value. */
    private static boolean isParsedByConnect(String key) {
        return key.equals("topics")
                || key.endsWith(".converter")
                || key.startsWith("transforms")
                || key.startsWith("predicates");
    }

    /** Tells whether records may change rows: only then the order of a key's records matters. */
    static boolean changesRows(Map<String, String> properties) {
        return properties.entrySet().stream().anyMatch(entry -> {
            String value = entry.getValue() == null ? "" : entry.getValue().trim().toLowerCase(Locale.ROOT);
            return entry.getKey().endsWith("mode") && (value.equals("upsert") || value.equals("cdc"))
                    || entry.getKey().equals("iceberg.tables.cdc-field")
                    || entry.getKey().equals("iceberg.tables.upsert-mode-enabled") && value.equals("true");
        });
    }

    private static String counts(Map<String, Integer> partitions) {
        return partitions.entrySet().stream()
                .map(entry -> entry.getKey() + "=" + entry.getValue())
                .collect(Collectors.joining(","));
    }

    private static int tasksOf(Map<String, String> properties) {
        try {
            return Integer.parseInt(properties.getOrDefault("tasks.max", "1").trim());
        } catch (NumberFormatException e) {
            return 1; // Connect itself refuses it.
        }
    }

    private static void warnOnce(String connector, Problem problem) {
        if (WARNED.size() >= WARNINGS_REMEMBERED_MAX) {
            WARNED.clear();
        }
        if (WARNED.add(connector + "\n" + problem.key() + "\n" + problem.message())) {
            LOG.warn("Connector {}: {}: {}", connector, problem.key(), problem.message());
        }
    }
}
