package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkConnector;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** What the REST API sees of the connector: keys, problems, hidden secrets, task configurations. */
public class FrazilSinkConnectorTest {
    private static final String CANARY = "canary-5f1c";

    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    private final FrazilSinkConnector connector = new FrazilSinkConnector();

    @Test
    public void connectFindsTheConnectorByItsServiceFile() {
        List<String> found = new ArrayList<>();
        ServiceLoader.load(SinkConnector.class).forEach(plugin -> found.add(plugin.getClass().getName()));
        assertEquals(List.of("io.frazil.connect.FrazilSinkConnector"), found);
        assertEquals(Version.JAR, connector.version());
        assertFalse(connector.config().names().isEmpty());
    }

    @Test
    public void aSoundConfigurationHasNoErrors() {
        Map<String, ConfigValue> values = validate(Configs.local(folder.getRoot().toPath()));
        values.values().forEach(value -> assertEquals(value.name(), List.of(), value.errorMessages()));
    }

    @Test
    public void noSecretIsShownWhateverItsKeyAndWhateverElseIsWrong() {
        Map<String, String> config = Configs.local(folder.getRoot().toPath());
        for (String key : List.of(
                "iceberg.catalog.credential",
                "iceberg.catalog.token",
                "iceberg.catalog.s3.secret-access-key",
                "iceberg.catalog.s3.session-token",
                "iceberg.catalog.adls.sas-token.account",
                "iceberg.catalog.adls.account-key",
                "iceberg.catalog.my-own.Password",
                "iceberg.kafka.sasl.jaas.config",
                "frazil.unknown.secret",
                "unknown.token")) {
            config.put(key, CANARY);
        }
        Map<String, ConfigValue> values = validate(config);
        for (ConfigValue value : values.values()) {
            // As Connect renders it: by the type that `config()` gives the key, or by none.
            ConfigDef.ConfigKey known = connector.config().configKeys().get(value.name());
            String shown = ConfigDef.convertToString(value.value(), known == null ? null : known.type);
            assertFalse(value.name(), String.valueOf(shown).contains(CANARY));
            assertFalse(value.name(), value.errorMessages().toString().contains(CANARY));
        }
        assertEquals("[hidden]", values.get("iceberg.catalog.token").value().toString());
        assertEquals("[hidden]", values.get("iceberg.catalog.my-own.Password").value().toString());
        assertEquals("[hidden]", values.get("iceberg.kafka.sasl.jaas.config").value().toString());
    }

    @Test
    public void anErrorIsOnTheKeyThatCausesIt() {
        Map<String, String> config = Configs.local(folder.getRoot().toPath());
        config.remove("iceberg.catalog.type");
        config.put("iceberg.control.comit.interval-ms", "1000");
        Map<String, ConfigValue> values = validate(config);
        assertFalse(values.get("iceberg.catalog.type").errorMessages().isEmpty());
        assertFalse(values.get("iceberg.control.comit.interval-ms").errorMessages().isEmpty());
    }

    // Promise: what `validate` finds that is no error stands in its answer, as the value of `frazil.warnings`
    @Test
    public void warningsStandInTheAnswer() {
        Map<String, String> config = Configs.local(folder.getRoot().toPath());
        assertEquals(null, validate(config).get("frazil.warnings").value());
        config.put("iceberg.control.topic", "control-iceberg");
        config.put("iceberg.hadoop.fs.s3a.secret.key", CANARY);
        config.put("iceberg.hadoop.fs.s3a.access.key", "id");
        config.put("consumer.override.auto.offset.reset", "latest");
        Map<String, ConfigValue> values = validate(config);
        values.values().forEach(value -> assertEquals(value.name(), List.of(), value.errorMessages()));
        String warnings = String.valueOf(values.get("frazil.warnings").value());
        for (String part : List.of(
                "`iceberg.control.topic`: has no effect",
                "`iceberg.hadoop.fs.s3a.secret.key`: read as `iceberg.catalog.s3.secret-access-key`",
                "`consumer.override.auto.offset.reset`: records from before the first start are not read")) {
            assertTrue(warnings, warnings.contains(part));
        }
        assertFalse(warnings, warnings.contains(CANARY));
        assertEquals("[hidden]", values.get("iceberg.hadoop.fs.s3a.secret.key").value().toString());
    }

    @Test
    public void everyKeyTellsAFormWhereAndHowToShowIt() {
        Map<String, Set<Integer>> places = new HashMap<>();
        Set<String> names = new HashSet<>();
        for (ConfigDef.ConfigKey key : connector.config().configKeys().values()) {
            assertFalse(key.name, key.group.isEmpty() || key.documentation.isEmpty());
            assertTrue(key.name, places.computeIfAbsent(key.group, group -> new HashSet<>()).add(key.orderInGroup));
            assertTrue(key.displayName, names.add(key.displayName));
            assertTrue(key.name, Character.isUpperCase(key.displayName.charAt(0)));
            assertTrue(key.name, key.recommender.visible(key.name, Map.of()));
        }
        assertTrue(connector.config().groups().contains("Catalog"));
    }

