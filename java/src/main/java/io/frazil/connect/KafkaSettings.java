package io.frazil.connect;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;

/**
 * Where the brokers are and how to log in there: from {@code iceberg.kafka.*}, else from the
 * properties file that the worker was started with.
 *
 * <p>Invariant: what the connector's author may write is never mixed with the worker's secrets. With
 * brokers of its own a connector gets nothing from the file; with a login or TLS of its own it gets
 * the brokers' addresses alone. What the core refuses under {@code iceberg.kafka.} it refuses before
 * a client is made; the file is the operator's, and taken as it is.
 */
final class KafkaSettings {
    /** Whether the worker's file may be read. */
    static final String FROM_WORKER_KEY = "frazil.kafka.from-worker";
    static final String PREFIX = "iceberg.kafka.";

    private static final String BROKERS = "bootstrap.servers";
    private static final List<String> LOGIN = List.of("security.", "sasl.", "ssl.");

    private final Map<String, String> values;
    private final String missing;

    private KafkaSettings(Map<String, String> values, String missing) {
        this.values = values;
        this.missing = missing;
    }

    /** Finds the settings for a connector or task on this worker. */
    static KafkaSettings of(Map<String, String> config) {
        return of(config, System.getProperty("sun.java.command", ""));
    }

    static KafkaSettings of(Map<String, String> config, String command) {
        Map<String, String> own = new HashMap<>();
        config.forEach((key, value) -> {
            if (key.startsWith(PREFIX) && value != null) {
                own.put(key.substring(PREFIX.length()), value);
            }
        });
        if (isSet(own.get(BROKERS))) {
            return new KafkaSettings(own, null);
        }
        String none = "`" + PREFIX + BROKERS + "` is not set, and ";
        if ("false".equalsIgnoreCase(String.valueOf(config.get(FROM_WORKER_KEY)).trim())) {
            return new KafkaSettings(Map.of(), none + "`" + FROM_WORKER_KEY + "=false`");
        }
        try {
            Map<String, String> workers = ofWorker(fileOf(command));
            boolean login = own.keySet().stream().anyMatch(KafkaSettings::isLogin);
            workers.keySet().removeIf(key -> !key.equals(BROKERS) && (login || !isLogin(key)));
            if (!isSet(workers.get(BROKERS))) {
                return new KafkaSettings(Map.of(), none + "the worker's properties file names no brokers");
            }
            workers.putAll(own);
            return new KafkaSettings(workers, null);
        } catch (IOException | IllegalArgumentException | KafkaException e) {
            // A message of these may quote a line of the file.
            return new KafkaSettings(Map.of(), none + "the worker's properties file cannot be read ("
                    + e.getClass().getSimpleName() + ")");
        }
    }

    /** Returns the settings of a Kafka client; empty when there are none. */
    Map<String, String> values() {
        return values;
    }

    /** Returns why there are no settings, or null. */
    String missing() {
        return missing;
    }

    /** Returns a setting that the worker's file has for all consumers, or null. */
    static String workersConsumer(Map<String, String> config, String command, String name) {
        if ("false".equalsIgnoreCase(String.valueOf(config.get(FROM_WORKER_KEY)).trim())) {
            return null;
        }
        try (InputStream in = Files.newInputStream(fileOf(command))) {
            Properties properties = new Properties();
            properties.load(in);
            return properties.getProperty("consumer." + name);
        } catch (IOException | IllegalArgumentException e) {
            return null; // Not a worker's own process: Kafka's defaults are what is known.
        }
    }

    /** The main class of a worker is followed by its file, and that of a standalone one by others. */
    private static Path fileOf(String command) throws IOException {
        String[] words = command.trim().split("\\s+", 2);
        boolean worker = words[0].contains(".ConnectDistributed") || words[0].contains(".ConnectStandalone");
        if (!worker || words.length < 2) {
            throw new IOException("not started as a worker");
        }
        try {
            Path whole = Paths.get(words[1]); // A path may have spaces.
            return Files.isRegularFile(whole) ? whole : Paths.get(words[1].split("\\s+", 2)[0]);
        } catch (InvalidPathException e) {
            throw new IOException(e);
        }
    }

    private static Map<String, String> ofWorker(Path file) throws IOException {
        Properties properties = new Properties();
        try (InputStream in = Files.newInputStream(file)) {
            properties.load(in);
        }
        Map<String, String> values = new HashMap<>();
        properties.stringPropertyNames().forEach(key -> {
            if (key.equals(BROKERS) || isLogin(key) || key.startsWith("config.providers")) {
                values.put(key, properties.getProperty(key));
            }
        });
        // Replaces ${provider:…} as the worker itself does.
        return new AbstractConfig(new ConfigDef(), values, false).originalsStrings();
    }

    private static boolean isLogin(String key) {
        return LOGIN.stream().anyMatch(key::startsWith);
    }

    private static boolean isSet(String value) {
        return value != null && !value.isBlank();
    }
}
