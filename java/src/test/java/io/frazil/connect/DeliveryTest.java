package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.Before;
import org.junit.Test;

/** What a task does with a session's answers, by a session that answers from a script. */
public class DeliveryTest {
    private static final TopicPartition P0 = new TopicPartition("orders", 0);
    private static final TopicPartition P1 = new TopicPartition("orders", 1);

    private final FakeContext context = new FakeContext();
    private final ScriptedSession session = new ScriptedSession();
    private Delivery delivery;

    @Before
    public void assign() {
        context.assigned.addAll(Set.of(P0, P1));
        start();
        delivery.open(List.of(P0, P1));
        session.calls.clear();
    }

    @Test
    public void everyPutIsATickAndThenItsBatch() {
        delivery.put(records(P0, 0, 3));
        assertEquals(List.of("control 5", "registerSchema", "put"), session.calls);
        session.calls.clear();
        delivery.put(List.of());
        assertEquals(List.of("control 5"), session.calls);
        assertEquals(Delivery.TICK_MS, context.timeoutMs);
    }

    @Test
    public void whatIsDurableIsCommittedAndNeverMoreThanAsked() {
        delivery.put(records(P0, 10, 20));
        session.answers.add(new Answers().durable(P0, 15).durable(P1, 99).requestCommit().encode());
        delivery.put(List.of());
        assertEquals(1, context.commitsRequested);
        assertEquals(Map.of(P0, 15L, P1, 7L), preCommit(Map.of(P0, 20L, P1, 7L)));
    }

    @Test
    public void beforeAnythingIsDurableTheFirstOffsetSeenIsAnswered() {
        delivery.put(records(P0, 10, 20));
        assertEquals(Map.of(P0, 10L, P1, 5L), preCommit(Map.of(P0, 20L, P1, 5L)));
    }

    @Test
    public void preCommitNeverThrowsAndTheNextPutDoes() {
        delivery.put(records(P0, 10, 20));
        session.failure = new ConnectException("broken");
        assertEquals(Map.of(P0, 10L), preCommit(Map.of(P0, 20L)));
        session.failure = null;
        session.calls.clear();
        ConnectException error = assertThrows(ConnectException.class, () -> delivery.put(List.of()));
        assertEquals("broken", error.getMessage());
        assertEquals(Map.of(P0, 10L), preCommit(Map.of(P0, 20L)));
        assertEquals("nothing is asked of a session after a failure", List.of(), session.calls);
    }

    @Test
    public void anErrorThatComesWithPreCommitIsThrownByTheNextPut() {
        session.answers.add(new Answers().durable(P0, 4).error(3, "fenced").encode());
        assertEquals(Map.of(P0, 4L), preCommit(Map.of(P0, 9L)));
        ConnectException error = assertThrows(ConnectException.class, () -> delivery.put(List.of()));
        assertTrue(error.getMessage(), error.getMessage().contains("fenced"));
    }

    @Test
    public void aRetriableErrorSetsTheBackOffAndTheTaskGoesOn() {
        session.failure = new RetriableException("503");
        assertThrows(RetriableException.class, () -> delivery.put(records(P0, 0, 2)));
        long first = context.timeoutMs;
        assertThrows(RetriableException.class, () -> delivery.put(records(P0, 0, 2)));
        assertTrue(first > 0 && context.timeoutMs > first);
        session.failure = null;
        delivery.put(records(P0, 0, 2));
        assertEquals(Delivery.TICK_MS, context.timeoutMs);
    }

    @Test
    public void aRewindIsAppliedToWhatIsAssignedAndFreezesTheAnswer() {
        context.assigned.remove(P1);
        session.answers.add(new Answers().durable(P0, 3).rewind(P0, 3).rewind(P1, 8).encode());
        delivery.put(records(P0, 5, 6));
        assertEquals(Map.of(P0, 3L), context.offsets);
        session.calls.clear();
        assertEquals(Map.of(P0, 3L), preCommit(Map.of(P0, 6L)));
        assertEquals("no native call while a rewind is pending", List.of(), session.calls);
        delivery.put(records(P0, 3, 4));
        preCommit(Map.of(P0, 6L));
        assertEquals("control 4", session.calls.get(session.calls.size() - 1));
    }

