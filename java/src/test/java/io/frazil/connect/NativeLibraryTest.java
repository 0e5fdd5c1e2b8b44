package io.frazil.connect;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.connect.errors.ConnectException;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Which library is taken, and what a person is told when none can be. */
public class NativeLibraryTest {
    private static final NativePlatform PLATFORM = new NativePlatform("Linux", "amd64", false);
    private static final byte[] LIBRARY = "library".getBytes(StandardCharsets.UTF_8);

    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    private final Map<String, byte[]> packed = new HashMap<>();
    private final List<String> loaded = new ArrayList<>();

    @Test
    public void platformsAreNamedAsTheBuildNamesThem() {
        assertEquals("linux-x86_64", PLATFORM.toString());
        assertEquals("linux-aarch64-musl", new NativePlatform("Linux", "aarch64", true).toString());
        assertEquals("macos-aarch64", new NativePlatform("Mac OS X", "arm64", false).toString());
        assertEquals(System.getProperty("frazil.test.platform"), NativePlatform.current().toString());
    }

    @Test
    public void theExplicitPathIsTakenBeforeAllElse() throws Exception {
        pack(LIBRARY, LIBRARY);
        Path file = folder.newFile("mine.so").toPath();
        assertEquals(file.toString(), library(folder.getRoot().toPath(), loaded::add).load(file.toString(), null));
        assertEquals(List.of(file.toString()), loaded);
    }

    @Test
    public void anExplicitPathThatIsWrongIsAnErrorAndNothingElseIsTried() throws Exception {
        pack(LIBRARY, LIBRARY);
        String message = messageOf(() -> library(null, loaded::add).load("/nowhere/lib.so", null));
        assertTrue(message, message.contains("/nowhere/lib.so: there is no such file"));
        assertTrue(message, message.contains("correct `frazil.native.path` or remove it"));
        assertEquals(List.of(), loaded);
    }

    @Test
    public void theLibraryBesideTheJarIsLoadedInPlace() throws Exception {
        pack(LIBRARY, LIBRARY);
        Path beside = besideTheJar(LIBRARY);
        library(folder.getRoot().toPath(), loaded::add).load(null, null);
        assertEquals(List.of(beside.toString()), loaded);
    }

    @Test
    public void aStaleLibraryBesideTheJarIsPassedOver() throws Exception {
        pack(LIBRARY, LIBRARY);
        besideTheJar("older".getBytes(StandardCharsets.UTF_8));
        library(folder.getRoot().toPath(), loaded::add).load(null, folder.newFolder("x").getPath());
        assertEquals(1, loaded.size());
        assertTrue(loaded.get(0), loaded.get(0).contains("/x/libfrazil-"));
    }

    @Test
    public void anExtractedLibraryHasAUniqueNameAndIsDeletedAfterTheLoad() throws Exception {
        pack(LIBRARY, LIBRARY);
        File into = folder.newFolder("into");
        Consumer<String> loader = path -> {
            assertTrue(new File(path).isFile());
            loaded.add(path);
        };
        library(null, loader).load(null, into.getPath());
        library(null, loader).load(null, into.getPath());
        assertEquals(2, loaded.stream().distinct().count());
        assertEquals(0, into.list().length);
    }

    @Test
    public void aWrongHashIsRefusedAndLeavesNothingBehind() throws Exception {
        pack(LIBRARY, "other".getBytes(StandardCharsets.UTF_8));
        File into = folder.newFolder("into");
        String message = messageOf(() -> library(null, loaded::add).load(null, into.getPath()));
        assertTrue(message, message.contains("hash differs"));
        assertEquals(List.of(), loaded);
        assertEquals(0, into.list().length);
    }

    @Test
    public void aMissingBuildNamesThePlatformAndTheRemedy() {
        NativePlatform alpine = new NativePlatform("Linux", "aarch64", true);
        NativeLibrary library = new NativeLibrary(alpine, null, this::resource, folder.getRoot().toPath(), loaded::add);
        String message = messageOf(() -> library.load(null, null));
        assertTrue(message, message.contains("for linux-aarch64-musl"));
        assertTrue(message, message.contains("this jar has no library for linux-aarch64-musl"));
        assertTrue(message, message.contains("install the build for linux-aarch64-musl"));
    }

    @Test
    public void aMissingDirectoryIsNamed() throws Exception {
        pack(LIBRARY, LIBRARY);
        String message = messageOf(() -> library(null, loaded::add).load(null, "/nowhere/at/all"));
        assertTrue(message, message.contains("/nowhere/at/all (extracted): there is no such directory"));
        assertTrue(message, message.contains("set `frazil.native.dir`"));
    }

    @Test
    public void whatTheDynamicLoaderSaysIsExplained() throws Exception {
        assertExplained("x.so: failed to map segment from shared object", "does not allow executable files");
        assertExplained("x.so: wrong ELF class: ELFCLASS32", "architecture of linux-x86_64");
        assertExplained("libc.so.6: version `GLIBC_2.99' not found", "another C library");
        assertExplained("x.so already loaded in another classloader", "another plugin");
    }

    @Test
    public void theJarAloneLoadsByExtraction() throws Exception {
        Path home = installJar();
        Path temporary = folder.newFolder("tmp").toPath();
        assertEquals("LOADED " + Version.JAR, probe(home, temporary));
        try (Stream<Path> left = Files.list(temporary)) {
            assertEquals(List.of(), left.filter(p -> p.toString().endsWith(".so")).collect(Collectors.toList()));
        }
    }

