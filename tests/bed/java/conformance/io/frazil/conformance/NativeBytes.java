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
 * Turns the values of a case into the bytes of which JsonConverter makes them, for the native decoder.
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
  static boolean turn(Steps steps, Case body, Map<String, String> config) {
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
        if (sent.notation().has("bytes") && schemas != enveloped
            || ENCODERS.contains(code(sent.notation().path("error")))) {
          return false;
        }
        turned.add(bytes(sent, enveloped));
      }
    } catch (DataException | StackOverflowError | Unwritable e) {
      return false;
    }
    for (int index = 0; index < turned.size(); index++) {
      steps.replace(index, with(steps.sent.get(index).record(), turned.get(index)));
    }
    config.keySet().removeIf(key -> key.startsWith("value.converter"));
    config.put("value.converter", BYTES_CONVERTER);
    config.put("frazil.value.format", enveloped ? "json-envelope" : "json");
    return true;
  }

  private static String code(JsonNode error) {
    return error.isTextual() ? error.asText() : error.path("code").asText();
  }

  /** The value is of a class that JSON has no form for. */
  private static final class Unwritable extends RuntimeException {
    private static final long serialVersionUID = 1;
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