    @Test
    public void afterARewindTheRestOfTheBatchIsReadAgainToo() {
        session.putAnswers.add(new Answers().rewind(P0, 0).encode());
        List<SinkRecord> batch = new ArrayList<>(records(P0, 0, 300));
        batch.addAll(records(P1, 40, 44));
        delivery.put(batch);
        assertEquals(List.of("put"), session.puts());
        assertEquals(Map.of(P0, 0L, P1, 40L), context.offsets);
    }

    @Test
    public void aRewindThatComesWithPreCommitWaitsForThePut() {
        session.answers.add(new Answers().rewind(P0, 2).encode());
        preCommit(Map.of(P0, 9L));
        assertEquals(Map.of(), context.offsets);
        session.calls.clear();
        delivery.put(records(P0, 9, 11));
        assertEquals("records ahead of the rewind are not delivered", List.of(), session.puts());
        assertEquals(Map.of(P0, 2L), context.offsets);
    }

    @Test
    public void aRewindThatComesWithTheTickPutsTheWholeBatchOff() {
        session.answers.add(new Answers().rewind(P0, 2).encode());
        List<SinkRecord> batch = new ArrayList<>(records(P1, 7, 9));
        batch.addAll(records(P0, 9, 11));
        delivery.put(batch);
        assertEquals(List.of(), session.puts());
        assertEquals(Map.of(P0, 2L, P1, 7L), context.offsets);
    }

    @Test
    public void aRejectedRecordIsReportedAndAwaited() {
        session.putAnswers.add(new Answers().reject(1, P0, 6, "column `v`: too \"large\"").encode());
        delivery.put(records(P0, 5, 7));
        assertEquals(1, context.reported.size());
        assertEquals(6, context.reported.get(0).kafkaOffset());
        assertTrue(context.reasons.get(0) instanceof RejectedRecordException);
        assertEquals(
                "{\"code\":\"CODE\",\"table\":\"db.t\",\"column\":null,\"topic\":\"orders\",\"partition\":0,"
                        + "\"offset\":6,\"reason\":\"record orders-0-6: column `v`: too \\\"large\\\" [CODE]\"}",
                context.reasons.get(0).getMessage());
    }

    @Test
    public void withoutAReporterARejectedRecordStopsTheTaskAndItsOffsetStays() {
        context.acknowledgement = null;
        start();
        session.putAnswers.add(new Answers().reject(1, P0, 6, "column `v`: too large").encode());
        DataException error = assertThrows(DataException.class, () -> delivery.put(records(P0, 5, 7)));
        assertTrue(error.getMessage(), error.getMessage().contains("orders-0-6"));
        assertTrue(error.getMessage(), error.getMessage().contains("errors.deadletterqueue.topic.name"));
        session.calls.clear();
        assertEquals(Map.of(P0, 5L), preCommit(Map.of(P0, 7L)));
        delivery.close(List.of(P0, P1));
        assertEquals("nothing may be sealed over the record", List.of(), session.calls);
        delivery.stop();
        assertEquals(List.of("control 6", "close"), session.calls);
    }

    @Test
    public void aRecordIsDroppedOnlyWhenBothKeysAllowIt() {
        context.acknowledgement = null;
        start(Map.of("frazil.errors.drop", "true", "errors.tolerance", "all"));
        session.putAnswers.add(new Answers().reject(0, P0, 5, "bad").encode());
        delivery.put(records(P0, 5, 6));
        start(Map.of("frazil.errors.drop", "true"));
        session.putAnswers.add(new Answers().reject(0, P0, 5, "bad").encode());
        assertThrows(DataException.class, () -> delivery.put(records(P0, 5, 6)));
    }

