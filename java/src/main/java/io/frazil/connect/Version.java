package io.frazil.connect;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;

/** The version of this jar, written into it by the build from the one in Cargo.toml. */
final class Version {
    /** {@code undefined} in classes that the build did not package: no library has that version. */
    static final String JAR = read();

    private Version() {}

    private static String read() {
        try (InputStream in = Version.class.getResourceAsStream("version.txt")) {
            return in == null ? "undefined" : new String(in.readAllBytes(), StandardCharsets.UTF_8).trim();
        } catch (IOException e) {
            return "undefined"; // Connect asks for the version while it scans, where a throw hides the plugin.
        }
    }
}
