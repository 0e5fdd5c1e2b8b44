package io.frazil.connect;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;

/** Runs a command and returns what it printed. */
final class Processes {
    private Processes() {}

    static String run(String... command) throws IOException, InterruptedException {
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        process.getOutputStream().close();
        String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (!process.waitFor(60, TimeUnit.SECONDS)) {
            process.destroyForcibly();
            throw new IOException(command[0] + " did not end in 60 s; it printed: " + printed);
        }
        if (process.exitValue() != 0) {
            throw new IOException(command[0] + " ended with " + process.exitValue() + ": " + printed);
        }
        return printed;
    }
}
