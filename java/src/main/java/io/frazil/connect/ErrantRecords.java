package io.frazil.connect;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hands rejected records to Connect's reporter and waits until they are safe.
 *
 * <p>Invariant: while a report is unacknowledged the task calls no native method, so no segment can
 * be sealed over the record's offset. Without a reporter the first rejected record stops the task,
 * unless {@code frazil.errors.drop} allows to lose it: then it is counted and logged, without its value.
 */
final class ErrantRecords {
    /** Says that records which do not fit may be lost. */
    static final String DROP_KEY = "frazil.errors.drop";

    private static final Logger LOG = LoggerFactory.getLogger(ErrantRecords.class);

    private final ErrantRecordReporter reporter;
    private final boolean drop;
    private final long waitMillis;
    private final List<Future<Void>> unacknowledged = new ArrayList<>();
    private long began;
    private long limitMillis;
    private final RejectionCounts counts = new RejectionCounts();

    ErrantRecords(ErrantRecordReporter reporter, boolean drop, long waitMillis) {
        this.reporter = reporter;
        this.drop = drop;
        this.waitMillis = waitMillis;
        begin();
    }

    /** A call of Connect begins: until {@link #goOn} it may wait for half of its time. */
    void begin() {
        began = System.nanoTime();
        limitMillis = waitMillis / 2;
    }

    /** The native side begins, which takes half of the call's time at most. What is left may be waited. */
    void goOn() {
        limitMillis = waitMillis;
    }

    /** Takes the reporter of this context; runtimes before 2.6 have none. */
    static ErrantRecords of(SinkTaskContext context, Map<String, String> config, long waitMillis) {
        ErrantRecordReporter reporter;
        try {
            reporter = context.errantRecordReporter();
        } catch (NoSuchMethodError | NoClassDefFoundError e) {
            reporter = null;
        }
        boolean drop = "true".equalsIgnoreCase(config.get(DROP_KEY))
                && "all".equalsIgnoreCase(config.get("errors.tolerance"));
        return new ErrantRecords(reporter, drop, waitMillis);
    }

    /** Reports one record; throws {@link DataException} when nobody takes errant records. */
    void reject(SinkRecord record, Rejection reason) {
        if (reporter == null && drop) {
            counts.dropped(reason.code());
            LOG.warn("Dropped {}", reason.of(record));
            return;
        }
        if (reporter == null) {
            throw new DataException(reason.of(record) + "; correct it, or set `errors.tolerance=all` and"
                    + " `errors.deadletterqueue.topic.name` to set such records aside");
        }
        Future<Void> acknowledged = reporter.report(record, new RejectedRecordException(reason.toJson(record)));
        counts.reported(reason.code());
        if (acknowledged != null) {
            unacknowledged.add(acknowledged);
        }
    }

    /** Returns what was rejected since the task started. */
    RejectionCounts counts() {
        return counts;
    }

    /** Returns whether a reported record is still on its way. */
    boolean pending() {
        return !unacknowledged.isEmpty();
    }

    /** Returns a line that counts the records which did not fit since the task started, if any. */
    Optional<String> summary() {
        long[] all = counts.counts().get(RejectionCounts.ALL);
        return all[0] + all[1] == 0
                ? Optional.empty()
                : Optional.of(all[0] + " records did not fit and were reported, " + all[1] + " were dropped");
    }

    /**
     * Waits until every reported record is acknowledged. When the call's time is up it throws
     * {@link RetriableException} and keeps what is unacknowledged for the next call.
     */
    void await() {
        long deadline = began + TimeUnit.MILLISECONDS.toNanos(limitMillis);
        while (!unacknowledged.isEmpty()) {
            int last = unacknowledged.size() - 1;
            try {
                unacknowledged.get(last).get(Math.max(0, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
                unacknowledged.remove(last);
            } catch (TimeoutException e) {
                throw new RetriableException("the dead letter queue has not acknowledged "
                        + unacknowledged.size() + " records in " + limitMillis + " ms [DLQ_TIMEOUT]", e);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new RetriableException("interrupted while waiting for the dead letter queue [DLQ_TIMEOUT]", e);
            } catch (ExecutionException | CancellationException e) {
                throw new ConnectException(
                        "the dead letter queue did not take a record; see its cause [DLQ_FAILED]", e);
            }
        }
    }
}
