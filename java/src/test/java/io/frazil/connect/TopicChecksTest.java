package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.KafkaException;
import org.junit.Test;

/** What validation says about topics. */
public class TopicChecksTest {
    private static final Set<String> THERE = Set.of("orders", "orders-eu", "flights");

    private static Problem only(List<Problem> problems) {
        assertEquals(1, problems.size());
        return problems.get(0);
    }

    @Test
    public void topicsThatAreThereAreFine() {
        assertEquals(List.of(), TopicChecks.compare(Map.of("topics", "orders, flights"), THERE));
        assertEquals(List.of(), TopicChecks.compare(Map.of("topics.regex", "orders-.*"), THERE));
        assertEquals(List.of(), TopicChecks.compare(Map.of(), THERE));
    }

    // Promise: a topic that is not there, and a pattern that matches none, are warned of at `validate`
    @Test
    public void whatIsNotThereIsAWarning() {
        Problem topic = only(TopicChecks.compare(Map.of("topics", "orders,oders"), THERE));
        assertEquals("topics", topic.key());
        assertFalse(topic.isError());
        assertTrue(topic.message(), topic.message().contains("`oders`"));
        Problem regex = only(TopicChecks.compare(Map.of("topics.regex", "orders[0-9]"), THERE));
        assertEquals("topics.regex", regex.key());
        assertFalse(regex.isError());
    }

    @Test
    public void onlyTopicsThatAreReadAreAskedAbout() {
        assertEquals(Set.of("orders"), TopicChecks.read(Map.of("topics", "orders, oders"), THERE));
        assertEquals(Set.of("orders", "orders-eu"), TopicChecks.read(Map.of("topics.regex", "orders.*"), THERE));
        assertEquals(Set.of(), TopicChecks.read(Map.of(), THERE));
    }

    @Test
    public void onlyTablesWithChangesNeedTheNumbersOfPartitions() {
        assertTrue(FrazilSinkConnector.changesRows(Map.of("iceberg.table.db.t.mode", "CDC")));
        assertTrue(FrazilSinkConnector.changesRows(Map.of("iceberg.tables.default-mode", "upsert")));
        assertTrue(FrazilSinkConnector.changesRows(Map.of("iceberg.tables.upsert-mode-enabled", "true")));
        assertTrue(FrazilSinkConnector.changesRows(Map.of("iceberg.tables.cdc-field", "op")));
        assertFalse(FrazilSinkConnector.changesRows(Map.of("iceberg.tables.default-mode", "append-once")));
        assertFalse(FrazilSinkConnector.changesRows(Map.of("iceberg.tables.default-truncate", "cdc")));
    }

    @Test
    public void whatCanNeverBeIsAnError() {
        Problem topic = only(TopicChecks.compare(Map.of("topics", "a b"), THERE));
        assertTrue(topic.isError());
        Problem regex = only(TopicChecks.compare(Map.of("topics.regex", "(orders"), THERE));
        assertEquals("topics.regex", regex.key());
        assertTrue(regex.isError());
        Problem dead = only(TopicChecks.compare(Map.of("errors.deadletterqueue.topic.name", "a/b"), THERE));
        assertEquals("errors.deadletterqueue.topic.name", dead.key());
        assertTrue(dead.isError());
    }

    @Test
    public void brokersThatDoNotAnswerAreAnErrorWhereCoordinationNeedsThem() {
        Map<String, String> config = Map.of("topics", "orders", "iceberg.kafka.bootstrap.servers", "nowhere:1");
        for (String coordination : List.of("topic", "local")) {
            Problem problem = only(TopicChecks.of(config, Map.of("bootstrap.servers", "nowhere:1"), coordination,
                    values -> {
                        assertEquals("5000", values.get("default.api.timeout.ms"));
                        throw new KafkaException("password=canary");
                    }));
            assertEquals("iceberg.kafka.bootstrap.servers", problem.key());
            assertEquals(coordination.equals("topic"), problem.isError());
            assertFalse(problem.message(), problem.message().contains("canary"));
        }
    }
}
