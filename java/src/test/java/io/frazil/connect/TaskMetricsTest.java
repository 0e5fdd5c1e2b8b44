package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import javax.management.Attribute;
import javax.management.AttributeNotFoundException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.ConnectException;
import org.junit.After;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** MBeans: of a scripted session, and of a task on the real library. */
public class TaskMetricsTest {
    private static final MBeanServer SERVER = ManagementFactory.getPlatformMBeanServer();
    private static final String TASK = "io.frazil.connect:type=sink-task-metrics,connector=orders,task=0";

    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    private final ScriptedSession session = new ScriptedSession();
    private long nanos;

    @After
    public void nothingIsLeft() throws Exception {
        assertEquals(Set.of(), names());
    }

    @Test
    public void readersGetTheLastSnapshotAndAskOnceASecondAtMost() throws Exception {
        session.taskRecords = 3;
        try (TaskMetrics metrics = metrics()) {
            assertEquals(1, session.asked);
            session.taskRecords = 5;
            for (int i = 0; i < 100; i++) {
                assertEquals(3L, read(TASK, "records-received-total"));
                metrics.refresh();
            }
            assertEquals("a read asks for nothing", 1, session.asked);
            nanos += 1_000_000_000L;
            assertEquals("what is old is asked for again", 5L, read(TASK, "records-received-total"));
            read(TASK, "records-received-total");
            assertEquals(2, session.asked);
        }
        assertEquals("a last time, for what happened since", 3, session.asked);
    }

    @Test
    public void anAgeIsThatOfNowAndNotANumberWhileUnknown() throws Exception {
        try (TaskMetrics metrics = metrics()) {
            assertEquals(Double.NaN, read(TASK, "lag-ms"));
            session.lagSince = System.currentTimeMillis() - 60_000;
            nanos += 1_000_000_000L;
            double age = (Double) read(TASK, "lag-ms");
            assertTrue("" + age, age >= 60_000 && age < 3_600_000);
        }
    }

    @Test
    public void rejectionsAreShownByCode() throws Exception {
        RejectionCounts counts = new RejectionCounts();
        try (TaskMetrics metrics = new TaskMetrics(session, counts, () -> nanos)) {
            String of = "io.frazil.connect:type=sink-rejection-metrics,connector=orders,task=0,code=";
            assertEquals(0L, read(of + "all", "records-reported-total"));
            counts.reported("VALUE_MALFORMED");
            counts.reported("VALUE_MALFORMED");
            counts.dropped("DECIMAL_OVERFLOW");
            nanos += 1_000_000_000L;
            metrics.refresh();
            assertEquals(2L, read(of + "VALUE_MALFORMED", "records-reported-total"));
            assertEquals(1L, read(of + "DECIMAL_OVERFLOW", "records-dropped-total"));
            assertEquals(2L, read(of + "all", "records-reported-total"));
            assertEquals(1L, read(of + "all", "records-dropped-total"));
        }
    }

    @Test
    public void tasksShareABeanAndTheLastOneTakesItAway() throws Exception {
        ScriptedSession other = new ScriptedSession();
        other.task = "1";
        TaskMetrics second = new TaskMetrics(other, new RejectionCounts());
        TaskMetrics first = metrics();
        assertEquals(5, names().size());
        first.close();
        first.close();
        assertFalse(SERVER.isRegistered(new ObjectName(TASK)));
        assertTrue(SERVER.isRegistered(new ObjectName("io.frazil.connect:type=sink-worker-metrics")));
        second.close();
    }

    @Test
    public void aSessionThatFailsKeepsItsLastValuesAndTheTaskNeverHearsOfIt() throws Exception {
        session.taskRecords = 3;
        try (TaskMetrics metrics = metrics()) {
            session.failure = new ConnectException("poisoned");
            nanos += 1_000_000_000L;
            metrics.refresh();
            assertEquals(3L, read(TASK, "records-received-total"));
            session.failure = null;
            session.version = 9;
            nanos += 1_000_000_000L;
            metrics.refresh();
            assertEquals(3L, read(TASK, "records-received-total"));
        }
    }

    @Test
    public void beansAreReadOnly() throws Exception {
        try (TaskMetrics metrics = metrics()) {
            ObjectName name = new ObjectName(TASK);
            assertThrows(AttributeNotFoundException.class, () -> SERVER.getAttribute(name, "no-such-metric"));
            Attribute set = new Attribute("paused", 1L);
            assertThrows(AttributeNotFoundException.class, () -> SERVER.setAttribute(name, set));
            assertEquals(1, SERVER.getAttributes(name, new String[] {"paused", "no-such-metric"}).size());
            for (MBeanAttributeInfo attribute : SERVER.getMBeanInfo(name).getAttributes()) {
                assertFalse(attribute.getName(), attribute.getDescription().isEmpty());
                assertEquals(attribute.getType(), read(TASK, attribute.getName()).getClass().getName());
            }
        }
    }

