package io.frazil.connect;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;

/** Why a native library did not load, in words, with what to do about it. */
final class NativeFailure {
    private final String text;
    private final String remedy;

    private NativeFailure(String text, String remedy) {
        this.text = text;
        this.remedy = remedy;
    }

    String text() {
        return text;
    }

    String remedy() {
        return remedy;
    }

    /** Explains what {@code System.load} threw. The text is the dynamic loader's; it has no codes. */
    static NativeFailure ofLoading(Path file, LinkageError error, NativePlatform platform) {
        String message = String.valueOf(error.getMessage());
        Path directory = file.toAbsolutePath().getParent();
        if (message.contains("failed to map segment") || message.contains("Operation not permitted")) {
            String mounted = isNoexec(directory) ? " is mounted noexec" : " does not allow executable files";
            return new NativeFailure(directory + mounted, remedyOfDirectory(NativeLibrary.DIR_KEY));
        }
        if (message.contains("wrong ELF class") || message.contains("invalid ELF header")
                || message.contains("Possible cause") || message.contains("incompatible architecture")) {
            return new NativeFailure("it is no library for the architecture of " + platform,
                    "install the build for " + platform);
        }
        if (message.contains("GLIBC_") || message.contains("ld-linux") || message.contains("libc.musl")
                || message.contains("symbol not found") || message.contains("Error relocating")) {
            return new NativeFailure("it is built for another C library than this system's: " + message,
                    "use an image with a newer glibc, or the build for this system's C library");
        }
        if (message.contains("already loaded in another classloader")) {
            return new NativeFailure("another plugin of this worker has loaded this very file",
                    "install the plugin once in `plugin.path`, or give this copy another path");
        }
        return new NativeFailure(message, "see the message of the dynamic loader");
    }

    /** Explains why a file could not be written to {@code directory}. */
    static String ofWriting(Path directory, IOException error) {
        String message = String.valueOf(error.getMessage());
        if (error instanceof NoSuchFileException || !Files.isDirectory(directory)) {
            return "there is no such directory";
        }
        if (message.contains("No space left") || message.contains("Disk quota")) {
            return "no space is left on its file system";
        }
        if (!Files.isWritable(directory) || message.contains("Read-only")) {
            return "it is not writable";
        }
        return "it cannot be written to: " + error;
    }

    static String remedyOfDirectory(String key) {
        return "set `" + key + "` to a directory with room for the library on a file system that is"
                + " writable and not mounted noexec, or install from the zip, which has the library"
                + " beside the jar and needs no extraction";
    }

    private static boolean isNoexec(Path directory) {
        String longest = "";
        boolean noexec = false;
        try {
            for (String line : Files.readAllLines(Paths.get("/proc/self/mounts"), StandardCharsets.ISO_8859_1)) {
                String[] fields = line.split(" ");
                if (fields.length < 4) {
                    continue;
                }
                String point = fields[1].replace("\\040", " ");
                if (directory.startsWith(Paths.get(point)) && point.length() >= longest.length()) {
                    longest = point;
                    noexec = ("," + fields[3] + ",").contains(",noexec,");
                }
            }
        } catch (IOException | java.nio.file.InvalidPathException e) {
            return false; // Not Linux, or no /proc: the caller's other wording is true there too.
        }
        return noexec;
    }
}
