package io.frazil.connect;

import java.io.IOException;
import java.io.InputStream;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.security.CodeSource;
import java.security.DigestInputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.kafka.connect.errors.ConnectException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Finds, checks and loads {@code libfrazil.so}, once per plugin class loader and never before a
 * connector is validated or a task starts.
 *
 * <p>Order: the path that {@code frazil.native.path} gives, and then no other; the file beside the
 * jar, in place; a private copy of the one inside the jar, deleted after the load. A failure names
 * every path tried, why it failed and what to do. A library that this jar was not built with is not
 * loaded from the second and third place, and is refused by its version from the first.
 */
final class NativeLibrary {
    /** The key, and the system property, that names the library itself. */
    static final String PATH_KEY = "frazil.native.path";
    /** The key, and the system property, that names the directory to extract into. */
    static final String DIR_KEY = "frazil.native.dir";
    /** The name under which the library is shipped. */
    static final String FILE = "libfrazil.so";

    private static final Logger LOG = LoggerFactory.getLogger(NativeLibrary.class);
    private static boolean loaded;

    private final NativePlatform platform;
    private final Path home;
    private final Function<String, InputStream> resources;
    private final Path temporary;
    private final Consumer<String> loader;
    private final List<String> tried = new ArrayList<>();
    private final List<String> remedies = new ArrayList<>();

    /** {@code home} is the directory of the jar, or null when the classes are not in one. */
    NativeLibrary(
            NativePlatform platform,
            Path home,
            Function<String, InputStream> resources,
            Path temporary,
            Consumer<String> loader) {
        this.platform = platform;
        this.home = home;
        this.resources = resources;
        this.temporary = temporary;
        this.loader = loader;
    }

    /** Loads the library unless it is loaded, and compares its version with the jar's. */
    @SuppressWarnings("UnsafeDynamicallyLoadedCode")
    static synchronized void load(Map<String, String> config) {
        if (loaded) {
            return;
        }
        NativeLibrary library = new NativeLibrary(
                NativePlatform.current(),
                home(),
                name -> NativeLibrary.class.getResourceAsStream("/" + name),
                Paths.get(System.getProperty("java.io.tmpdir", "/tmp")),
                path -> System.load(path)); // no method reference: `load` looks at its caller's class
        String from = library.load(setting(config, PATH_KEY), setting(config, DIR_KEY));
        compareVersions(from);
        loaded = true;
        LOG.info("Loaded the native library {} from {}", Version.JAR, from);
    }

    private static String setting(Map<String, String> config, String key) {
        String value = config.get(key);
        return value != null ? value : System.getProperty(key);
    }

    private static Path home() {
        CodeSource source = NativeLibrary.class.getProtectionDomain().getCodeSource();
        if (source == null || source.getLocation() == null) {
            return null;
        }
        try {
            Path path = Paths.get(source.getLocation().toURI());
            return Files.isRegularFile(path) ? path.getParent() : null;
        } catch (URISyntaxException | IllegalArgumentException e) {
            LOG.debug("The location of this jar is no file: {}", source.getLocation());
            return null;
        }
    }

    private static void compareVersions(String from) {
        String version;
        try {
            version = new String(NativeSink.version(), StandardCharsets.UTF_8);
        } catch (LinkageError e) {
            throw new ConnectException(from + " is not the native library of Frazil " + Version.JAR
                    + "; remove `" + PATH_KEY + "` or let it name the right file [NATIVE_VERSION]", e);
        }
        if (!version.equals(Version.JAR)) {
            throw new ConnectException("the native library " + from + " has version " + version
                    + " and the jar has version " + Version.JAR
                    + "; install both from one release, or remove `" + PATH_KEY + "` [NATIVE_VERSION]");
        }
    }

    /** Tries the places in order and returns the one that worked, in words. */
    String load(String explicitPath, String directory) {
        if (explicitPath != null) {
            if (Files.isRegularFile(Paths.get(explicitPath)) && tryLoad(explicitPath, explicitPath)) {
                return explicitPath;
            }
            if (tried.isEmpty()) {
                tried.add(explicitPath + ": there is no such file");
            }
            remedies.add("correct `" + PATH_KEY + "` or remove it");
            throw failure();
        }
        tried.add("`" + PATH_KEY + "` is not set");
        Path beside = home == null ? null : home.resolve(platform.resource(FILE));
        if (beside != null && besideTheJar(beside)) {
            return beside.toString();
        }
        Path into;
        try {
            into = directory == null ? temporary : Paths.get(directory);
        } catch (InvalidPathException e) {
            throw new ConnectException("`" + DIR_KEY + "` is not a path [NATIVE_LIBRARY]", e);
        }
        if (extracted(into)) {
            return "the jar by way of " + into;
        }
        throw failure();
    }