    @Test
    public void aFormOffersTheWordsOfAKeyAndHidesWhatHasNoMeaning() {
        Map<String, String> config = Configs.local(folder.getRoot().toPath());
        Map<String, ConfigValue> values = validate(config);
        assertEquals(List.of(true, false), values.get("iceberg.tables.auto-create-enabled").recommendedValues());
        assertEquals(List.of("auto", "local", "topic"), values.get("frazil.coordination").recommendedValues());
        assertEquals(List.of(), values.get("iceberg.tables").recommendedValues());
        assertFalse(values.get("iceberg.catalog.credential").visible());
        assertTrue(values.get("iceberg.catalog.warehouse").visible());
        config.put("iceberg.catalog.type", "REST");
        assertTrue(validate(config).get("iceberg.catalog.credential").visible());
    }

    @Test
    public void keysOfConnectItselfAreLeftToConnect() {
        Map<String, String> config = Configs.local(folder.getRoot().toPath());
        config.put("key.converter", "org.apache.kafka.connect.storage.StringConverter");
        config.put("transforms", "a");
        Set<String> names = new HashSet<>(validate(config).keySet());
        names.removeIf(SinkConfig::isOurs);
        assertEquals(Set.of(), names);
    }

    @Test
    public void eachTaskGetsItsNumberAndNothingElseIsAdded() {
        Map<String, String> config = Configs.local(folder.getRoot().toPath());
        connector.start(config);
        List<Map<String, String>> tasks = connector.taskConfigs(2);
        for (int task = 0; task < 2; task++) {
            Map<String, String> expected = new HashMap<>(config);
            expected.put("frazil.internal.task", Integer.toString(task));
            expected.put("frazil.internal.tasks", "2");
            expected.put("frazil.internal.epoch", "0");
            expected.put("frazil.internal.coordination", "local"); // This JVM is no worker.
            assertEquals(expected, tasks.get(task));
        }
        connector.stop();
    }

    // Promise: offsets altered over REST are recorded in the tables before the consumer group is changed, by a connector that need not be started
    @Test
    public void alteringOffsetsNeedsNoStartedConnector() {
        Map<String, String> config = Configs.local(folder.getRoot().toPath());
        Map<TopicPartition, Long> offsets = new HashMap<>();
        offsets.put(new TopicPartition("orders", 0), null);
        offsets.put(new TopicPartition("orders", 1), 7L);
        assertTrue(connector.alterOffsets(config, offsets));
        assertTrue(connector.alterOffsets(config, Map.of()));
        offsets.put(new TopicPartition("orders", 1), -7L);
        ConfigException refused =
                assertThrows(ConfigException.class, () -> connector.alterOffsets(config, offsets));
        assertTrue(refused.getMessage(), refused.getMessage().contains("OFFSETS_INVALID"));
    }

    @Test
    public void noTaskIsConfiguredWhileTheCatalogIsAway() {
        Map<String, String> config = Configs.local(folder.getRoot().toPath());
        config.put("iceberg.catalog.type", "rest");
        config.put("iceberg.catalog.uri", "http://127.0.0.1:1/");
        connector.start(config);
        ConnectException error = assertThrows(ConnectException.class, () -> connector.taskConfigs(1));
        assertTrue(error.getMessage(), error.getMessage().contains("no task is started yet"));
        connector.stop();
    }

    @Test
    public void coordinationThroughATopicIsResolvedOnceForAllTasks() {
        Map<String, String> config = Configs.local(folder.getRoot().toPath());
        config.put("iceberg.kafka.bootstrap.servers", "broker:9092");
        connector.start(config);
        for (int tasks = 1; tasks < 4; tasks++) {
            for (Map<String, String> task : connector.taskConfigs(tasks)) {
                assertEquals(tasks == 1 ? "local" : "topic", task.get("frazil.internal.coordination"));
            }
        }
    }

    @Test
    public void coordinationThroughATopicNeedsClientSettings() {
        Map<String, String> config = Configs.local(folder.getRoot().toPath());
        config.put("frazil.coordination", "topic");
        List<String> errors = validate(config).get("frazil.coordination").errorMessages();
        assertEquals(errors.toString(), 1, errors.size());
        assertTrue(errors.get(0), errors.get(0).contains("`iceberg.kafka.bootstrap.servers`"));
        connector.start(config);
        assertThrows(ConfigException.class, () -> connector.taskConfigs(1));
        config.put("frazil.coordination", "nonsense");
        errors = validate(config).get("frazil.coordination").errorMessages();
        assertEquals(errors.toString(), 1, errors.size());
        config.put("frazil.coordination", "topic");
        config.put("iceberg.kafka.bootstrap.servers", "broker:9092");
        assertEquals(List.of(), validate(config).get("frazil.coordination").errorMessages());
    }

    private Map<String, ConfigValue> validate(Map<String, String> config) {
        Map<String, ConfigValue> values = new HashMap<>();
        for (ConfigValue value : connector.validate(config).configValues()) {
            values.put(value.name(), value);
        }
        return values;
    }
}
