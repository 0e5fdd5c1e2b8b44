package io.frazil.connect;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** Runs in a JVM of its own: loads the library as a worker would and prints what came of it. */
public final class LoadProbe {
    private LoadProbe() {}

    public static void main(String[] arguments) {
        Map<String, String> config = new HashMap<>();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            config.put(pair[0], pair[1]);
        }
        try {
            NativeLibrary.load(config);
            System.out.println("LOADED " + new String(NativeSink.version(), StandardCharsets.UTF_8));
        } catch (RuntimeException e) {
            System.out.println("FAILED " + e.getClass().getSimpleName() + " " + e.getMessage());
        }
    }
}
