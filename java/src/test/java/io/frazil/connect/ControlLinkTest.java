package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.junit.Test;

/** What a connection does with the control topic, by clients without a broker. */
public class ControlLinkTest {
    private static final String WID = "fc849f98828ebff4";
    private static final TopicPartition P0 = new TopicPartition("control", 0);
    private static final TopicPartition P1 = new TopicPartition("control", 1);
    private static final Uuid FIRST = new Uuid(1, 1);
    private static final Uuid SECOND = new Uuid(2, 2);

    private final MockConsumer<byte[], byte[]> group = new MockConsumer<>(OffsetResetStrategy.LATEST);
    private final MockConsumer<byte[], byte[]> reader = new MockConsumer<>(OffsetResetStrategy.EARLIEST);
    private final MockProducer<byte[], byte[]> producer =
            new MockProducer<>(false, new ByteArraySerializer(), new ByteArraySerializer());
    private final ScriptedTopics topics = new ScriptedTopics();
    private final ControlLink link =
            new ControlLink("control", WID, group, reader, producer, topics, new RecordAges());

    private void holds(int offset, String key, String value) {
        reader.updateBeginningOffsets(Map.of(P0, 0L));
        reader.updateEndOffsets(Map.of(P0, offset + 1L));
        reader.schedulePollTask(() -> reader.addRecord(new ConsumerRecord<>("control", 0, offset,
                key == null ? null : bytes(key), value == null ? null : bytes(value))));
    }

