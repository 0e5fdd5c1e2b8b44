package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.ConnectException;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Misuse and bugs at the boundary: each is an exception that names its cause, and the JVM lives. */
public class NativeSinkTest {
    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    @Test
    public void theLibraryHasTheVersionOfTheJar() throws Exception {
        try (NativeSink ignored = open()) {
            assertEquals(Version.JAR, new String(NativeSink.version(), StandardCharsets.UTF_8));
        }
    }

    @Test
    public void aConfigurationThatCannotWorkIsAConfigException() throws Exception {
        Map<String, String> config = Configs.localTask(folder.getRoot().toPath());
        config.remove("iceberg.catalog.type");
        ConfigException error = assertThrows(ConfigException.class, () -> NativeSink.open(config));
        assertTrue(error.getMessage(), error.getMessage().contains("iceberg.catalog.type"));
    }

    // Promise: a call after close is an error, never freed memory
    @Test
    public void aUseAfterCloseIsAnErrorAndASecondCloseIsNone() throws Exception {
        NativeSink sink = open();
        sink.close();
        sink.close();
        assertThrowsFatal("SESSION_CLOSED", () -> sink.control(Requests.tick()));
        assertThrowsFatal("SESSION_CLOSED", () -> sink.put(ByteBuffer.allocateDirect(64), 64));
        assertThrowsFatal("SESSION_CLOSED", () -> sink.registerSchema(new byte[1]));
    }

    // Promise: bytes that are no frame are an error, never a crash
    @Test
    public void aBadFrameIsAnErrorAndTheSessionStillAnswers() throws Exception {
        try (NativeSink sink = open()) {
            ByteBuffer noise = ByteBuffer.allocateDirect(256);
            for (int i = 0; i < noise.capacity(); i++) {
                noise.put(i, (byte) (i * 31));
            }
            for (int length = 0; length <= noise.capacity(); length += 17) {
                int bytes = length;
                ConnectException error = assertThrows(ConnectException.class, () -> sink.put(noise, bytes));
                assertTrue(error.getMessage(), error.getMessage().contains("["));
            }
        }
    }

    @Test
    public void aBadRequestAndABadSchemaAreErrors() throws Exception {
        try (NativeSink sink = open()) {
            assertThrows(ConnectException.class, () -> sink.control(new byte[0]));
            assertThrows(ConnectException.class, () -> sink.control(new byte[] {1, 99}));
            assertThrows(ConnectException.class, () -> sink.registerSchema(new byte[0]));
        }
    }

    @Test
    public void aBufferThatIsHeapNullTooShortOrNegativeIsAnError() throws Exception {
        try (NativeSink sink = open()) {
            assertThrowsFatal("FRAME_BUFFER", () -> sink.put(ByteBuffer.allocate(64), 64));
            assertThrowsFatal("FRAME_BUFFER", () -> sink.put(null, 0));
            assertThrowsFatal("FRAME_LENGTH", () -> sink.put(ByteBuffer.allocateDirect(8), 9));
            assertThrowsFatal("FRAME_LENGTH", () -> sink.put(ByteBuffer.allocateDirect(8), -1));
        }
    }

    // Promise: a panic in the native library fails its task with the cause, and the JVM and other
    // tasks live
    // Injection: 32
    @Test
    public void aPanicEndsItsSessionAndNoOther() throws Exception {
        Map<String, String> config = Configs.localTask(folder.newFolder("bad").toPath());
        config.put("frazil.internal.test-panic", "true");
        byte[] panic = {(byte) 255};
        try (NativeSink bad = NativeSink.open(config); NativeSink good = open()) {
            ConnectException error = assertThrowsFatal("PANIC", () -> bad.control(panic));
            assertTrue(error.getMessage(), error.getMessage().contains("a test asked this session to panic"));
            assertTrue(error.getMessage(), error.getMessage().contains("sessions.rs"));
            assertThrowsFatal("SESSION_POISONED", () -> bad.control(Requests.tick()));
            good.control(Requests.tick());
            ConnectException refused = assertThrows(ConnectException.class, () -> good.control(panic));
            assertTrue(refused.getMessage(), !refused.getMessage().contains("PANIC"));
        }
    }

    // Promise: sessions that come and go, and half a million calls, leave no memory behind
    // Injection: 69
    @Test
    public void callsAndSessionsLeaveNoMemoryBehind() throws Exception {
        use(50, 2_000); // until caches, threads and the heap have their size
        long before = residentKilobytes();
        use(50, 10_000);
        long grown = residentKilobytes() - before;
        assertTrue(grown + " kB more than before", grown < 64 * 1024);
    }

    private void use(int sessions, int calls) throws Exception {
        ByteBuffer noise = ByteBuffer.allocateDirect(64);
        for (int session = 0; session < sessions; session++) {
            try (NativeSink sink = open()) {
                for (int call = 0; call < calls; call++) {
                    sink.control(Requests.preCommit(Map.of())); // Answered also after a failure.
                    if (call % 10 == 0) {
                        assertThrows(ConnectException.class, () -> sink.put(noise, 17));
                    }
                }
            }
        }
        System.gc();
    }

    private static long residentKilobytes() throws Exception {
        try (Stream<String> lines = Files.lines(Paths.get("/proc/self/status"))) {
            String line = lines.filter(text -> text.startsWith("VmRSS:")).findFirst().orElseThrow();
            return Long.parseLong(line.replaceAll("[^0-9]", ""));
        }
    }

    private NativeSink open() throws Exception {
        return NativeSink.open(Configs.localTask(folder.newFolder().toPath()));
    }

    private static ConnectException assertThrowsFatal(String code, org.junit.function.ThrowingRunnable call) {
        ConnectException error = assertThrows(ConnectException.class, call);
        assertEquals(ConnectException.class, error.getClass());
        assertTrue(error.getMessage(), error.getMessage().contains("[" + code));
        return error;
    }
}
