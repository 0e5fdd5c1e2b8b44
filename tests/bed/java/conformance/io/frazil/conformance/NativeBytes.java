package io.frazil.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Turns the values of a case into bytes for the native decoder: those of which JsonConverter makes them,
 * or those of a format whose schemas are in a registry.
 *
 * <p>Left out are cases whose values have no such bytes (Java classes without a schema, schemas that
 * contain themselves), that transform values, or that are about the converter or the Java encoder.
 */
final class NativeBytes {
  private static final String BYTES_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter";
  private static final String JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter";
  /** Errors of the Java encoder, which such records never meet. */
  private static final Set<String> ENCODERS = Set.of("RECORD_TYPE_UNSUPPORTED", "RECORD_TEXT_INVALID");

  private NativeBytes() {}

  /** Replaces the values and completes the configuration; false when the case has no such form. */
  static boolean turn(Steps steps, Case body, Map<String, String> config, NativeForm form) {
    String converter = config.getOrDefault("value.converter", JSON_CONVERTER);
    boolean suits = !config.containsKey("transforms")
        && !config.containsKey("frazil.value.format")
        && converter.equals(JSON_CONVERTER)
        && !body.body().has("must-fail")
        && !body.body().path("expect").has("validate")
        && !steps.sent.isEmpty();
    if (!suits) {
      return false;
    }
    boolean enveloped = steps.sent.stream().anyMatch(sent -> sent.record().valueSchema() != null);
    boolean schemas = !"false".equals(config.get("value.converter.schemas.enable"));
    List<byte[]> turned = new ArrayList<>();
    try {
      for (Steps.Sent sent : steps.sent) {
        if (sent.notation().has("bytes") && (schemas != enveloped || form != null)
            || ENCODERS.contains(code(sent.notation().path("error")))) {
          return false;
        }
        turned.add(form == null ? bytes(sent, enveloped) : registered(sent, body, form));
      }
    } catch (DataException | StackOverflowError | Unwritable e) {
      return false;
    }
    // What only has records without a value says nothing about a format.
    if (form != null && turned.stream().allMatch(bytes -> bytes == null)) {
      return false;
    }
    for (int index = 0; index < turned.size(); index++) {
      steps.replace(index, with(steps.sent.get(index).record(), turned.get(index)));
    }
    config.keySet().removeIf(key -> key.startsWith("value.converter"));
    config.put("value.converter", BYTES_CONVERTER);
    if (form == null) {
      config.put("frazil.value.format", enveloped ? "json-envelope" : "json");
    } else {
      config.put("frazil.value.format", form.format());
      config.put("frazil.schema.registry.url", form.registry().url());
    }
    return true;
  }

  private static String code(JsonNode error) {
    return error.isTextual() ? error.asText() : error.path("code").asText();
  }

  /** The value has no form in the bytes that are asked for. */
  static final class Unwritable extends RuntimeException {
    private static final long serialVersionUID = 1;
  }

  /** Returns Confluent's frame around what the form makes of a value. */
  private static byte[] registered(Steps.Sent sent, Case body, NativeForm form) {
    if (sent.record().value() == null) {
      return null;
    }
    Schema schema = sent.record().valueSchema();
    // A surrogate alone has no bytes in any of the formats.
    if (schema == null || sent.notation().path("value").toString().contains("$surrogate")) {
      throw new Unwritable();
    }
    requireEnd(schema, new ArrayList<>());
    try {
      return form.framed(schema, sent.record().value(), body);
    } catch (Unwritable e) {
      throw e;
    } catch (RuntimeException e) {
      // A schema or value that the format's own writer refuses: a name with a blank, for one.
      throw new Unwritable();
    }
  }

  /** A schema that contains itself has no columns in any of the formats. */
  private static void requireEnd(Schema schema, List<Schema> around) {
    if (around.stream().anyMatch(outer -> outer == schema)) {
      throw new Unwritable();
    }
    around.add(schema);
    switch (schema.type()) {
      case STRUCT -> schema.fields().forEach(field -> requireEnd(field.schema(), around));
      case ARRAY -> requireEnd(schema.valueSchema(), around);
      case MAP -> requireEnd(schema.valueSchema(), around);
      default -> { }
    }
    around.remove(around.size() - 1);
  }

  private static byte[] bytes(Steps.Sent sent, boolean enveloped) {
    JsonNode notation = sent.notation();
    if (notation.has("bytes")) {
      return Steps.content(notation.get("bytes"));
    }
    if (sent.record().value() == null) {
      return null;
    }
    if (sent.record().valueSchema() == null) {
      String text = notation.get("value").toString();
      if (text.contains("\"$")) {
        throw new Unwritable();
      }
      return utf8(enveloped ? "{\"schema\":null,\"payload\":" + text + "}" : text);
    }
    if (notation.path("value").toString().contains("$surrogate")) {
      throw new Unwritable();
    }
    try (JsonConverter converter = new JsonConverter()) {
      converter.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
      return converter.fromConnectData("t", sent.record().valueSchema(), sent.record().value());
    } catch (RuntimeException e) {
      // A schema or value that JsonConverter itself cannot write, a decimal without a scale for one.
      throw new Unwritable();
    }
  }

  private static byte[] utf8(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static SinkRecord with(SinkRecord record, byte[] value) {
    return new SinkRecord(record.topic(), record.kafkaPartition(), record.keySchema(), record.key(),
        Schema.OPTIONAL_BYTES_SCHEMA, value, record.kafkaOffset(), record.timestamp(), record.timestampType(),
        record.headers());
  }
}
