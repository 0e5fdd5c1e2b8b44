package io.frazil.connect;

import org.apache.kafka.connect.sink.SinkRecord;

/** Why a record does not fit: never its value. */
final class Rejection {
    private final String code;
    private final String table;
    private final String column;
    private final String reason;

    /** An empty table or column is not known. */
    Rejection(String code, String table, String column, String reason) {
        this.code = code;
        this.table = table;
        this.column = column;
        this.reason = reason;
    }

    /** Takes over what an encoder says, whose reason begins with the column. */
    static Rejection ofEncoder(String code, String reason) {
        String before = "column `";
        int end = reason.startsWith(before) ? reason.indexOf('`', before.length()) : -1;
        return new Rejection(code, "", end < 0 ? "" : reason.substring(before.length(), end), reason);
    }

    String code() {
        return code;
    }

    String table() {
        return table;
    }

    String column() {
        return column;
    }

    String reason() {
        return reason;
    }

    /** Returns one JSON object for those who read dead letters with a program. */
    String toJson(SinkRecord record) {
        StringBuilder json = new StringBuilder(160);
        field(json.append('{'), "code", code);
        field(json.append(','), "table", table);
        field(json.append(','), "column", column);
        field(json.append(','), "topic", record.originalTopic());
        json.append(",\"partition\":").append(record.originalKafkaPartition());
        json.append(",\"offset\":").append(record.originalKafkaOffset());
        field(json.append(','), "reason", of(record));
        return json.append('}').toString();
    }

    /** Returns one line for people. */
    String of(SinkRecord record) {
        return "record " + record.originalTopic() + "-" + record.originalKafkaPartition() + "-"
                + record.originalKafkaOffset() + ": " + this;
    }

    /** What the native side says has the code in it already. */
    @Override
    public String toString() {
        return reason.contains("[" + code) ? reason : reason + " [" + code + "]";
    }

    private static void field(StringBuilder json, String name, String value) {
        json.append('"').append(name).append("\":");
        if (value == null || value.isEmpty()) {
            json.append("null");
            return;
        }
        json.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c < ' ') {
                json.append(String.format("\\u%04x", (int) c));
            } else {
                json.append(c);
            }
        }
        json.append('"');
    }
}