    @Test
    public void whatWasDurableBeforeAPartitionWentAwayIsForgotten() {
        session.answers.add(new Answers().durable(P0, 50).encode());
        delivery.put(List.of());
        context.assigned.remove(P0);
        delivery.close(List.of(P0));
        session.answers.add(new Answers().durable(P0, 60).encode());
        delivery.put(List.of());
        context.assigned.add(P0);
        delivery.open(List.of(P0));
        assertEquals(Map.of(P0, 100L), preCommit(Map.of(P0, 100L)));
    }

    @Test
    public void noNativeCallIsMadeWhileAReportIsUnacknowledged() {
        CompletableFuture<Void> acknowledgement = new CompletableFuture<>();
        context.acknowledgement = acknowledgement;
        start();
        session.putAnswers.add(new Answers().durable(P0, 5).reject(0, P0, 5, "bad").encode());
        assertThrows(RetriableException.class, () -> delivery.put(records(P0, 5, 7)));
        session.calls.clear();
        assertEquals(Map.of(P0, 5L), preCommit(Map.of(P0, 7L)));
        assertThrows(RetriableException.class, () -> delivery.put(records(P0, 5, 7)));
        assertEquals(List.of(), session.calls);
        acknowledgement.complete(null);
        delivery.put(records(P0, 5, 7));
        assertEquals(List.of("put"), session.puts());
        assertEquals("the record is reported once", 1, context.reported.size());
    }

    @Test
    public void allWaitsForDeadLettersOfAPutAreBoundedTogether() {
        context.acknowledgement = new CompletableFuture<>();
        delivery = new Delivery(context, session, ErrantRecords.of(context, Map.of(), 600));
        session.putAnswers.add(new Answers().reject(0, P0, 5, "bad").encode());
        // The native side takes half of the time: what is left is the other half.
        session.putMillis = 300;
        long began = System.nanoTime();
        assertThrows(RetriableException.class, () -> delivery.put(records(P0, 5, 6)));
        long tookMillis = (System.nanoTime() - began) / 1_000_000;
        assertTrue("took " + tookMillis, tookMillis >= 550 && tookMillis < 850);
        long again = System.nanoTime();
        assertThrows(RetriableException.class, () -> delivery.put(records(P0, 5, 6)));
        long secondMillis = (System.nanoTime() - again) / 1_000_000;
        assertTrue("took " + secondMillis, secondMillis >= 250 && secondMillis < 550);
    }

    @Test
    public void aDeadLetterQueueThatRefusesARecordStopsTheTask() {
        CompletableFuture<Void> refused = new CompletableFuture<>();
        refused.completeExceptionally(new IllegalStateException("no such topic"));
        context.acknowledgement = refused;
        start();
        session.putAnswers.add(new Answers().reject(0, P0, 5, "bad").encode());
        ConnectException error = assertThrows(ConnectException.class, () -> delivery.put(records(P0, 5, 6)));
        assertFalse(error instanceof RetriableException);
        assertTrue(error.getMessage(), error.getMessage().contains("[DLQ_FAILED]"));
    }

    @Test
    public void aRecordThatCannotBeEncodedIsReportedLikeARejectedOne() {
        SinkRecord odd = new SinkRecord("orders", 0, null, null, null, new Thread("odd"), 5);
        delivery.put(List.of(odd, records(P0, 6, 7).get(0)));
        assertEquals(List.of(odd), context.reported);
        assertFalse("its offset and the good record go on", session.puts().isEmpty());
    }

    @Test
    public void theOffsetOfARecordThatCannotBeEncodedWaitsForItsReport() {
        context.acknowledgement = new CompletableFuture<>();
        start();
        SinkRecord odd = new SinkRecord("orders", 0, null, null, null, new Thread("odd"), 5);
        assertThrows(RetriableException.class, () -> delivery.put(List.of(odd)));
        assertEquals(List.of(), session.puts());
        assertEquals(Map.of(P0, 5L), preCommit(Map.of(P0, 6L)));
    }

    @Test
    public void aPauseLastsUntilTheResumeAndCoversNewPartitions() {
        TopicPartition added = new TopicPartition("orders", 2);
        session.answers.add(new Answers().pause().encode());
        delivery.put(records(P0, 0, 1));
        assertEquals(Set.of(P0, P1), context.paused);
        context.assigned.add(added);
        delivery.open(List.of(added));
        assertEquals(Set.of(P0, P1, added), context.paused);
        session.answers.add(new Answers().resume().encode());
        delivery.put(List.of());
        assertEquals(Set.of(), context.paused);
    }

