package io.frazil.connect;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Locale;

/** The operating system, processor and C library that a native library is built for. */
final class NativePlatform {
    private final String name;

    /** Names a platform from what {@code os.name} and {@code os.arch} say and the libc in use. */
    NativePlatform(String os, String arch, boolean musl) {
        this.name = os(os) + "-" + arch(arch) + (musl ? "-musl" : "");
    }

    /** Returns the platform of this JVM. */
    static NativePlatform current() {
        String os = System.getProperty("os.name", "unknown");
        return new NativePlatform(os, System.getProperty("os.arch", "unknown"), os(os).equals("linux") && musl());
    }

    /** Returns the path of a file under {@code native/}, as a resource and beside the jar alike. */
    String resource(String file) {
        return "native/" + name + "/" + file;
    }

    /** Returns {@code os-arch} or {@code os-arch-musl}. */
    @Override
    public String toString() {
        return name;
    }

    private static String os(String os) {
        String lower = os.toLowerCase(Locale.ROOT);
        if (lower.startsWith("linux")) {
            return "linux";
        }
        return lower.startsWith("mac") ? "macos" : lower.replaceAll("[^a-z0-9]+", "_");
    }

    private static String arch(String arch) {
        switch (arch.toLowerCase(Locale.ROOT)) {
            case "amd64":
            case "x86_64":
                return "x86_64";
            case "aarch64":
            case "arm64":
                return "aarch64";
            default:
                return arch.toLowerCase(Locale.ROOT).replaceAll("[^a-z0-9]+", "_");
        }
    }

    /** Asks which loader this very process uses: Alpine may carry glibc's beside its own. */
    private static boolean musl() {
        try {
            Path maps = Paths.get("/proc/self/maps");
            return new String(Files.readAllBytes(maps), StandardCharsets.ISO_8859_1).contains("/ld-musl-");
        } catch (IOException e) {
            return Files.exists(Paths.get("/lib/ld-musl-x86_64.so.1"))
                    || Files.exists(Paths.get("/lib/ld-musl-aarch64.so.1"));
        }
    }
}