    @Test
    public void aNameThatJmxWouldMisreadIsQuoted() {
        MetricTable.Family table = MetricTable.family("sink-table-metrics");
        assertEquals("io.frazil.connect:type=sink-table-metrics,connector=a b,table=\"db.t=\\*\"",
                MetricBeans.nameOf(table, List.of("a b", "db.t=*")));
    }

    @Test
    public void aTaskHasItsMetricsFromStartToStop() throws Exception {
        FakeContext context = new FakeContext();
        FrazilSinkTask task = new FrazilSinkTask();
        task.initialize(context);
        TopicPartition partition = new TopicPartition("orders", 0);
        context.assigned.add(partition);
        for (int life = 0; life < 2; life++) {
            Path home = folder.newFolder().toPath();
            task.start(Configs.localTask(home));
            Set<String> types = new TreeSet<>();
            for (ObjectName name : names()) {
                types.add(name.getKeyProperty("type"));
            }
            assertEquals(Set.of("sink-worker-metrics", "sink-connector-metrics", "sink-task-metrics",
                    "sink-table-metrics", "sink-rejection-metrics"), types);
            task.open(List.of(partition));
            task.put(List.of());
            assertTrue((Long) read("io.frazil.connect:type=sink-worker-metrics", "memory-limit-bytes") > 0);
            assertEquals(1L, read("io.frazil.connect:type=sink-connector-metrics,connector=orders", "tables"));
            task.close(List.of(partition));
            task.stop();
            assertEquals(Set.of(), names());
        }
    }

    @Test
    public void aStartThatFailsLeavesNoBean() throws Exception {
        FrazilSinkTask task = new FrazilSinkTask();
        task.initialize(new FakeContext());
        Map<String, String> config = Configs.localTask(folder.getRoot().toPath());
        config.remove("iceberg.catalog.type");
        assertThrows(ConfigException.class, () -> task.start(config));
        assertEquals(Set.of(), names());
        // This is found when the session and its beans are there already.
        Map<String, String> late = Configs.localTask(folder.getRoot().toPath());
        late.put("iceberg.kafka.bootstrap.servers", "127.0.0.1:1");
        late.put("iceberg.kafka.interceptor.classes", "x.Y");
        assertThrows(ConfigException.class, () -> task.start(late));
        assertEquals("before Connect stops the task", Set.of(), names());
        task.stop();
    }

    private TaskMetrics metrics() {
        return new TaskMetrics(session, new RejectionCounts(), () -> nanos);
    }

    private static Set<ObjectName> names() throws Exception {
        return SERVER.queryNames(new ObjectName("io.frazil.connect:*"), null);
    }

    private static Object read(String name, String metric) throws Exception {
        return SERVER.getAttribute(new ObjectName(name), metric);
    }

    /** Answers with the beans of the process and of one task. */
    private static final class ScriptedSession implements Session {
        String task = "0";
        long taskRecords;
        long lagSince = Long.MIN_VALUE;
        int version = 1;
        int asked;
        RuntimeException failure;

        @Override
        public int registerSchema(byte[] schema) {
            throw new AssertionError("metrics have no schemas");
        }

        @Override
        public byte[] put(ByteBuffer frame, int length) {
            throw new AssertionError("metrics have no records");
        }

        @Override
        public byte[] control(byte[] request) {
            assertEquals(11, request[1]);
            asked++;
            if (failure != null) {
                throw failure;
            }
            ByteBuffer bytes = ByteBuffer.allocate(1 << 16).order(ByteOrder.LITTLE_ENDIAN);
            bytes.put((byte) version).putInt(2);
            bean(bytes, "sink-worker-metrics", List.of());
            bean(bytes, "sink-task-metrics", List.of("orders", task));
            return new Answers().message(bytes).encode();
        }

        private void bean(ByteBuffer bytes, String name, List<String> keys) {
            MetricTable.Family family = MetricTable.family(name);
            bytes.putInt(MetricTable.families().indexOf(family));
            for (String key : keys) {
                bytes.putInt(key.length()).put(key.getBytes(StandardCharsets.UTF_8));
            }
            List<String> metrics = new ArrayList<>(family.metrics());
            for (String metric : metrics) {
                bytes.putLong(metric.equals("records-received-total") ? taskRecords
                        : metric.equals("lag-ms") ? lagSince : 0);
            }
        }

        @Override
        public void close() {}
    }
}
