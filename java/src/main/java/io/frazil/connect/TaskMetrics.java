package io.frazil.connect;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;
import org.apache.kafka.connect.errors.ConnectException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The metrics of one task, and what its process knows of its connector and tables ({@code docs/metrics.md}).
 *
 * <p>One native call brings all values, once a second at most: {@link #refresh} is called with each
 * {@code put}, and by whoever reads a bean, so that a task which is stuck can still be looked at. Nothing
 * that goes wrong here reaches the task.
 */
final class TaskMetrics implements AutoCloseable {
    private static final long REFRESH_NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final int VERSION = 1;
    private static final String TASK = "sink-task-metrics";
    private static final String REJECTIONS = "sink-rejection-metrics";
    private static final Logger LOG = LoggerFactory.getLogger(TaskMetrics.class);
    /** One line of JSON per commit. */
    private static final Logger EVENTS = LoggerFactory.getLogger("io.frazil.connect.events");

    private final Session session;
    private final RejectionCounts rejections;
    private final LongSupplier nanos;
    private final ReentrantLock lock = new ReentrantLock();
    /** The beans that are shown for this task, by name. */
    private final Map<String, MetricBean> shown = new HashMap<>();
    private long refreshedAt;
    private boolean closed;
    private boolean complained;

    /** Shows what there is to show of the session's task. */
    TaskMetrics(Session session, RejectionCounts rejections) {
        this(session, rejections, System::nanoTime);
    }

    TaskMetrics(Session session, RejectionCounts rejections, LongSupplier nanos) {
        this.session = session;
        this.rejections = rejections;
        this.nanos = nanos;
        take();
        refreshedAt = nanos.getAsLong();
    }

    /** Asks for new values, if those there are have become old. */
    void refresh() {
        if (!lock.tryLock()) {
            return; // Somebody else does.
        }
        try {
            long now = nanos.getAsLong();
            if (!closed && now - refreshedAt >= REFRESH_NANOS) {
                refreshedAt = now;
                take();
            }
        } finally {
            lock.unlock();
        }
    }

    /** Writes the last events and takes the beans away. The session must still be there. Again: nothing. */
    @Override
    public void close() {
        lock.lock();
        try {
            if (!closed) {
                take();
                closed = true;
                shown.keySet().forEach(name -> MetricBeans.release(this, name));
                shown.clear();
            }
        } finally {
            lock.unlock();
        }
    }

    private void take() {
        try {
            List<byte[]> messages = Effects.decode(session.control(Requests.metrics())).messages();
            if (messages.isEmpty()) {
                throw new ConnectException("the native library answers without metrics [WIRE_CORRUPT]");
            }
            show(messages.get(0));
            for (byte[] event : messages.subList(1, messages.size())) {
                EVENTS.info(new String(event, StandardCharsets.UTF_8));
            }
        } catch (RuntimeException | LinkageError e) {
            // Of a session that has failed the values stay as they were last.
            if (!complained) {
                complained = true;
                LOG.debug("The metrics of a task cannot be read", e);
            }
        }
    }

    private void show(byte[] snapshot) {
        ByteBuffer bytes = ByteBuffer.wrap(snapshot).order(ByteOrder.LITTLE_ENDIAN);
        Set<String> seen = new HashSet<>();
        try {
            if (bytes.get() != VERSION) {
                throw new ConnectException("the native library's metrics have another version [WIRE_VERSION]");
            }
            for (int left = bytes.getInt(); left > 0; left--) {
                MetricTable.Family family = MetricTable.families().get(bytes.getInt());
                List<String> keys = new ArrayList<>();
                for (int key = family.keys().size(); key > 0; key--) {
                    keys.add(text(bytes));
                }
                long[] values = new long[family.size()];
                for (int value = 0; value < values.length; value++) {
                    values[value] = bytes.getLong();
                }
                show(family, keys, values, seen);
                if (family.name().equals(TASK)) {
                    showRejections(keys, seen);
                }
            }
        } catch (BufferUnderflowException | IndexOutOfBoundsException | IllegalArgumentException e) {
            throw new ConnectException("the native library's metrics are corrupt [WIRE_CORRUPT]", e);
        }
        shown.keySet().removeIf(name -> {
            boolean gone = !seen.contains(name);
            if (gone) {
                MetricBeans.release(this, name);
            }
            return gone;
        });
    }

    private void show(MetricTable.Family family, List<String> keys, long[] values, Set<String> seen) {
        String name = MetricBeans.nameOf(family, keys);
        seen.add(name);
        shown.computeIfAbsent(name, absent -> MetricBeans.acquire(this, absent, family)).set(values, this::refresh);
    }

    private void showRejections(List<String> task, Set<String> seen) {
        MetricTable.Family family = MetricTable.family(REJECTIONS);
        rejections.counts().forEach((code, counts) -> {
            List<String> keys = new ArrayList<>(task);
            keys.add(code);
            show(family, keys, counts, seen);
        });
    }

    private static String text(ByteBuffer bytes) {
        byte[] utf8 = new byte[bytes.getInt()];
        bytes.get(utf8);
        return new String(utf8, StandardCharsets.UTF_8);
    }
}
