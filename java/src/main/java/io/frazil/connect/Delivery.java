package io.frazil.connect;

import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Carries one task's records to its session and the session's answers to Connect.
 *
 * <p>Invariants: no native call while a rejected record's report is unacknowledged; none but cancel
 * and close after a failure, so that nothing is sealed over a record that was neither written nor
 * set aside; {@code preCommit} never throws and answers every partition it was asked about with at
 * most what tables hold; a rewind freezes those answers until the next {@code put}. Everything that
 * touches the context runs on the task's thread. What may be committed is decided by the session.
 */
final class Delivery {
    /** Connect calls {@code put} at least this often, records or not: commits go on when a topic is idle. */
    static final long TICK_MS = 500;

    private static final long BACKOFF_MS_MAX = 10_000;
    /** Marks offsets that this connector committed, so that tools can tell who moved one. */
    private static final String OFFSET_TAG = "fz1;e=0";
    private static final Logger LOG = LoggerFactory.getLogger(Delivery.class);

    private final SinkTaskContext context;
    private final Session session;
    private final ErrantRecords errant;
    private final BatchEncoder encoder = new BatchEncoder();
    /** The next offsets that table commits cover. */
    private final Map<TopicPartition, Long> durable = new HashMap<>();
    /** The first offset seen of each partition since it was assigned: nothing before it is ours. */
    private final Map<TopicPartition, Long> firstSeen = new HashMap<>();
    /** Rewinds that wait for a {@code put}: only there are they applied. */
    private final Map<TopicPartition, Long> rewinds = new HashMap<>();
    /** An answer whose rejected records are reported but not acknowledged yet. */
    private Effects unapplied;
    private RuntimeException failure;
    private RuntimeException parked;
    private boolean rewinding;
    private boolean paused;
    private boolean committedLast;
    private int failedTries;

    Delivery(SinkTaskContext context, Session session, ErrantRecords errant) {
        this.context = context;
        this.session = session;
        this.errant = errant;
    }

    /** Tells the session which topics these names stand for now. */
    void identify(Map<String, SourceTopic> topics) {
        throwFailure();
        if (!topics.isEmpty()) {
            guarded(() -> apply(session.control(Requests.topics(topics))));
        }
    }

    /** Takes over partitions. */
    void open(Collection<TopicPartition> partitions) {
        committedLast = false;
        throwFailure();
        forget(partitions); // They may have been ours before, and another task's since.
        guarded(() -> {
            apply(session.control(Requests.assign(partitions)));
            // Connect remembers what was paused over a rebalance. A pause that ended while the task had
            // no partitions would last for ever on those that come back.
            TopicPartition[] opened = partitions.toArray(new TopicPartition[0]);
            if (paused) {
                context.pause(opened);
            } else {
                context.resume(opened);
            }
        });
        context.timeout(TICK_MS);
    }

    /** Lets the session know that time passed, and delivers a batch to it. */
    void put(Collection<SinkRecord> records) {
        committedLast = false;
        throwFailure();
        context.timeout(TICK_MS);
        guarded(() -> {
            errant.begin();
            errant.await();
            errant.goOn();
            finishUnapplied();
            rewinding = false;
            see(records);
            // A put begins: this is where segments are sealed.
            Effects begun = apply(session.control(Requests.tick()));
            encoder.parts(begun.keys(), begun.headers(), begun.topics());
            deliver(records);
            boolean rewound = applyRewinds();
            throwParked(rewound);
        });
        failedTries = 0;
    }

    /** Notes the first offset of each partition. Records of one come together, mostly. */
    private void see(Collection<SinkRecord> records) {
        String topic = null;
        Integer partition = null;
        for (SinkRecord record : records) {
            if (!Objects.equals(record.originalKafkaPartition(), partition)
                    || !Objects.equals(record.originalTopic(), topic)) {
                firstSeen.putIfAbsent(partitionOf(record), record.originalKafkaOffset());
                topic = record.originalTopic();
                partition = record.originalKafkaPartition();
            }
        }
    }