    private static String message(String wid) {
        return "{\"v\":1,\"wid\":\"" + wid + "\",\"type\":\"HELLO\"}";
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private void empty() {
        reader.updateBeginningOffsets(Map.of(P0, 0L));
        reader.updateEndOffsets(Map.of(P0, 0L));
    }

    @Test
    public void aMissingTopicIsMadeAndAwaited() {
        empty();
        topics.answers.add(new UnknownTopicOrPartitionException());
        topics.answers.add(new UnknownTopicOrPartitionException());
        topics.answers.add(FIRST);
        assertEquals(FIRST, link.connect(null));
        assertEquals(1, topics.created);
    }

    // Promise: a control topic that begins with records that are not Frazil's is refused by name
    @Test
    public void aTopicOfSomebodyElseIsRefused() {
        for (String[] foreign : new String[][] {
            {null, "Obj\u0001avro"}, {WID, "{}"}, {WID, null}, {"cg-control", message("cg-control")},
            {WID, message("0000000000000000")}, {WID, "x" + message(WID)},
        }) {
            MockConsumer<byte[], byte[]> other = new MockConsumer<>(OffsetResetStrategy.EARLIEST);
            other.updateBeginningOffsets(Map.of(P0, 0L));
            other.updateEndOffsets(Map.of(P0, 1L));
            other.schedulePollTask(() -> other.addRecord(new ConsumerRecord<>("control", 0, 0,
                    foreign[0] == null ? null : bytes(foreign[0]), foreign[1] == null ? null : bytes(foreign[1]))));
            ControlLink refused = new ControlLink("control", WID, group, other, producer, topics, new RecordAges());
            topics.answers.add(FIRST);
            KafkaException error = assertThrows(ControlLink.ForeignTopicException.class, () -> refused.connect(null));
            assertTrue(error.getMessage(), error.getMessage().contains("`control`"));
            assertTrue(error.getMessage(), error.getMessage().contains("`frazil.control.topic`"));
            assertFalse("no record is shown", error.getMessage().contains("avro"));
        }
        assertEquals("and nobody joined or wrote", List.of(), producer.history());
        assertTrue(group.subscription().isEmpty());
    }

    @Test
    public void garbageAmongOurRecordsRefusesNothing() {
        holds(0, null, "garbage");
        holds(1, "0123456789abcdef", message("0123456789abcdef"));
        topics.answers.add(FIRST);
        link.connect(null);
        assertTrue(group.subscription().contains("control"));
    }

    @Test
    public void readingBeginsAtTheEndAndAfterANewTopicAtItsBeginning() {
        holds(6, WID, message(WID));
        topics.answers.add(FIRST);
        link.connect(null);
        assertEquals(7, reader.position(P0));
        topics.answers.add(FIRST);
        assertEquals(FIRST, link.connect(FIRST));
        assertEquals("the same topic goes on at its end", 7, reader.position(P0));
        topics.answers.add(SECOND);
        assertEquals(SECOND, link.connect(FIRST));
        assertEquals("nothing in a new topic is history", 0, reader.position(P0));
    }

    @Test
    public void theOwnerOfPartitionZeroLeads() {
        empty();
        topics.answers.add(FIRST);
        link.connect(null);
        link.poll(0);
        assertFalse(link.leads());
        group.updateBeginningOffsets(Map.of(P0, 0L, P1, 0L));
        group.updateEndOffsets(Map.of(P0, 0L, P1, 0L));
        group.schedulePollTask(() -> group.rebalance(List.of(P1)));
        link.poll(0);
        assertFalse("another partition means nothing", link.leads());
        group.schedulePollTask(() -> group.rebalance(List.of(P0, P1)));
        link.poll(0);
        assertTrue(link.leads());
        assertEquals("the election fetches nothing", group.assignment(), group.paused());
        group.schedulePollTask(() -> group.rebalance(List.of(P1)));
        link.poll(0);
        assertFalse(link.leads());
    }

    @Test
    public void messagesGoToPartitionZeroWithTheWriterAsKey() {
        empty();
        topics.answers.add(FIRST);
        link.connect(null);
        link.send(bytes("m"));
        ProducerRecord<byte[], byte[]> sent = producer.history().get(0);
        assertEquals("control", sent.topic());
        assertEquals(Integer.valueOf(0), sent.partition());
        assertEquals(WID, new String(sent.key(), StandardCharsets.UTF_8));
        assertEquals("m", new String(sent.value(), StandardCharsets.UTF_8));
        producer.completeNext();
        link.poll(0);
        link.send(bytes("n"));
        producer.errorNext(new TimeoutException("lost"));
        assertThrows("a message that was lost ends the connection", TimeoutException.class, () -> link.poll(0));
        assertThrows(TimeoutException.class, () -> link.send(bytes("o")));
    }

    @Test
    public void whatIsReadArrivesInOrder() {
        empty();
        topics.answers.add(FIRST);
        link.connect(null);
        reader.addRecord(new ConsumerRecord<>("control", 0, 0, null, bytes("a")));
        reader.addRecord(new ConsumerRecord<>("control", 0, 1, null, null));
        List<Requests.Received> read = link.poll(0);
        assertEquals(2, read.size());
        assertEquals(21, read.get(0).size());
        assertEquals(20, read.get(1).size());
    }

    @Test
    public void whatTheBrokersRefuseComesOutAsItIs() {
        topics.answers.add(new UnknownTopicOrPartitionException());
        topics.refusal = new TopicAuthorizationException("control");
        assertThrows(TopicAuthorizationException.class, () -> link.connect(null));
        link.close();
        assertTrue(producer.closed() && group.closed() && reader.closed() && topics.closed);
    }

    /** Answers with ids and errors in turn. */
    private static final class ScriptedTopics implements ControlLink.Topics {
        final List<Object> answers = new ArrayList<>();
        RuntimeException refusal;
        int created;
        boolean closed;

        @Override
        public Future<Uuid> id() {
            Object answer = answers.remove(0);
            CompletableFuture<Uuid> future = new CompletableFuture<>();
            if (answer instanceof Uuid) {
                future.complete((Uuid) answer);
            } else {
                future.completeExceptionally((RuntimeException) answer);
            }
            return future;
        }

        @Override
        public void create() {
            if (refusal != null) {
                throw refusal;
            }
            created++;
        }

        @Override
        public void close() {
            closed = true;
        }
    }
}
