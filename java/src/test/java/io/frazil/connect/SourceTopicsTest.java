package io.frazil.connect;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Where it comes from what topics are, and what is done without it. */
public class SourceTopicsTest {
    private static final List<TopicPartition> ASKED = List.of(new TopicPartition("orders", 0));

    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    private final Map<String, String> config = new HashMap<>(Map.of("name", "orders-sink"));

    @Test
    public void withoutBrokersNobodyIsAsked() {
        try (SourceTopics topics = new SourceTopics(config, Map.of(), settings -> {
            throw new AssertionError("a client was opened");
        })) {
            assertEquals(Map.of(), topics.of(ASKED));
        }
    }

    @Test
    public void aClusterThatDoesNotAnswerStopsNothing() {
        int[] opened = {0};
        Map<String, String> settings = Map.of("bootstrap.servers", "broker:9092");
        try (SourceTopics topics = new SourceTopics(config, settings, values -> {
            opened[0]++;
            assertEquals("broker:9092", values.get("bootstrap.servers"));
            assertEquals("5000", values.get("default.api.timeout.ms"));
            throw new KafkaException("no brokers");
        })) {
            assertEquals(Map.of(), topics.of(ASKED));
            assertEquals(Map.of(), topics.of(List.of()));
            assertEquals(Map.of(), topics.of(ASKED));
        }
        assertEquals(2, opened[0]);
    }

    @Test
    public void anIdIsSentAsItsSixteenBytesWithTheNumberOfPartitions() {
        SourceTopic topic = new SourceTopic(new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L), 0x0203);
        byte[] request = Requests.topics(Map.of("t", topic));
        byte[] expected = {
            1, 10, 1, 0, 0, 0, 1, 0, 0, 0, 't', 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 3, 2, 0, 0
        };
        assertArrayEquals(expected, request);
    }

    @Test
    public void theNativeSideTakesIdsBeforePartitions() {
        Map<String, String> local = Configs.localTask(folder.getRoot().toPath());
        try (NativeSink sink = NativeSink.open(local)) {
            byte[] answer = sink.control(Requests.topics(Map.of("orders", new SourceTopic(Uuid.randomUuid(), 3))));
            assertEquals(Map.of(), Effects.decode(answer).rewinds());
        }
    }
}