    /** Returns what may be committed for each partition asked about. Never throws. */
    Map<TopicPartition, OffsetAndMetadata> preCommit(Map<TopicPartition, OffsetAndMetadata> asked) {
        committedLast = true;
        if (!rewinding && isQuiet()) {
            try {
                Map<TopicPartition, Long> offsets = new HashMap<>();
                asked.forEach((partition, offset) -> offsets.put(partition, offset.offset()));
                apply(session.control(Requests.preCommit(offsets)));
            } catch (RetriableException e) {
                LOG.debug("The session cannot answer now; committing what is known to be durable", e);
            } catch (RuntimeException | LinkageError e) {
                fail(e); // The next `put` throws it.
            }
        }
        Map<TopicPartition, OffsetAndMetadata> answer = new HashMap<>();
        asked.forEach((partition, offset) -> answer.put(partition, clamp(partition, offset)));
        return answer;
    }

    /** Hands partitions back. Connect calls {@code preCommit} just before, unless they were lost. */
    void close(Collection<TopicPartition> partitions) {
        boolean lost = !committedLast;
        if (failure == null && !partitions.isEmpty()) {
            try {
                if (errant.pending()) {
                    lost = !acknowledged();
                }
                apply(session.control(lost ? Requests.lost(partitions) : Requests.revoke(partitions)));
            } catch (RetriableException e) {
                LOG.warn("Partitions {} were handed back before all their rows were committed;"
                        + " whoever takes them reads those again", partitions, e);
            } catch (RuntimeException | LinkageError e) {
                fail(e);
            }
        }
        forget(partitions);
    }

    /** Ends the session. After a failure its open rows are dropped, and read again by the next task. */
    void stop() {
        try {
            if (failure != null || errant.pending()) {
                session.control(Requests.cancel());
            }
        } catch (KafkaException | LinkageError e) {
            LOG.debug("A failed session could not be cancelled", e);
        }
        try {
            session.close();
        } catch (KafkaException | LinkageError e) {
            LOG.error("The session could not be closed in good order", e);
        }
        errant.summary().ifPresent(LOG::info);
    }

    private void forget(Collection<TopicPartition> partitions) {
        for (TopicPartition partition : partitions) {
            durable.remove(partition);
            firstSeen.remove(partition);
            rewinds.remove(partition);
        }
    }

    private void deliver(Collection<SinkRecord> records) {
        BatchEncoder.Registrar registrar = schema -> {
            errant.await();
            return session.registerSchema(schema);
        };
        encoder.encode(records, registrar, new BatchEncoder.Sink() {
            @Override
            public void block(ByteBuffer frame, int length, List<SinkRecord> rows) {
                if (!deferred(rows)) {
                    errant.await(); // The frame has the offsets of unencodable records too.
                    settle(Effects.decode(session.put(frame, length)), rows);
                }
            }

            @Override
            public void unencodable(SinkRecord record, Rejection reason) {
                if (!deferred(List.of(record))) {
                    errant.reject(record, reason);
                }
            }
        });
        errant.await();
    }

    /** After a rewind the rest of a batch is not delivered: its partitions are rewound to it too. */
    private boolean deferred(List<SinkRecord> rows) {
        if (rewinds.isEmpty()) {
            return false;
        }
        for (SinkRecord record : rows) {
            rewinds.putIfAbsent(partitionOf(record), record.originalKafkaOffset());
        }
        return true;
    }

    private void settle(Effects effects, List<SinkRecord> rows) {
        unapplied = effects;
        for (Effects.Rejected rejected : effects.rejected()) {
            if (rejected.row() < 0 || rejected.row() >= rows.size()) {
                throw new ConnectException("the native sink rejected a row that its frame does not have");
            }
            errant.reject(rows.get(rejected.row()), rejected.reason());
        }
        errant.await();
        finishUnapplied();
    }

    private void finishUnapplied() {
        Effects effects = unapplied;
        unapplied = null;
        if (effects != null) {
            applyAccepted(effects);
        }
    }

    private Effects apply(byte[] answer) {
        Effects effects = Effects.decode(answer);
        if (!effects.rejected().isEmpty()) {
            throw new ConnectException("the native sink rejected records without having been given any");
        }
        applyAccepted(effects);
        return effects;
    }

