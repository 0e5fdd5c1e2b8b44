package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Which settings a Kafka client gets. */
public class KafkaSettingsTest {
    private static final String WORKER = "org.apache.kafka.connect.cli.ConnectDistributed ";
    private static final String CANARY = "canary-51c2";

    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    private Path file(String name, String... lines) throws IOException {
        return Files.write(folder.getRoot().toPath().resolve(name), List.of(lines));
    }

    private Path workersFile() throws IOException {
        return file("connect.properties", "bootstrap.servers=worker:9092", "group.id=workers",
                "security.protocol=SASL_SSL", "sasl.jaas.config=" + CANARY, "ssl.truststore.location=/t",
                "producer.acks=1", "plugin.path=/p", "key.converter=x");
    }

    // Promise: only brokers, security, SASL and TLS settings are taken from the worker's own file
    @Test
    public void onlyWhatConnectsIsTakenFromTheWorkersFile() throws Exception {
        KafkaSettings settings = KafkaSettings.of(Map.of(), WORKER + workersFile());
        assertNull(settings.missing());
        assertEquals(Map.of("bootstrap.servers", "worker:9092", "security.protocol", "SASL_SSL", "sasl.jaas.config",
                CANARY, "ssl.truststore.location", "/t"), settings.values());
    }

    @Test
    public void anyWorkerAndAnyPathIsUnderstood() throws Exception {
        Path spaced = file("a worker.properties", "bootstrap.servers=spaced:1");
        Path plain = file("plain.properties", "bootstrap.servers=plain:1");
        for (String[] known : new String[][] {
            {WORKER + spaced, "spaced:1"},
            {WORKER + plain, "plain:1"},
            {"org.apache.kafka.connect.cli.ConnectStandalone " + plain + " /etc/sink.properties", "plain:1"},
        }) {
            assertEquals(known[0], known[1], KafkaSettings.of(Map.of(), known[0]).values().get("bootstrap.servers"));
        }
        for (String unknown : List.of("", "org.example.Embedded " + plain, WORKER, WORKER + "/no/such.file",
                WORKER + file("none.properties", "group.id=x"))) {
            KafkaSettings settings = KafkaSettings.of(Map.of(), unknown);
            assertEquals(Map.of(), settings.values());
            assertTrue(unknown, settings.missing().startsWith("`iceberg.kafka.bootstrap.servers` is not set, and "));
        }
    }

    // Promise: a connector that names brokers or a login of its own gets no secret of the worker
    @Test
    public void theWorkersSecretsNeverMeetTheConnectorsOwnSettings() throws Exception {
        String command = WORKER + workersFile();
        Map<String, String> brokers = Map.of("iceberg.kafka.bootstrap.servers", "own:1", "name", "x");
        assertEquals(Map.of("bootstrap.servers", "own:1"), KafkaSettings.of(brokers, command).values());
        for (String own : List.of("security.protocol", "sasl.oauthbearer.token.endpoint.url", "ssl.protocol")) {
            KafkaSettings settings = KafkaSettings.of(Map.of("iceberg.kafka." + own, "mine"), command);
            assertEquals(Map.of("bootstrap.servers", "worker:9092", own, "mine"), settings.values());
        }
        KafkaSettings harmless = KafkaSettings.of(Map.of("iceberg.kafka.client.id", "mine"), command);
        assertEquals("mine", harmless.values().get("client.id"));
        assertEquals(CANARY, harmless.values().get("sasl.jaas.config"));
    }

    @Test
    public void theWorkersFileCanBeForbidden() throws Exception {
        KafkaSettings settings = KafkaSettings.of(Map.of(KafkaSettings.FROM_WORKER_KEY, " False "), WORKER + workersFile());
        assertEquals(Map.of(), settings.values());
        assertTrue(settings.missing(), settings.missing().contains("`frazil.kafka.from-worker=false`"));
    }

    @Test
    public void referencesAreReplacedAsTheWorkerDoesIt() throws Exception {
        Path secrets = file("secrets.properties", "login=" + CANARY);
        String provider = "org.apache.kafka.common.config.provider.FileConfigProvider";
        String[] lines = {"bootstrap.servers=worker:1", "config.providers=file", "config.providers.file.class=" + provider,
            "sasl.jaas.config=${file:" + secrets + ":login}"};
        Map<String, String> values = KafkaSettings.of(Map.of(), WORKER + file("with.properties", lines)).values();
        assertEquals(Map.of("bootstrap.servers", "worker:1", "sasl.jaas.config", CANARY), values);
        lines[2] = "config.providers.file.class=org.example.Gone";
        KafkaSettings broken = KafkaSettings.of(Map.of(), WORKER + file("broken.properties", lines));
        assertTrue(broken.missing(), broken.missing().contains("cannot be read"));
        assertFalse(broken.missing(), broken.missing().contains(CANARY));
    }
}
