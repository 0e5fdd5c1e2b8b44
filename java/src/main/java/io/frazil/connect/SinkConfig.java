package io.frazil.connect;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.connect.errors.ConnectException;

/**
 * The keys as Connect sees them, from {@code config-keys.tsv}, which the build's check compares with
 * the one table of keys in {@code core/config}. What a value means is decided there, not here.
 */
final class SinkConfig {
    private static final Pattern SECRET =
            Pattern.compile("secret|token|password|credential|sas|account-key|jaas");
    private static final String TABLE = "config-keys.tsv";

    private SinkConfig() {}

    /** Returns the keys that have one fixed name. */
    static ConfigDef definition() {
        ConfigDef definition = new ConfigDef();
        try (InputStream in = SinkConfig.class.getResourceAsStream(TABLE)) {
            if (in == null) {
                throw new ConnectException("this jar has no " + TABLE + ": it was not made by the build");
            }
            BufferedReader lines = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                define(definition, line.split("\t", -1));
            }
        } catch (IOException e) {
            throw new ConnectException("cannot read " + TABLE + " of this jar", e);
        }
        return definition;
    }

    /**
     * Returns the keys with one fixed name and those that were submitted. Every key whose name says
     * that it is a secret has type PASSWORD, so that REST answers show {@code [hidden]}.
     */
    static ConfigDef definition(Map<String, String> submitted) {
        ConfigDef definition = definition();
        for (String name : submitted.keySet()) {
            if (isOurs(name) && !definition.names().contains(name)) {
                Type type = isSecret(name) ? Type.PASSWORD : Type.STRING;
                definition.define(name, type, null, Importance.LOW, "");
            }
        }
        return definition;
    }

    /** Returns whether the name of a key says that its value must not be shown. */
    static boolean isSecret(String name) {
        return SECRET.matcher(name.toLowerCase(Locale.ROOT)).find();
    }

    /** Returns whether a key is read by this connector and not by the Connect framework. */
    static boolean isOurs(String name) {
        return name.startsWith("iceberg.") || name.startsWith("frazil.");
    }

    /** Encodes a string map: u32 count, then per entry a key and a value, each u32 length and UTF-8. */
    static byte[] encode(Map<String, String> config) {
        Map<byte[], byte[]> entries = new LinkedHashMap<>();
        int size = 4;
        for (Map.Entry<String, String> entry : config.entrySet()) {
            if (entry.getValue() != null) {
                byte[] key = entry.getKey().getBytes(StandardCharsets.UTF_8);
                byte[] value = entry.getValue().getBytes(StandardCharsets.UTF_8);
                entries.put(key, value);
                size += 8 + key.length + value.length;
            }
        }
        ByteBuffer bytes = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN).putInt(entries.size());
        entries.forEach((key, value) ->
                bytes.putInt(key.length).put(key).putInt(value.length).put(value));
        return bytes.array();
    }

    /** Columns: name, type, default, importance, class, doc. A name with a placeholder is no key yet. */
    private static void define(ConfigDef definition, String[] columns) {
        if (columns.length < 6 || !isOurs(columns[0]) || !columns[0].matches("[A-Za-z0-9._-]+")) {
            return; // The header line, a prefix, or a key that Connect itself defines.
        }
        Type type = isSecret(columns[0])
                ? Type.PASSWORD
                : Type.valueOf(columns[1].toUpperCase(Locale.ROOT));
        Importance importance = Importance.valueOf(columns[3].toUpperCase(Locale.ROOT));
        Object defaultValue = columns[2].isEmpty() ? null : columns[2];
        definition.define(columns[0], type, defaultValue, importance, columns[5]);
    }
}
