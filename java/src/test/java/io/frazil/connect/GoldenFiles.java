package io.frazil.connect;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Files in {@code tests/wire} that one language writes and the other reads.
 *
 * <p>A file of frames is a list of items: a byte that says what it is (1 schema, 2 frame,
 * 3 request), its length as a big-endian 32-bit number, its bytes. {@code -Dfrazil.updateGolden=true} writes
 * the files that Java owns instead of comparing them.
 */
final class GoldenFiles {
    private static final int SCHEMA = 1;
    private static final int FRAME = 2;
    private static final int REQUEST = 3;

    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    private final DataOutputStream items = new DataOutputStream(bytes);
    private final List<byte[]> schemas = new ArrayList<>();
    private final List<String> failures = new ArrayList<>();

    /** Registers as the native side does: the same bytes get the same id. */
    int register(byte[] schema) {
        for (int index = 0; index < schemas.size(); index++) {
            if (Arrays.equals(schemas.get(index), schema)) {
                return index + 1;
            }
        }
        schemas.add(schema);
        item(SCHEMA, schema);
        return schemas.size();
    }

    /** Encodes one {@code put}; returns the rows of each frame. */
    List<List<SinkRecord>> put(BatchEncoder encoder, List<SinkRecord> records) {
        List<List<SinkRecord>> frames = new ArrayList<>();
        encoder.encode(records, this::register, new BatchEncoder.Sink() {
            @Override
            public void block(ByteBuffer frame, int length, List<SinkRecord> rows) {
                byte[] copy = new byte[length];
                frame.duplicate().get(copy);
                item(FRAME, copy);
                frames.add(rows);
            }

            @Override
            public void unencodable(SinkRecord record, Rejection reason) {
                failures.add(record.kafkaOffset() + ": " + reason);
            }
        });
        return frames;
    }

    void request(byte[] request) {
        item(REQUEST, request);
    }

    /** Returns what was unencodable, as {@code offset: reason}. */
    List<String> failures() {
        return failures;
    }

    private void item(int kind, byte[] item) {
        try {
            items.writeByte(kind);
            items.writeInt(item.length);
            items.write(item);
        } catch (IOException impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** Compares with the checked-in file, or writes it. */
    void verify(String name) throws IOException {
        Path file = directory().resolve(name);
        if (Boolean.getBoolean("frazil.updateGolden")) {
            Files.createDirectories(file.getParent());
            Files.write(file, bytes.toByteArray());
        }
        assertTrue(file + " is missing", Files.exists(file));
        assertArrayEquals(
                "the bytes of " + name + " changed; see docs/wire-format.md, \"How to change it\"",
                Files.readAllBytes(file),
                bytes.toByteArray());
    }

    static byte[] read(String name) throws IOException {
        return Files.readAllBytes(directory().resolve(name));
    }

    /** Finds {@code tests/wire} from the repository's root or any directory in it. */
    private static Path directory() {
        for (Path at = Paths.get("").toAbsolutePath(); at != null; at = at.getParent()) {
            if (Files.isRegularFile(at.resolve("Cargo.toml")) && Files.isDirectory(at.resolve("tests"))) {
                return at.resolve("tests").resolve("wire");
            }
        }
        throw new AssertionError("run the tests inside the repository");
    }
}
