package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.connect.errors.ConnectException;
import org.junit.After;
import org.junit.Test;

/** The thread between the control topic and the native side, by clients and a session that are scripted. */
public class ControlChannelTest {
    private static final TopicPartition P0 = new TopicPartition("control", 0);

    private final ScriptedSession session = new ScriptedSession();
    private final List<Link> links = new CopyOnWriteArrayList<>();
    private final Deque<KafkaException> refusals = new ArrayDeque<>();
    private final AtomicInteger opened = new AtomicInteger();
    private final ControlChannel channel = new ControlChannel("orders", "control", session, this::open);

    private ControlLink open() {
        opened.incrementAndGet();
        synchronized (refusals) {
            if (!refusals.isEmpty()) {
                throw refusals.remove();
            }
        }
        Link link = new Link();
        links.add(link);
        return link.link;
    }

    private static void await(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!condition.getAsBoolean()) {
            assertTrue("waited in vain for " + what, System.nanoTime() < deadline);
            Thread.sleep(5);
        }
    }

    @After
    public void end() {
        channel.stop();
    }

    @Test
    public void recordsGoInAndMessagesGoOut() throws Exception {
        session.answers.add(new Answers().message("one").message("two").encode());
        channel.start();
        await("messages", () -> links.size() == 1 && links.get(0).producer.history().size() == 2);
        assertEquals("one", text(links.get(0).producer.history().get(0).value()));
        links.get(0).receive(0, "a record");
        await("a record", () -> session.records.contains("0:a record"));
        assertFalse(session.led);
        links.get(0).lead();
        await("leadership", () -> session.led);
        assertNull(channel.failure());
    }

    @Test
    public void aLongTopicIsCutIntoRequestsOfBoundedSize() throws Exception {
        channel.start();
        await("a connection", () -> session.calls.get() > 0);
        String large = "x".repeat(300 << 10);
        for (int offset = 0; offset < 40; offset++) {
            links.get(0).receive(offset, large);
        }
        await("all records", () -> session.records.size() == 40);
        assertTrue("a request has " + session.longest + " bytes", session.longest <= (4 << 20) + 100);
    }

    // Promise: what the brokers do makes the control channel wait and try again, and nobody leads meanwhile
    @Test
    public void anOutageEndsAConnectionAndNothingElse() throws Exception {
        channel.start();
        await("a connection", () -> links.size() == 1);
        links.get(0).lead();
        await("leadership", () -> session.led);
        synchronized (refusals) {
            for (int refusal = 0; refusal < 4; refusal++) {
                refusals.add(new TimeoutException("no broker"));
            }
        }
        session.answers.add(new Answers().message("lost").encode());
        await("the message", () -> links.get(0).producer.history().size() == 1);
        links.get(0).producer.errorNext(new TimeoutException("not taken"));
        await("nobody to lead", () -> !session.led);
        assertEquals("and that while there is no connection", 1, links.size());
        await("a new connection", () -> links.size() == 2);
        assertEquals(6, opened.get());
        assertTrue(links.get(0).producer.closed());
        assertNull(channel.failure());
        links.get(1).lead();
        await("leadership again", () -> session.led);
    }

    @Test
    public void aTopicOfSomebodyElseFailsEveryTask() throws Exception {
        ControlChannel foreign = new ControlChannel("orders", "control", session, () -> {
            Link link = new Link();
            link.reader.updateEndOffsets(Map.of(P0, 1L));
            link.receive(0, "not ours");
            return link.link;
        });
        foreign.start();
        await("the failure", () -> foreign.failure() != null);
        assertTrue(foreign.failure().getMessage(), foreign.failure().getMessage().contains("[CONTROL_TOPIC_FOREIGN]"));
        foreign.stop();
        assertEquals("the session is closed", 1, session.closed.get());
    }

    @Test
    public void whatAPersonMustPutRightIsAFailureAtOnceWhenItNeverWorked() throws Exception {
        synchronized (refusals) {
            refusals.add(new TopicAuthorizationException("control"));
        }
        channel.start();
        await("the failure", () -> channel.failure() != null);
        String message = channel.failure().getMessage();
        assertTrue(message, message.contains("[CONTROL_TOPIC_UNUSABLE]"));
        assertTrue(message, message.contains("TopicAuthorizationException"));
        assertTrue(message, message.contains("`frazil.coordination=local`"));
        assertNull("a status shows no cause", channel.failure().getCause());
    }

    @Test
    public void aRefusalAfterItWorkedIsTriedAgain() throws Exception {
        channel.start();
        await("a connection", () -> session.calls.get() > 2);
        synchronized (refusals) {
            refusals.add(new TopicAuthorizationException("control"));
        }
        links.get(0).reader.setPollException(new TopicAuthorizationException("control"));
        await("a new connection", () -> links.size() == 2);
        assertNull(channel.failure());
    }

    @Test
    public void aClientThatCannotBeMadeShowsNoSetting() throws Exception {
        synchronized (refusals) {
            refusals.add(new KafkaException("Invalid value canary-77 for configuration x"));
        }
        channel.start();
        await("the failure", () -> channel.failure() != null);
        assertFalse(channel.failure().getMessage(), channel.failure().getMessage().contains("canary"));
    }

    @Test
    public void aFailureOfTheNativeSideIsTheChannels() throws Exception {
        session.answers.add(new Answers().error(0, "503").encode());
        session.answers.add(new Answers().error(3, "two owners").encode());
        channel.start();
        await("the failure", () -> channel.failure() != null);
        assertTrue(channel.failure().getMessage(), channel.failure().getMessage().contains("two owners"));
        await("the session's end", () -> session.closed.get() == 1);
    }

    @Test
    public void whatNobodyForesawIsAFailureToo() throws Exception {
        ControlChannel broken = new ControlChannel("orders", "control", session, () -> {
            throw new IllegalStateException("canary-78");
        });
        broken.start();
        await("the failure", () -> broken.failure() != null);
        assertTrue(broken.failure().getMessage(), broken.failure().getMessage().contains("[UNEXPECTED]"));
        assertFalse(broken.failure().getMessage().contains("canary"));
    }

    @Test
    public void theLastMessagesAreSentBeforeItEnds() throws Exception {
        channel.start();
        await("a connection", () -> session.calls.get() > 0);
        links.get(0).lead();
        await("leadership", () -> session.led);
        session.last = new Answers().message("bye").encode();
        long begun = System.nanoTime();
        channel.stop();
        assertTrue(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begun) < 1_400);
        assertEquals("bye", text(links.get(0).producer.history().get(0).value()));
        assertFalse(session.led);
        assertTrue(links.get(0).group.closed());
        assertEquals(1, session.closed.get());
    }

    private static String text(byte[] value) {
        return new String(value, StandardCharsets.UTF_8);
    }

    /** A connection whose topic is there and empty. */
    private static final class Link {
        final MockConsumer<byte[], byte[]> group = new MockConsumer<>(OffsetResetStrategy.LATEST);
        final MockConsumer<byte[], byte[]> reader = new MockConsumer<>(OffsetResetStrategy.EARLIEST);
        final MockProducer<byte[], byte[]> producer =
                new MockProducer<>(false, new ByteArraySerializer(), new ByteArraySerializer());
        final ControlLink link = new ControlLink("control", "fc849f98828ebff4", group, reader, producer,
                new ControlLink.Topics() {
                    @Override
                    public Future<Uuid> id() {
                        return CompletableFuture.completedFuture(new Uuid(1, 1));
                    }

                    @Override
                    public void create() {
                        throw new AssertionError("it is there");
                    }

                    @Override
                    public void close() {}
                }, new RecordAges());

        Link() {
            reader.updateBeginningOffsets(Map.of(P0, 0L));
            reader.updateEndOffsets(Map.of(P0, 0L));
            group.updateBeginningOffsets(Map.of(P0, 0L));
            group.updateEndOffsets(Map.of(P0, 0L));
        }

        void receive(int offset, String value) {
            reader.schedulePollTask(() -> reader.addRecord(new ConsumerRecord<>("control", 0, offset, null,
                    value.getBytes(StandardCharsets.UTF_8))));
        }

        void lead() {
            group.schedulePollTask(() -> group.rebalance(List.of(P0)));
        }
    }

    /** Answers from a script, then with nothing, and remembers what it was told. */
    private static final class ScriptedSession implements Session {
        final Deque<byte[]> answers = new java.util.concurrent.ConcurrentLinkedDeque<>();
        final List<String> records = new CopyOnWriteArrayList<>();
        final AtomicInteger calls = new AtomicInteger();
        final AtomicInteger closed = new AtomicInteger();
        volatile boolean led;
        volatile int longest;
        /** The answer to the request that ends the lead. */
        volatile byte[] last;

        @Override
        public int registerSchema(byte[] schema) {
            throw new AssertionError("a channel has no schemas");
        }

        @Override
        public byte[] put(ByteBuffer frame, int length) {
            throw new AssertionError("a channel has no records of a topic");
        }

        @Override
        public byte[] control(byte[] request) {
            ByteBuffer bytes = ByteBuffer.wrap(request).order(ByteOrder.LITTLE_ENDIAN);
            assertEquals(1, bytes.get());
            assertEquals("a channel takes nothing else", 7, bytes.get());
            boolean leads = bytes.get() == 1;
            boolean ends = led && !leads;
            led = leads;
            assertTrue(bytes.getLong() > 1_600_000_000_000L);
            longest = Math.max(longest, request.length);
            for (int left = bytes.getInt(); left > 0; left--) {
                long offset = bytes.getLong();
                assertTrue(bytes.getLong() >= 0);
                byte[] value = new byte[bytes.getInt()];
                bytes.get(value);
                records.add(offset + ":" + text(value));
            }
            calls.incrementAndGet();
            byte[] answer = ends && last != null ? last : answers.poll();
            return answer == null ? Answers.none() : answer;
        }

        @Override
        public void close() {
            assertNotNull(answers);
            closed.incrementAndGet();
        }
    }
}
