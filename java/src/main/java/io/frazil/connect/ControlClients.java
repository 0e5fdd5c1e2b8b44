package io.frazil.connect;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Opens the Kafka clients of a {@link ControlLink}. What coordination rests on cannot be configured. */
final class ControlClients {
    private final Map<String, String> settings;
    private final String connector;
    private final String group;
    private final String topic;
    private final String wid;
    private final RecordAges ages = new RecordAges();

    ControlClients(Map<String, String> config, Map<String, String> settings) {
        this.settings = settings;
        connector = config.get("name");
        group = Coordination.groupOf(config);
        topic = Coordination.topicOf(config);
        wid = Coordination.widOf(config);
    }

    /** Opens all clients, or none. */
    ControlLink open() {
        Consumer<byte[], byte[]> election = null;
        Consumer<byte[], byte[]> reader = null;
        Producer<byte[], byte[]> producer = null;
        try {
            election = new KafkaConsumer<>(election(), new ByteArrayDeserializer(), new ByteArrayDeserializer());
            reader = new KafkaConsumer<>(reader(), new ByteArrayDeserializer(), new ByteArrayDeserializer());
            producer = new KafkaProducer<>(producer(), new ByteArraySerializer(), new ByteArraySerializer());
            return new ControlLink(topic, wid, election, reader, producer,
                    new AdminTopics(Admin.create(base("admin")), topic), ages);
        } catch (RuntimeException e) {
            for (AutoCloseable client : new AutoCloseable[] {election, reader, producer}) {
                closeAfter(e, client);
            }
            throw e;
        }
    }

    private static void closeAfter(RuntimeException error, AutoCloseable client) {
        try {
            if (client != null) {
                client.close();
            }
        } catch (Exception e) {
            error.addSuppressed(e);
        }
    }

    Map<String, Object> election() {
        Map<String, Object> values = consumer("election");
        values.put("group.id", group);
        // Nobody commits while a dead leader is not missed: the least that brokers allow by default. A
        // leader that only stood still costs nothing but another election.
        values.putIfAbsent("session.timeout.ms", "6000");
        values.putIfAbsent("heartbeat.interval.ms", "2000");
        // Whoever leads goes on leading when others come and go.
        values.put("partition.assignment.strategy", List.of(CooperativeStickyAssignor.class));
        values.put("auto.offset.reset", "latest");
        values.put("metadata.max.age.ms", "10000"); // Else a topic made anew stays unknown for minutes.
        return values;
    }

    Map<String, Object> reader() {
        Map<String, Object> values = consumer("reader");
        values.put("auto.offset.reset", "earliest"); // Positions are set; this is for what retention took.
        values.put("max.partition.fetch.bytes", "1048576");
        values.put("fetch.max.bytes", "4194304");
        return values;
    }

    private Map<String, Object> consumer(String role) {
        Map<String, Object> values = base(role);
        for (String foreign : List.of("group.id", "group.instance.id", "group.protocol", "group.remote.assignor",
                "isolation.level", "max.poll.interval.ms", "fetch.min.bytes", "fetch.max.wait.ms")) {
            values.remove(foreign);
        }
        values.put("enable.auto.commit", "false");
        values.put("allow.auto.create.topics", "false");
        return values;
    }

    Map<String, Object> producer() {
        Map<String, Object> values = base("producer");
        values.remove("transactional.id");
        values.remove("retries");
        values.remove("max.in.flight.requests.per.connection");
        values.put("acks", "all");
        values.put("enable.idempotence", "true");
        values.put("linger.ms", "0");
        values.put("max.block.ms", "1000");
        values.put("request.timeout.ms", "10000");
        values.put("delivery.timeout.ms", "30000");
        values.put("buffer.memory", "8388608");
        return values;
    }

    private Map<String, Object> base(String role) {
        Map<String, Object> values = new HashMap<>(settings);
        String prefix = settings.getOrDefault("client.id", "frazil-control");
        values.put("client.id", prefix + "-" + connector + "-" + role);
        values.put("request.timeout.ms", "5000");
        values.put("default.api.timeout.ms", "10000");
        values.put("reconnect.backoff.max.ms", "5000"); // Clients warn of each attempt.
        return values;
    }

    /** The control topic as the brokers tell of it. */
    private static final class AdminTopics implements ControlLink.Topics {
        private static final Map<String, String> PROPERTIES = Map.of(
                "cleanup.policy", "delete",
                "retention.ms", "3600000",
                "message.timestamp.type", "LogAppendTime");

        private final Admin admin;
        private final String topic;

        AdminTopics(Admin admin, String topic) {
            this.admin = admin;
            this.topic = topic;
        }

        @Override
        public Future<Uuid> id() {
            return admin.describeTopics(List.of(topic)).allTopicNames()
                    .thenApply(descriptions -> descriptions.get(topic).topicId());
        }

        @Override
        public void create() {
            NewTopic wanted = new NewTopic(topic, Optional.of(1), Optional.empty()).configs(PROPERTIES);
            try {
                admin.createTopics(List.of(wanted)).all().get();
                ControlChannel.LOG.info("Created the control topic {} with one partition", topic);
            } catch (ExecutionException e) {
                if (!(e.getCause() instanceof TopicExistsException)) {
                    throw ControlLink.asKafkaException(e.getCause());
                }
            } catch (InterruptedException e) {
                throw new InterruptException(e);
            }
        }

        @Override
        public void close() {
            admin.close(Duration.ZERO);
        }
    }
}
