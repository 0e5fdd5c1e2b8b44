package io.frazil.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.transforms.Transformation;

/** The records of a case in their order, cut into the calls in which they are delivered. */
final class Steps {
  static final String TOPIC = "t";
  private static final Set<String> RECORD_KEYS = Set.of("value", "schema", "key", "key-schema", "topic", "partition",
      "offset", "timestamp", "headers", "row", "rows", "error", "bytes", "task", "about", "dropped");

  /** One call or action. */
  sealed interface Step permits Put, Commit, Restart {}

  /** Records that one call of {@code put} delivers to one task. */
  record Put(int task, List<Sent> records) implements Step {}

  /** Waits until everything sent is in the tables. */
  record Commit() implements Step {}

  /** Stops the tasks and starts them again, with other keys. */
  record Restart(JsonNode config) implements Step {}

  /** A record with what the case says about it; null after transforms that dropped it. */
  record Sent(SinkRecord record, JsonNode notation, String coordinates) {}

  final List<Step> steps = new ArrayList<>();
  /** Everything that is sent, in order. */
  final List<Sent> sent = new ArrayList<>();
  private final Case body;
  private final Map<String, Long> nextOffsets = new HashMap<>();
  private final List<Transformation<SinkRecord>> transforms = new ArrayList<>();
  private final Map<String, String> config;
  private Schema valueSchema;
  private Schema keySchema;

  Steps(Case body, Map<String, String> config) {
    this.body = body;
    this.config = config;
    JsonNode root = body.body();
    valueSchema = root.has("schema") ? ConnectNotation.schema(root.get("schema")) : null;
    keySchema = root.has("key-schema") ? ConnectNotation.schema(root.get("key-schema")) : null;
    transforms();
    Put open = null;
    for (JsonNode notation : root.path("records")) {
      String word = notation.asText();
      if (word.equals("put") || word.equals("commit") || word.equals("restart")) {
        open = null;
        if (!word.equals("put")) {
          steps.add(word.equals("commit") ? new Commit() : new Restart(Case.JSON.createObjectNode()));
        }
        continue;
      }
      if (notation.has("restart")) {
        open = null;
        steps.add(new Restart(notation.get("restart")));
        continue;
      }
      Sent record = record(notation);
      sent.add(record);
      int task = notation.path("task").asInt(0);
      if (open == null || open.task != task) {
        open = new Put(task, new ArrayList<>());
        steps.add(open);
      }
      if (record.record() != null) {
        open.records.add(record);
      }
    }
  }

  /** Returns how many tasks the case needs. */
  int tasks() {
    int tasks = 1;
    for (Step step : steps) {
      tasks = step instanceof Put put ? Math.max(tasks, put.task + 1) : tasks;
    }
    return tasks;
  }

  private Sent record(JsonNode notation) {
    notation.fieldNames().forEachRemaining(key -> {
      if (!RECORD_KEYS.contains(key)) {
        throw new CaseException(body.file() + ": " + body.name() + ": unknown key `" + key + "` of a record");
      }
    });
    String topic = notation.path("topic").asText(TOPIC);
    int partition = notation.path("partition").asInt(0);
    String place = topic + "-" + partition;
    long offset = notation.path("offset").asLong(nextOffsets.getOrDefault(place, 0L));
    nextOffsets.put(place, offset + 1);
    Schema schema = notation.has("schema") ? schemaOf(notation.get("schema"), topic) : valueSchema;
    Object value = ConnectNotation.value(schema, notation.get("value"));
    if (notation.has("bytes")) {
      SchemaAndValue read = converted(topic, notation.get("bytes"));
      schema = read.schema();
      value = read.value();
    }
    Schema ofKey = notation.has("key-schema") ? schemaOf(notation.get("key-schema"), topic) : keySchema;
    Object key = ConnectNotation.value(ofKey, notation.get("key"));
    ConnectHeaders headers = new ConnectHeaders();
    for (JsonNode header : notation.path("headers")) {
      Schema ofHeader = header.has("schema") ? ConnectNotation.schema(header.get("schema")) : null;
      headers.add(header.get("name").asText(), new SchemaAndValue(ofHeader,
          ConnectNotation.value(ofHeader, header.get("value"))));
    }
    long timestamp = notation.path("timestamp").asLong(1_700_000_000_000L + offset);
    boolean none = notation.has("timestamp") && notation.get("timestamp").isNull();
    SinkRecord record = new SinkRecord(topic, partition, ofKey, key, schema, value, offset,
        none ? null : (Long) timestamp, none ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME, headers);
    for (Transformation<SinkRecord> transform : transforms) {
      record = record == null ? null : transform.apply(record);
    }
    return new Sent(record, notation, place + "-" + offset);
  }

  private static Schema schemaOf(JsonNode notation, String topic) {
    return notation.isNull() ? null : ConnectNotation.schema(notation);
  }

  /** Puts another record in the place of the one that is sent as number {@code index}. */
  void replace(int index, SinkRecord record) {
    Sent old = sent.get(index);
    Sent replaced = new Sent(record, old.notation(), old.coordinates());
    sent.set(index, replaced);
    for (Step step : steps) {
      if (step instanceof Put put) {
        put.records.replaceAll(of -> of == old ? replaced : of);
      }
    }
  }

  /** Returns the bytes that a case writes as text or JSON. */
  static byte[] content(JsonNode bytes) {
    return (bytes.isTextual() ? bytes.asText() : bytes.toString()).getBytes(StandardCharsets.UTF_8);
  }

  private SchemaAndValue converted(String topic, JsonNode bytes) {
    Converter converter = (Converter) make(config.getOrDefault("value.converter",
        "org.apache.kafka.connect.json.JsonConverter"));
    converter.configure(below("value.converter."), false);
    return converter.toConnectData(topic, content(bytes));
  }

  @SuppressWarnings("unchecked") // The interface has no other argument here.
  private void transforms() {
    for (String name : config.getOrDefault("transforms", "").split(",")) {
      if (!name.isBlank()) {
        Map<String, String> own = below("transforms." + name.trim() + ".");
        Transformation<SinkRecord> transform = (Transformation<SinkRecord>) make(own.remove("type"));
        transform.configure(own);
        transforms.add(transform);
      }
    }
  }

  private Map<String, String> below(String prefix) {
    Map<String, String> own = new HashMap<>();
    config.forEach((key, value) -> {
      if (key.startsWith(prefix)) {
        own.put(key.substring(prefix.length()), value);
      }
    });
    return own;
  }

  private static Object make(String name) {
    try {
      return Class.forName(name).getDeclaredConstructor().newInstance();
    } catch (ReflectiveOperationException e) {
      throw new CaseException("cannot make a " + name, e);
    }
  }
}