    private boolean besideTheJar(Path file) {
        if (!Files.isRegularFile(file)) {
            tried.add(file + ": there is no such file");
            return false;
        }
        try {
            String expected = packedHash();
            if (expected != null && !expected.equals(hashOf(file))) {
                tried.add(file + ": it is not the library that this jar was built with");
                LOG.warn("{} is not the library that this jar was built with; not loaded", file);
                return false;
            }
        } catch (IOException e) {
            tried.add(file + ": it cannot be read: " + e);
            return false;
        }
        return tryLoad(file.toString(), file.toString());
    }

    private boolean extracted(Path directory) {
        String resource = platform.resource(FILE);
        String where = directory + " (extracted)";
        Path file = null;
        try (InputStream packed = resources.apply(resource)) {
            String expected = packedHash();
            if (packed == null || expected == null) {
                tried.add(resource + " in the jar: this jar has no library for " + platform);
                remedies.add("install the build for " + platform
                        + ", or build the library there and set `" + PATH_KEY + "`");
                return false;
            }
            file = Files.createTempFile(directory, "libfrazil-" + Version.JAR + "-", ".so");
            String found = copy(packed, file);
            if (!found.equals(expected)) {
                tried.add(where + ": the copy's hash differs from the packed one");
                remedies.add("install the jar again: it is damaged, or " + directory + " is written to by others");
                return false;
            }
            return tryLoad(file.toString(), where);
        } catch (IOException e) {
            tried.add(where + ": " + NativeFailure.ofWriting(directory, e));
            remedies.add(NativeFailure.remedyOfDirectory(DIR_KEY));
            return false;
        } finally {
            delete(file);
        }
    }

    private boolean tryLoad(String path, String shown) {
        try {
            loader.accept(Paths.get(path).toAbsolutePath().toString());
            return true;
        } catch (LinkageError e) {
            NativeFailure reason = NativeFailure.ofLoading(Paths.get(path), e, platform);
            tried.add(shown + ": " + reason.text());
            remedies.add(reason.remedy());
            LOG.debug("Cannot load {}", shown, e);
            return false;
        }
    }

    private String packedHash() throws IOException {
        try (InputStream packed = resources.apply(platform.resource(FILE + ".sha256"))) {
            if (packed == null) {
                return null;
            }
            return new String(packed.readAllBytes(), StandardCharsets.US_ASCII).trim().toLowerCase(Locale.ROOT);
        }
    }

    private static String hashOf(Path file) throws IOException {
        try (DigestInputStream in = new DigestInputStream(Files.newInputStream(file), sha256())) {
            byte[] chunk = new byte[1 << 16];
            while (in.read(chunk) >= 0) {
                // Reading is what feeds the digest.
            }
            return hex(in.getMessageDigest().digest());
        }
    }

    private static String copy(InputStream from, Path to) throws IOException {
        DigestInputStream in = new DigestInputStream(from, sha256());
        try (java.io.OutputStream out = Files.newOutputStream(to)) {
            in.transferTo(out);
        }
        return hex(in.getMessageDigest().digest());
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new ConnectException("this JVM has no SHA-256 [NATIVE_LIBRARY]", e);
        }
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder(bytes.length * 2);
        for (byte b : bytes) {
            text.append(Character.forDigit((b >> 4) & 15, 16)).append(Character.forDigit(b & 15, 16));
        }
        return text.toString();
    }

    private static void delete(Path file) {
        if (file == null) {
            return;
        }
        try {
            Files.deleteIfExists(file);
        } catch (IOException e) {
            LOG.warn("Cannot delete {}; it may be deleted by hand", file, e);
        }
    }

    private ConnectException failure() {
        StringBuilder text = new StringBuilder("cannot load the native library of Frazil ")
                .append(Version.JAR).append(" for ").append(platform).append(". Tried: ");
        for (int i = 0; i < tried.size(); i++) {
            text.append(i == 0 ? "" : "; ").append(i + 1).append(") ").append(tried.get(i));
        }
        text.append(". Remedy: ").append(String.join("; ", new java.util.LinkedHashSet<>(remedies)));
        return new ConnectException(text.append(" [NATIVE_LIBRARY]").toString());
    }
}