    // Promise: A pause that ends while a task has no partitions does not last on those that come back to it
    @Test
    public void aPauseThatEndsBetweenAssignmentsEndsForPartitionsThatComeBack() {
        session.answers.add(new Answers().pause().encode());
        delivery.put(records(P0, 0, 1));
        preCommit(Map.of(P0, 0L, P1, 0L));
        delivery.close(List.of(P0, P1));
        context.assigned.clear();
        session.answers.add(new Answers().resume().encode());
        delivery.put(List.of());
        assertEquals("as Connect remembers them", Set.of(P0, P1), context.paused);
        context.assigned.add(P0);
        delivery.open(List.of(P0));
        assertEquals(Set.of(P1), context.paused);
    }

    @Test
    public void partitionsAreRevokedAfterAPreCommitAndLostWithoutOne() {
        preCommit(Map.of(P0, 0L));
        delivery.close(List.of(P0));
        delivery.put(List.of());
        delivery.close(List.of(P1));
        assertEquals(List.of("control 4", "control 2", "control 5", "control 3"), session.calls);
    }

    @Test
    public void anUnexpectedExceptionIsAConnectExceptionWithoutItsText() {
        session.failure = new IllegalStateException("a value of a record");
        ConnectException error = assertThrows(ConnectException.class, () -> delivery.put(List.of()));
        assertTrue(error.getMessage(), error.getMessage().contains("IllegalStateException"));
        assertFalse(error.getMessage(), error.getMessage().contains("a value"));
    }

    @Test
    public void stoppingClosesTheSessionOnce() {
        delivery.stop();
        assertEquals(List.of("close"), session.calls);
    }

    private void start() {
        start(Map.of());
    }

    private void start(Map<String, String> config) {
        delivery = new Delivery(context, session, ErrantRecords.of(context, config, 50));
    }

    private Map<TopicPartition, Long> preCommit(Map<TopicPartition, Long> asked) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        asked.forEach((partition, offset) -> offsets.put(partition, new OffsetAndMetadata(offset)));
        Map<TopicPartition, Long> answer = new HashMap<>();
        delivery.preCommit(offsets).forEach((partition, offset) -> answer.put(partition, offset.offset()));
        return answer;
    }

    private static List<SinkRecord> records(TopicPartition partition, long from, long to) {
        List<SinkRecord> records = new ArrayList<>();
        for (long offset = from; offset < to; offset++) {
            records.add(new SinkRecord(
                    partition.topic(), partition.partition(), null, null, Schema.STRING_SCHEMA, "v", offset));
        }
        return records;
    }

    /** Answers from a queue, then with nothing to do; notes what was called. */
    private static final class ScriptedSession implements Session {
        /** Answers to control requests. */
        final Deque<byte[]> answers = new ArrayDeque<>();
        final Deque<byte[]> putAnswers = new ArrayDeque<>();
        /** How long a frame takes. */
        long putMillis;
        final List<String> calls = new ArrayList<>();
        RuntimeException failure;

        @Override
        public int registerSchema(byte[] schema) {
            calls.add("registerSchema");
            return 1;
        }

        @Override
        public byte[] put(ByteBuffer frame, int length) {
            LockSupport.parkNanos(putMillis * 1_000_000);
            return answer("put");
        }

        @Override
        public byte[] control(byte[] request) {
            return answer("control " + request[1]);
        }

        @Override
        public void close() {
            calls.add("close");
        }

        List<String> puts() {
            List<String> puts = new ArrayList<>(calls);
            puts.removeIf(call -> !call.equals("put"));
            return puts;
        }

        private byte[] answer(String call) {
            calls.add(call);
            if (failure != null) {
                throw failure;
            }
            byte[] next = call.equals("put") ? putAnswers.poll() : answers.poll();
            return next == null ? Answers.none() : next;
        }
    }
}