    @Test
    public void theZipsLayoutNeedsNoTemporarySpace() throws Exception {
        Path home = installJar();
        Path beside = home.resolve(NativePlatform.current().resource(NativeLibrary.FILE));
        Files.createDirectories(beside.getParent());
        Files.copy(Path.of(System.getProperty("frazil.test.library")), beside);
        assertEquals("LOADED " + Version.JAR, probe(home, Path.of("/nowhere/at/all")));
    }

    @Test
    public void aNoexecDirectoryIsNamedAndAnotherOneHelps() throws Exception {
        Path home = installJar();
        Path noexec = folder.newFolder("noexec").toPath();
        Processes.run("mount", "-t", "tmpfs", "-o", "noexec,size=256m", "tmpfs", noexec.toString());
        try {
            String answer = probe(home, noexec);
            assertTrue(answer, answer.startsWith("FAILED ConnectException"));
            assertTrue(answer, answer.contains(noexec + " is mounted noexec"));
            assertTrue(answer, answer.contains("set `frazil.native.dir`"));
            String elsewhere = NativeLibrary.DIR_KEY + "=" + folder.newFolder("exec");
            assertEquals("LOADED " + Version.JAR, probe(home, noexec, elsewhere));
        } finally {
            Processes.run("umount", noexec.toString());
        }
    }

    @Test
    public void aFullDirectoryIsNamedAndLeftEmpty() throws Exception {
        Path home = installJar();
        Path small = folder.newFolder("small").toPath();
        Processes.run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small.toString());
        try {
            String answer = probe(home, small);
            assertTrue(answer, answer.contains(small + " (extracted): no space is left on its file system"));
            try (Stream<Path> left = Files.list(small)) {
                assertFalse(left.anyMatch(path -> path.toString().endsWith(".so")));
            }
        } finally {
            Processes.run("umount", small.toString());
        }
    }

    @Test
    public void aFileThatIsNoLibraryIsCalledSo() throws Exception {
        Path text = folder.newFile("text.so").toPath();
        Files.writeString(text, "not a library");
        String answer = probe(installJar(), folder.getRoot().toPath(), NativeLibrary.PATH_KEY + "=" + text);
        assertTrue(answer, answer.startsWith("FAILED ConnectException"));
        assertTrue(answer, answer.contains(text.toString()));
        assertTrue(answer, answer.contains("[NATIVE_LIBRARY]"));
    }

    // Promise: the native library exports one symbol, `JNI_OnLoad`
    @Test
    public void theLibraryExportsOneSymbol() throws Exception {
        String printed = Processes.run("nm", "-D", "--defined-only", System.getProperty("frazil.test.library"));
        List<String> names = printed.lines()
                .map(line -> line.substring(line.lastIndexOf(' ') + 1))
                .collect(Collectors.toList());
        assertEquals(List.of("JNI_OnLoad"), names);
    }

    private void assertExplained(String said, String explained) throws Exception {
        Path file = folder.getRoot().toPath().resolve("x.so");
        NativeFailure failure = NativeFailure.ofLoading(file, new UnsatisfiedLinkError(said), PLATFORM);
        assertTrue(failure.text(), failure.text().contains(explained));
        assertFalse(failure.remedy().isEmpty());
    }

    private NativeLibrary library(Path home, Consumer<String> loader) {
        return new NativeLibrary(PLATFORM, home, this::resource, folder.getRoot().toPath(), loader);
    }

    private InputStream resource(String name) {
        byte[] bytes = packed.get(name);
        return bytes == null ? null : new ByteArrayInputStream(bytes);
    }

    private void pack(byte[] library, byte[] hashed) throws Exception {
        packed.put(PLATFORM.resource(NativeLibrary.FILE), library);
        StringBuilder hash = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-256").digest(hashed)) {
            hash.append(String.format("%02x", b));
        }
        packed.put(PLATFORM.resource(NativeLibrary.FILE + ".sha256"),
                hash.append('\n').toString().getBytes(StandardCharsets.US_ASCII));
    }

    private Path besideTheJar(byte[] library) throws IOException {
        Path file = folder.getRoot().toPath().resolve(PLATFORM.resource(NativeLibrary.FILE));
        Files.createDirectories(file.getParent());
        return Files.write(file, library);
    }

    private static String messageOf(org.junit.function.ThrowingRunnable load) {
        return assertThrows(ConnectException.class, load).getMessage();
    }

    private Path installJar() throws IOException {
        Path home = folder.newFolder("plugin").toPath();
        Path jar = Path.of(System.getProperty("frazil.test.jar"));
        Files.copy(jar, home.resolve(jar.getFileName()));
        return home;
    }

    /** The jar comes first on the class path, so the classes under test are the packaged ones. */
    private static String probe(Path home, Path temporary, String... config) throws Exception {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xcheck:jni",
                "-Djava.io.tmpdir=" + temporary,
                "-cp",
                home + "/*" + File.pathSeparator + System.getProperty("java.class.path"),
                LoadProbe.class.getName()));
        Collections.addAll(command, config);
        String printed = Processes.run(command.toArray(new String[0]));
        assertFalse("-Xcheck:jni has something to say: " + printed, printed.contains("WARNING in native method"));
        return printed.lines()
                .filter(line -> line.startsWith("LOADED") || line.startsWith("FAILED"))
                .collect(Collectors.joining("\n"));
    }
}