    private void applyAccepted(Effects effects) {
        for (Effects.LogLine line : effects.log()) {
            log(line);
        }
        if (effects.logDropped() > 0) {
            LOG.warn("{} log lines of the native sink were dropped", effects.logDropped());
        }
        if (!effects.durable().isEmpty()) {
            Set<TopicPartition> assigned = context.assignment();
            effects.durable().forEach((partition, offset) -> {
                if (assigned.contains(partition)) { // A late commit of a partition that left is not ours to answer.
                    durable.put(partition, offset);
                }
            });
        }
        if (!effects.rewinds().isEmpty()) {
            rewinds.putAll(effects.rewinds());
            rewinding = true;
        }
        pauseOrResume(effects);
        if (effects.requestCommit()) {
            context.requestCommit();
        }
        if (effects.timeoutMillis() >= 0) {
            context.timeout(Math.min(TICK_MS, effects.timeoutMillis()));
        }
        if (effects.error() != null) {
            parked = effects.error();
        }
    }

    private void pauseOrResume(Effects effects) {
        if (effects.pause() && !paused) {
            paused = true;
            context.pause(context.assignment().toArray(new TopicPartition[0]));
        } else if (effects.resume() && paused) {
            paused = false;
            context.resume(context.assignment().toArray(new TopicPartition[0]));
        }
    }

    /** An offset of a partition that is not assigned would fail the task for good. */
    private boolean applyRewinds() {
        Map<TopicPartition, Long> applicable = new HashMap<>(rewinds);
        rewinds.clear();
        applicable.keySet().retainAll(new HashSet<>(context.assignment()));
        if (applicable.isEmpty()) {
            return false;
        }
        rewinding = true;
        context.offset(applicable);
        return true;
    }

    /** A retried batch after a rewind would come before the records that were rewound to. */
    private void throwParked(boolean rewound) {
        RuntimeException error = parked;
        parked = null;
        if (error instanceof RetriableException && rewound) {
            LOG.debug("Not retrying a batch that is being read again", error);
        } else if (error != null) {
            throw error;
        }
    }

    private void throwFailure() {
        if (failure != null) {
            throw failure;
        }
    }

    private boolean isQuiet() {
        return failure == null && unapplied == null && !errant.pending();
    }

    private boolean acknowledged() {
        try {
            errant.begin();
            errant.await();
            return true;
        } catch (RetriableException e) {
            LOG.warn("Partitions are handed back while errant records are unacknowledged;"
                    + " whoever takes them reports those again", e);
            return false;
        }
    }

    private OffsetAndMetadata clamp(TopicPartition partition, OffsetAndMetadata asked) {
        Long known = durable.get(partition);
        if (known == null) {
            known = firstSeen.getOrDefault(partition, asked.offset());
        }
        long offset = Math.max(0, Math.min(known, asked.offset()));
        Optional<Integer> epoch = offset == asked.offset() ? asked.leaderEpoch() : Optional.empty();
        return new OffsetAndMetadata(offset, epoch, OFFSET_TAG);
    }

    /** Runs one step; a failure that is not worth another try ends the task, now and ever after. */
    private void guarded(Runnable step) {
        try {
            step.run();
        } catch (RetriableException e) {
            context.timeout(Math.min(BACKOFF_MS_MAX, TICK_MS << Math.min(failedTries++, 5)));
            throw e;
        } catch (RuntimeException | LinkageError e) {
            fail(e);
            throw failure;
        }
    }

    /** Ends the task: this and every later {@code put} throws it. */
    void fail(Throwable error) {
        if (failure != null) {
            return;
        }
        LOG.error("The task cannot go on", error);
        failure = error instanceof KafkaException
                ? (KafkaException) error
                : new ConnectException("the connector failed unexpectedly: " + error.getClass().getName()
                        + " [UNEXPECTED]", error);
    }

    static void log(Effects.LogLine line) {
        switch (line.level()) {
            case 0:
                LOG.error(line.text());
                break;
            case 1:
                LOG.warn(line.text());
                break;
            case 2:
                LOG.info(line.text());
                break;
            default:
                LOG.debug(line.text());
        }
    }

    /** The coordinates before any transformation: those that Connect commits. */
    private static TopicPartition partitionOf(SinkRecord record) {
        return new TopicPartition(record.originalTopic(), record.originalKafkaPartition());
    }
}
