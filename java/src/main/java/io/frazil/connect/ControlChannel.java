package io.frazil.connect;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Carries records between the control topic and the native side, for all tasks of one connector in
 * this process. It knows nothing about what they say.
 *
 * <p>Invariants: one thread does everything, and never touches a task's context. What the brokers do
 * makes it wait and try again, forever; what only a person can put right is a {@link #failure} that
 * every task throws. Queues have a bound: what does not fit is dropped, because whoever needs an
 * answer asks again. The last task that leaves ends it.
 */
final class ControlChannel {
    static final Logger LOG = LoggerFactory.getLogger(ControlChannel.class);

    /** A segment that a task has sealed waits at most this long to be sent. */
    static final long POLL_MILLIS = 100;
    private static final long BACKOFF_MILLIS_MAX = 10_000;
    /** How long a refusal that is no outage may last, once it has worked. */
    private static final long REFUSED_MILLIS_MAX = 300_000;
    private static final long COMPLAINT_MILLIS = 60_000;
    private static final long LEAVE_WAIT_MILLIS = 1_500;
    private static final int REQUEST_BYTES_MAX = 4 << 20;
    /** The results of one commit of many tables and tasks come at once, thousands of a few hundred bytes. */
    private static final int OUTBOX_MESSAGES_MAX = 50_000;
    private static final int OUTBOX_BYTES_MAX = 8 << 20;

    private static final Map<String, ControlChannel> CHANNELS = new HashMap<>();

    private final String name;
    private final String topic;
    private Session session;
    private Supplier<ControlLink> links;
    private final Deque<byte[]> outbox = new ArrayDeque<>();
    private final CountDownLatch ended = new CountDownLatch(1);
    private int tasks;
    private int outboxBytes;
    private long dropped;
    private Uuid topicId;
    /** Whether the brokers once let this channel do all it needs: then a refusal may pass. */
    private boolean worked;
    private long troubleSince = -1;
    private long pollMillis = POLL_MILLIS;
    private long complainedAt = -COMPLAINT_MILLIS;
    private int attempts;
    private volatile boolean stopping;
    private volatile RuntimeException failure;

    ControlChannel(String name, String topic, Session session, Supplier<ControlLink> links) {
        this.name = name;
        this.topic = topic;
        this.session = session;
        this.links = links;
    }

    /** Joins the channel of a task's connector in this process; the first task opens it. */
    static ControlChannel join(Map<String, String> taskConfig) {
        String key = taskConfig.get("name") + "\n" + Coordination.fingerprint(taskConfig);
        ControlChannel channel;
        synchronized (CHANNELS) {
            channel = CHANNELS.get(key);
            if (channel == null || channel.failure != null) { // A failed one is left to those who have it.
                channel = new ControlChannel(taskConfig.get("name"), Coordination.topicOf(taskConfig), null, null);
                CHANNELS.put(key, channel);
            }
            channel.tasks++;
        }
        try {
            channel.openOnce(taskConfig); // Not under the lock of all: a catalog may let it wait.
            return channel;
        } catch (RuntimeException | LinkageError e) {
            channel.leave();
            throw e;
        }
    }

    private synchronized void openOnce(Map<String, String> taskConfig) {
        if (session != null) {
            return;
        }
        KafkaSettings settings = KafkaSettings.of(taskConfig);
        if (settings.missing() != null) {
            throw new ConnectException("this worker has no Kafka client settings for `" + Coordination.KEY
                    + "=topic`: " + settings.missing() + "; set `" + KafkaSettings.PREFIX + "bootstrap.servers`"
                    + " and the login that it needs, or `" + Coordination.KEY + "=local` [CONTROL_NO_SETTINGS]");
        }
        Map<String, String> config = new HashMap<>(taskConfig);
        config.put("frazil.internal.role", "channel");
        // The core refuses dangerous settings here, before any client reads them.
        session = NativeSink.open(config);
        links = new ControlClients(config, settings.values())::open;
        start();
    }

    synchronized void start() {
        Thread thread = new Thread(this::run, "frazil-control-" + name);
        thread.setDaemon(true);
        thread.start();
    }

    /** Leaves; the last one to leave ends the channel, after its task's session has said goodbye. */
    void leave() {
        synchronized (CHANNELS) {
            if (--tasks > 0) {
                return;
            }
            CHANNELS.values().remove(this);
        }
        stop();
    }

    /** Ends the thread and waits a little, so that another process leads at once. */
    void stop() {
        stopping = true;
        synchronized (this) {
            if (session == null) {
                return; // It was never opened.
            }
        }
        try {
            if (!ended.await(LEAVE_WAIT_MILLIS, TimeUnit.MILLISECONDS)) {
                LOG.debug("The control channel of {} still ends", name);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Returns what a person must put right, or null. */
    RuntimeException failure() {
        return failure;
    }

    private void run() {
        try {
            while (!stopping && failure == null) {
                connectAndServe();
            }
        } catch (RuntimeException | LinkageError e) {
            LOG.error("The control channel of {} failed", name, e);
            fail(new ConnectException("the control channel failed unexpectedly: " + e.getClass().getName()
                    + "; see the worker's log [UNEXPECTED]"));
        } finally {
            closeSession();
            ended.countDown();
        }
    }

    private void connectAndServe() {
        try (ControlLink link = links.get()) {
            topicId = link.connect(topicId);
            while (!stopping && failure == null) {
                serve(link);
            }
            tell(false, List.of()); // The last messages of sessions that have ended.
            send(link);
        } catch (InterruptException e) {
            LOG.debug("The control channel of {} was interrupted", name, e); // By nobody but the JVM's end.
            stopping = true;
        } catch (ControlLink.ForeignTopicException e) {
            fail(new ConnectException(e.getMessage()));
        } catch (KafkaException e) {
            judge(e);
            rest();
        }
    }

    /** One round: what the topic brought goes to the native side, and its messages to the topic. */
    private void serve(ControlLink link) {
        List<Requests.Received> batch = new ArrayList<>();
        int bytes = 0;
        for (Requests.Received record : link.poll(pollMillis)) {
            if (bytes + record.size() > REQUEST_BYTES_MAX) {
                tell(link.leads(), batch);
                batch.clear();
                bytes = 0;
            }
            batch.add(record);
            bytes += record.size();
        }
        tell(link.leads(), batch);
        send(link);
        if (link.joined()) {
            succeeded();
        }
    }

    private void send(ControlLink link) {
        for (byte[] message = outbox.poll(); message != null; message = outbox.poll()) {
            outboxBytes -= message.length;
            link.send(message);
        }
    }

    private void tell(boolean leads, List<Requests.Received> records) {
        Effects effects;
        try {
            effects = Effects.decode(session.control(Requests.channel(leads, System.currentTimeMillis(), records)));
        } catch (RetriableException e) {
            LOG.debug("The native side of the control channel of {} takes nothing now", name, e);
            return;
        } catch (KafkaException e) { // From the native side: not about the brokers.
            fail(e);
            return;
        }
        effects.log().forEach(Delivery::log);
        effects.messages().forEach(this::queue);
        long asked = effects.timeoutMillis();
        pollMillis = asked < 0 ? POLL_MILLIS : Math.min(asked, POLL_MILLIS);
        if (effects.error() instanceof RetriableException) {
            LOG.warn("Connector {}: {}", name, effects.error().getMessage());
        } else if (effects.error() != null) {
            fail(effects.error());
        }
    }

    private void queue(byte[] message) {
        if (outbox.size() >= OUTBOX_MESSAGES_MAX || outboxBytes + message.length > OUTBOX_BYTES_MAX) {
            dropped++;
            return;
        }
        outbox.add(message);
        outboxBytes += message.length;
    }

    /** Decides whether the brokers will come round by themselves. */
    private void judge(KafkaException error) {
        long now = now();
        boolean first = troubleSince < 0;
        if (first) {
            troubleSince = now;
        }
        boolean outage = error instanceof org.apache.kafka.common.errors.RetriableException;
        if (!outage && (!worked || now - troubleSince > REFUSED_MILLIS_MAX)) {
            LOG.error("The control channel of {} cannot work", name, error);
            // A task's status is public, and only the brokers' own words are known to hold no setting.
            String reason = error instanceof ApiException ? ": " + error.getMessage() : "; see the worker's log";
            fail(new ConnectException("the control topic `" + topic + "` cannot be used ("
                    + error.getClass().getSimpleName() + reason + "); allow this connector to read, write and create"
                    + " it and to read group `*-frazil-committer`, or set `" + Coordination.KEY
                    + "=local` [CONTROL_TOPIC_UNUSABLE]"));
            return;
        }
        if (first && worked && error instanceof UnknownTopicOrPartitionException) {
            LOG.warn("Connector {}: the control topic {} is gone; it is made anew, and nothing is lost with it",
                    name, topic);
        } else if (now - complainedAt >= COMPLAINT_MILLIS) {
            complainedAt = now;
            LOG.warn("Connector {}: the control topic {} cannot be reached since {} s; records are read and written,"
                            + " and committed once it can ({} messages dropped): {}",
                    name, topic, (now - troubleSince) / 1_000, dropped, error.toString());
        }
    }

    private void succeeded() {
        worked = true;
        if (troubleSince >= 0) {
            LOG.info("Connector {}: the control topic {} serves again", name, topic);
            troubleSince = -1;
            attempts = 0;
        }
    }

    /** Waits before the next connection; tasks are served meanwhile, and nobody leads. */
    private void rest() {
        long until = now() + Math.min(BACKOFF_MILLIS_MAX, POLL_MILLIS << Math.min(attempts++, 7));
        do {
            tell(false, List.of());
            try {
                Thread.sleep(POLL_MILLIS);
            } catch (InterruptedException e) {
                stopping = true;
            }
        } while (!stopping && failure == null && now() < until);
    }

    private void fail(RuntimeException error) {
        if (failure == null) {
            failure = error;
        }
    }

    private void closeSession() {
        try {
            session.close();
        } catch (KafkaException | LinkageError e) {
            LOG.error("The native side of the control channel of {} could not be closed in good order", name, e);
        }
    }

    private static long now() {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    }
}
