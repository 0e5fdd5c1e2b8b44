package io.frazil.connect;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.connect.errors.ConnectException;

/**
 * The keys as Connect sees them, from {@code config-keys.tsv}, which is generated from the one table
 * of keys in {@code core/config}. What a value means is decided there, not here.
 */
final class SinkConfig {
    private static final String TABLE = "config-keys.tsv";
    /** Set by the connector for its tasks, never by a person. */
    private static final String INTERNAL = "frazil.internal.";

    private SinkConfig() {}

    /** Returns the keys that have one fixed name. */
    static ConfigDef definition() {
        ConfigDef definition = new ConfigDef();
        for (String[] row : Table.ROWS) {
            define(definition, row);
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
        String words = "-" + name.toLowerCase(Locale.ROOT).replace('.', '-').replace('_', '-') + "-";
        return Table.SECRET_MARKERS.stream().anyMatch(words::contains);
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

    /** Columns: name, type, default, importance, class, documentation. */
    private static void define(ConfigDef definition, String[] row) {
        String name = row[0];
        if (!isOurs(name) || name.startsWith(INTERNAL) || !name.matches("[A-Za-z0-9._-]+")) {
            return; // Connect's own, ours for tasks, or a name with a placeholder.
        }
        Type type = isSecret(name) ? Type.PASSWORD : Type.valueOf(row[1]);
        Object defaultValue = row[2].equals("\\N") ? null : unescape(row[2]);
        definition.define(name, type, defaultValue, Importance.valueOf(row[3]), unescape(row[5]));
    }

    private static String unescape(String text) {
        StringBuilder plain = new StringBuilder(text.length());
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '\\' && i + 1 < text.length()) {
                char escaped = text.charAt(++i);
                plain.append(escaped == 't' ? '\t' : escaped == 'n' ? '\n' : escaped);
            } else {
                plain.append(c);
            }
        }
        return plain.toString();
    }

    /** The generated file, read once: rows of keys, and the markers of secrets. */
    private static final class Table {
        static final List<String[]> ROWS = new ArrayList<>();
        static final List<String> SECRET_MARKERS = new ArrayList<>();

        static {
            try (InputStream in = SinkConfig.class.getResourceAsStream(TABLE)) {
                if (in == null) {
                    throw new ConnectException("this jar has no " + TABLE + ": it was not made by the build");
                }
                BufferedReader lines = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8));
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    String[] row = line.split("\t", -1);
                    if (row[0].equals("@secret")) {
                        SECRET_MARKERS.add(row[1]);
                    } else if (!line.startsWith("#") && row.length == 6) {
                        ROWS.add(row);
                    }
                }
            } catch (IOException e) {
                throw new ConnectException("cannot read " + TABLE + " of this jar", e);
            }
        }

        private Table() {}
    }
}
