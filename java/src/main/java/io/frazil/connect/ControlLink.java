package io.frazil.connect;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/**
 * One connection to the control topic: a consumer whose group elects the coordinator, a consumer
 * that reads everything, and a producer.
 *
 * <p>Invariants: all traffic is in partition 0, and whoever the group assigns it to leads. The
 * reader stands at the end of the topic before this process joins the group, so a coordinator sees
 * every record behind its own first one, and history never (rule R12). Nothing here is in a
 * transaction, and the group commits no offsets: what is lost is sent again by those who wait.
 *
 * <p>A connection ends with an exception, above all when the topic was deleted or made anew: then
 * the next connection makes it, and reads the new one from its beginning.
 */
final class ControlLink implements AutoCloseable {
    /** The topic itself, by the admin client. */
    interface Topics extends AutoCloseable {
        /** Finds the id of the topic; the future fails when there is none. */
        Future<Uuid> id();

        /** Makes the topic; one that is there already is as good. */
        void create();

        @Override
        void close();
    }

    /** Thrown when the topic belongs to somebody else. */
    static final class ForeignTopicException extends KafkaException {
        private static final long serialVersionUID = 1L;

        ForeignTopicException(String message) {
            super(message);
        }
    }

    private static final Duration CLOSE_WAIT = Duration.ofMillis(500);
    private static final long LOOK_MILLIS = 5_000;
    private static final long UNSEEN_MILLIS_MAX = 30_000;
    private static final long ADMIN_WAIT_MILLIS = 10_000;
    private static final int FIRST_RECORDS = 100;
    private static final long FIRST_RECORDS_WAIT_MILLIS = 5_000;
    private static final Pattern WID = Pattern.compile("[0-9a-f]{16}");

    private final String topic;
    private final TopicPartition partition;
    private final byte[] key;
    private final Consumer<byte[], byte[]> group;
    private final Consumer<byte[], byte[]> reader;
    private final Producer<byte[], byte[]> producer;
    private final Topics topics;
    private final RecordAges ages;
    private Uuid id;
    private Future<Uuid> look;
    private long lookedAt;
    private long unseenSince = -1;
    private boolean leads;
    /** Why a message was not taken; the producer's thread writes it. */
    private volatile Exception unsent;

    ControlLink(String topic, String wid, Consumer<byte[], byte[]> group, Consumer<byte[], byte[]> reader,
            Producer<byte[], byte[]> producer, Topics topics, RecordAges ages) {
        this.topic = topic;
        this.partition = new TopicPartition(topic, 0);
        this.key = wid.getBytes(StandardCharsets.UTF_8);
        this.group = group;
        this.reader = reader;
        this.producer = producer;
        this.topics = topics;
        this.ages = ages;
    }

