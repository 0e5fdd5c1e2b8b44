package io.frazil.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.json.JsonConverter;

/** JSON by a JSON Schema, with the words that Confluent's JsonSchemaConverter has for Connect's types. */
final class JsonSchemaForm extends NativeForm {
  JsonSchemaForm() throws IOException {
    super("JSON");
  }

  @Override
  String format() {
    return "json-schema";
  }

  @Override
  String write(Schema schema, Object value, Case body, ByteArrayOutputStream out) throws IOException {
    try (JsonConverter converter = new JsonConverter()) {
      converter.configure(Map.of("schemas.enable", "false", "replace.null.with.default", "false"), false);
      out.writeBytes(converter.fromConnectData("t", schema, value));
      return typed(converter.asJsonSchema(schema)).toString();
    }
  }

  /** Turns a schema as JsonConverter words it. */
  private static ObjectNode typed(JsonNode connect) {
    ObjectNode schema = Case.JSON.createObjectNode();
    String type = connect.get("type").asText();
    switch (type) {
      case "boolean", "string" -> schema.put("type", type);
      case "int8", "int16", "int32", "int64" -> schema.put("type", "integer").put("connect.type", type);
      case "float", "double" ->
          schema.put("type", "number").put("connect.type", type.equals("float") ? "float32" : "float64");
      case "bytes" -> schema.put("type", "string").put("connect.type", "bytes");
      case "array" -> schema.put("type", "array").set("items", typed(connect.get("items")));
      case "map" -> {
        if (!connect.get("keys").get("type").asText().equals("string")) {
          throw new NativeBytes.Unwritable(); // A list of entries, which is not decoded.
        }
        schema.put("type", "object").put("connect.type", "map");
        schema.set("additionalProperties", typed(connect.get("values")));
      }
      case "struct" -> structure(connect, schema);
      default -> throw new NativeBytes.Unwritable();
    }
    copy(connect, "name", schema, "title");
    copy(connect, "version", schema, "connect.version");
    copy(connect, "doc", schema, "description");
    copy(connect, "parameters", schema, "connect.parameters");
    copy(connect, "default", schema, "default");
    if (!connect.path("optional").asBoolean()) {
      return schema;
    }
    ObjectNode optional = Case.JSON.createObjectNode();
    optional.putArray("oneOf").add(Case.JSON.createObjectNode().put("type", "null")).add(schema);
    return optional;
  }

  private static void structure(JsonNode connect, ObjectNode schema) {
    ObjectNode properties = schema.put("type", "object").putObject("properties");
    ArrayNode required = Case.JSON.createArrayNode();
    int index = 0;
    for (JsonNode field : connect.get("fields")) {
      ObjectNode property = typed(field);
      properties.set(field.get("field").asText(), property.put("connect.index", index++));
      if (!field.path("optional").asBoolean()) {
        required.add(field.get("field").asText());
      }
    }
    if (!required.isEmpty()) {
      schema.set("required", required);
    }
  }

  private static void copy(JsonNode from, String name, ObjectNode to, String as) {
    if (from.hasNonNull(name)) {
      to.set(as, from.get(name));
    }
  }
}
