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
import org.apache.kafka.common.config.ConfigDef.Recommender;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.Width;
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
        int order = 0;
        for (Row row : Table.ROWS) {
            define(definition, row, ++order);
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

    /** Defines one row; its place among the rows is its order in its group. */
    private static void define(ConfigDef definition, Row row, int order) {
        if (!row.isFixed()) {
            return;
        }
        Type type = isSecret(row.name) ? Type.PASSWORD : Type.valueOf(row.type);
        definition.define(row.name, type, row.defaultValue, Importance.valueOf(row.importance), row.documentation,
                row.group, order, widthOf(type), row.displayName, dependentsOf(row.name), new Choice(row));
    }

    /** Returns the keys that have a meaning only with some values of this one. */
    private static List<String> dependentsOf(String name) {
        List<String> dependents = new ArrayList<>();
        for (Row row : Table.ROWS) {
            if (row.isFixed() && row.whenKey.equals(name)) {
                dependents.add(row.name);
            }
        }
        return dependents;
    }

    private static Width widthOf(Type type) {
        switch (type) {
            case BOOLEAN:
            case INT:
            case LONG:
                return Width.SHORT;
            case LIST:
                return Width.LONG;
            default:
                return Width.MEDIUM;
        }
    }

    /** One key of the table. */
    private static final class Row {
        final String name;
        final String type;
        final String defaultValue;
        final String importance;
        final String group;
        final String displayName;
        final List<String> words;
        final String whenKey;
        final List<String> whenWords;
        final String documentation;

        /** Columns: name, type, default, importance, class, group, display name, words, when, documentation. */
        Row(String[] columns) {
            name = columns[0];
            type = columns[1];
            defaultValue = columns[2].equals("\\N") ? null : unescape(columns[2]);
            importance = columns[3];
            group = columns[5];
            displayName = columns[6];
            words = columns[7].isEmpty() ? List.of() : List.of(columns[7].split(","));
            String[] when = columns[8].split("=", 2);
            whenKey = when[0];
            whenWords = when.length < 2 ? List.of() : List.of(when[1].split(","));
            documentation = unescape(columns[9]);
        }

        /** Returns whether it is a key of one name that people set: not Connect's, and no pattern. */
        boolean isFixed() {
            return isOurs(name) && !name.startsWith(INTERNAL) && name.matches("[A-Za-z0-9._-]+");
        }
    }

    /** What a form offers for a key, and whether it need show the key at all. */
    private static final class Choice implements Recommender {
        private final Row row;

        Choice(Row row) {
            this.row = row;
        }

        @Override
        public List<Object> validValues(String name, Map<String, Object> parsed) {
            List<Object> values = new ArrayList<>();
            for (String word : row.words) {
                values.add(row.type.equals("BOOLEAN") ? (Object) Boolean.valueOf(word) : word);
            }
            return values;
        }

        @Override
        public boolean visible(String name, Map<String, Object> parsed) {
            if (row.whenKey.isEmpty()) {
                return true;
            }
            Object value = parsed.get(row.whenKey);
            // Not set: the form may be at its beginning.
            return value == null || row.whenWords.contains(value.toString().trim().toLowerCase(Locale.ROOT));
        }
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
        static final List<Row> ROWS = new ArrayList<>();
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
                    } else if (!line.startsWith("#") && row.length == 10) {
                        ROWS.add(new Row(row));
                    }
                }
            } catch (IOException e) {
                throw new ConnectException("cannot read " + TABLE + " of this jar", e);
            }
        }

        private Table() {}
    }
}