    /**
     * Makes the topic if need be, checks that it is ours, and joins the group. {@code before} is the
     * topic's id in an earlier connection, or null; the id of now is returned.
     */
    Uuid connect(Uuid before) {
        id = findOrCreate();
        reader.assign(List.of(partition));
        refuseForeign();
        if (before != null && !before.equals(id)) {
            reader.seekToBeginning(List.of(partition));
        } else {
            reader.seekToEnd(List.of(partition));
        }
        reader.position(partition); // Asks the broker now, not with the first poll.
        group.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                group.pause(group.assignment()); // The reader reads.
                leads |= assigned.contains(partition);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                leads &= !revoked.contains(partition);
            }
        });
        lookedAt = now();
        return id;
    }

    /** Returns whether this process has partition 0. */
    boolean leads() {
        return leads;
    }

    /** Returns whether the group has taken this process in. */
    boolean joined() {
        return group.groupMetadata().generationId() >= 0;
    }

    /** Takes part in the election and returns what was written meanwhile, after at most this time. */
    List<Requests.Received> poll(long waitMillis) {
        throwUnsent();
        lookAtTopic();
        group.poll(Duration.ZERO);
        List<Requests.Received> records = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : reader.poll(Duration.ofMillis(waitMillis))) {
            records.add(new Requests.Received(record.offset(), ages.of(record.timestamp(), now()), record.value()));
        }
        return records;
    }

    /** Sends a message; a later call throws when it was not taken. */
    void send(byte[] message) {
        throwUnsent();
        producer.send(new ProducerRecord<>(topic, 0, key, message), (metadata, error) -> {
            if (error != null) {
                unsent = error;
            }
        });
    }

    /** Sends what is underway, and leaves the group at once, so that another leads within a second. */
    @Override
    public void close() {
        quietly(() -> producer.close(CLOSE_WAIT));
        quietly(() -> group.close(CLOSE_WAIT));
        quietly(() -> reader.close(Duration.ZERO));
        quietly(topics::close);
    }

    private void throwUnsent() {
        if (unsent != null) {
            throw asKafkaException(unsent);
        }
    }

    private Uuid findOrCreate() {
        try {
            return await(topics.id());
        } catch (UnknownTopicOrPartitionException e) {
            topics.create();
        }
        long deadline = now() + ADMIN_WAIT_MILLIS;
        while (true) { // A broker may not know yet what another has made.
            try {
                return await(topics.id());
            } catch (UnknownTopicOrPartitionException e) {
                if (now() > deadline) {
                    throw e;
                }
                pause(100);
            }
        }
    }

    /** Somebody may write anything into our topic later; but one that never was ours is not touched. */
    private void refuseForeign() {
        reader.seekToBeginning(List.of(partition));
        long start = reader.position(partition);
        long end = Math.min(start + FIRST_RECORDS, reader.endOffsets(List.of(partition)).get(partition));
        long deadline = now() + FIRST_RECORDS_WAIT_MILLIS;
        int foreign = 0;
        while (reader.position(partition) < end && now() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : reader.poll(Duration.ofMillis(200))) {
                if (isOurs(record)) {
                    return;
                }
                foreign++;
            }
        }
        if (foreign > 0) {
            throw new ForeignTopicException("the topic `" + topic + "` holds records that are not Frazil's, and"
                    + " whoever reads them may not bear ours: set `" + Coordination.TOPIC_KEY + "` to a topic of"
                    + " Frazil's own (it is created), or empty this one [CONTROL_TOPIC_FOREIGN]");
        }
    }

    /** Ours, of whatever connector and version: keyed by a writer's identity that the value repeats. */
    private static boolean isOurs(ConsumerRecord<byte[], byte[]> record) {
        if (record.key() == null || record.value() == null || record.key().length != 16) {
            return false;
        }
        String wid = new String(record.key(), StandardCharsets.ISO_8859_1);
        String value = new String(record.value(), StandardCharsets.ISO_8859_1);
        return WID.matcher(wid).matches() && value.startsWith("{") && value.contains("\"wid\":\"" + wid + "\"");
    }

    private void lookAtTopic() {
        if (look == null) {
            if (now() - lookedAt >= LOOK_MILLIS) {
                look = topics.id();
            }
            return;
        }
        if (!look.isDone()) {
            return;
        }
        lookedAt = now();
        Future<Uuid> done = look;
        look = null;
        try {
            if (!await(done).equals(id)) {
                throw new UnknownTopicOrPartitionException("the control topic was deleted and made anew");
            }
            unseenSince = -1;
        } catch (TimeoutException e) { // The other clients wait for the brokers too.
            unseenSince = unseenSince < 0 ? now() : unseenSince;
            if (now() - unseenSince > UNSEEN_MILLIS_MAX) {
                throw e; // So that somebody is told.
            }
        }
    }

    private static Uuid await(Future<Uuid> future) {
        try {
            return future.get(ADMIN_WAIT_MILLIS, TimeUnit.MILLISECONDS);
        } catch (ExecutionException e) {
            throw asKafkaException(e.getCause());
        } catch (java.util.concurrent.TimeoutException e) {
            throw new TimeoutException("the brokers do not answer", e);
        } catch (InterruptedException e) {
            throw new InterruptException(e);
        }
    }

    static KafkaException asKafkaException(Throwable error) {
        return error instanceof KafkaException ? (KafkaException) error : new KafkaException(error);
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            throw new InterruptException(e);
        }
    }

    private static void quietly(Runnable close) {
        try {
            close.run();
        } catch (KafkaException e) {
            // A connection that ends in trouble has told it already.
            ControlChannel.LOG.debug("A client of the control topic did not close in good order", e);
        }
    }

    private static long now() {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    }
}
