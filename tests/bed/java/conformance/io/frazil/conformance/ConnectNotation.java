package io.frazil.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZonedDateTime;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Date;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.errors.DataException;

/** Connect schemas and values as case files write them; see tests/conformance/README.md. */
final class ConnectNotation {
  private static final long DAY_MS = 86_400_000L;

  /** The structs around the schema that is being read, for {@code $self}. */
  private final Deque<SchemaBuilder> structs = new ArrayDeque<>();

  private ConnectNotation() {}

  /** Reads a schema: a text such as {@code int64:io.debezium.time.MicroTimestamp?}, or an object. */
  static Schema schema(JsonNode notation) {
    return new ConnectNotation().read(notation);
  }

  private Schema read(JsonNode notation) {
    if (notation.isTextual()) {
      Text text = new Text(notation.asText());
      if (text.eat("$self")) {
        return structs.peek(); // Not built yet: what Avro's converter makes of a recursive record.
      }
      SchemaBuilder builder = builder(text);
      text.end();
      return builder.build();
    }
    JsonNode type = required(notation, "type");
    Text text = new Text(type.asText());
    SchemaBuilder builder = text.eat("struct") ? SchemaBuilder.struct() : builder(text);
    if (notation.has("optional") && notation.get("optional").asBoolean()) {
      builder.optional();
    }
    if (notation.has("name")) {
      builder.name(notation.get("name").asText());
    }
    if (notation.has("version")) {
      builder.version(notation.get("version").asInt());
    }
    if (notation.has("doc")) {
      builder.doc(notation.get("doc").asText());
    }
    for (Map.Entry<String, JsonNode> parameter : children(notation, "parameters")) {
      builder.parameter(parameter.getKey(), parameter.getValue().asText());
    }
    structs.push(builder);
    for (Map.Entry<String, JsonNode> field : children(notation, "fields")) {
      builder.field(field.getKey(), read(field.getValue()));
    }
    structs.pop();
    if (notation.has("element")) {
      Schema element = read(notation.get("element"));
      builder = like(builder, SchemaBuilder.array(element));
    }
    if (notation.has("key")) {
      builder = like(builder, SchemaBuilder.map(read(notation.get("key")), read(required(notation, "value"))));
    }
    if (notation.has("default")) {
      builder.defaultValue(value(builder, notation.get("default")));
    }
    return builder.build();
  }

  private static SchemaBuilder like(SchemaBuilder from, SchemaBuilder to) {
    if (from.isOptional()) {
      to.optional();
    }
    if (from.name() != null) {
      to.name(from.name());
    }
    if (from.doc() != null) {
      to.doc(from.doc());
    }
    return to;
  }

  private SchemaBuilder builder(Text text) {
    text.blanks();
    SchemaBuilder builder;
    if (text.eat("array<")) {
      Schema element = builder(text).build();
      text.expect(">");
      builder = SchemaBuilder.array(element);
    } else if (text.eat("map<")) {
      Schema key = builder(text).build();
      text.expect(",");
      Schema value = builder(text).build();
      text.expect(">");
      builder = SchemaBuilder.map(key, value);
    } else if (text.eat("struct<")) {
      builder = SchemaBuilder.struct();
      while (!text.eat(">")) {
        text.eat(",");
        text.blanks();
        String name = text.word(">,");
        builder.field(name, builder(text).build());
        text.blanks();
      }
    } else {
      builder = scalar(text, text.word(":?,<>("));
    }
    if (text.eat(":")) {
      builder.name(text.word("?,<>"));
    }
    return text.eat("?") ? builder.optional() : builder;
  }

  private static SchemaBuilder scalar(Text text, String word) {
    switch (word) {
      case "date":
        return org.apache.kafka.connect.data.Date.builder();
      case "time":
        return Time.builder();
      case "timestamp":
        return Timestamp.builder();
      case "decimal": // decimal(scale) or decimal(precision, scale) as Confluent's converters mark it
        text.expect("(");
        int first = text.number();
        boolean both = text.eat(",");
        text.blanks();
        SchemaBuilder decimal = Decimal.builder(both ? text.number() : first);
        text.expect(")");
        return both ? decimal.parameter("connect.decimal.precision", Integer.toString(first)) : decimal;
      case "array":
      case "map":
        return SchemaBuilder.string(); // Replaced once the element is known.
      default:
        try {
          return SchemaBuilder.type(Schema.Type.valueOf(word.toUpperCase(java.util.Locale.ROOT)));
        } catch (IllegalArgumentException e) {
          throw new CaseException("`" + word + "` is no Connect type", e);
        }
    }
  }

  /** Reads a value of a schema, or one without. */
  static Object value(Schema schema, JsonNode notation) {
    if (notation == null || notation.isNull()) {
      return null;
    }
    if (tag(notation) != null) {
      return tagged(tag(notation), notation.get(tag(notation)));
    }
    return schema == null ? plain(notation) : typed(schema, notation);
  }

  private static Object typed(Schema schema, JsonNode notation) {
    String name = schema.name() == null ? "" : schema.name();
    switch (name) {
      case Decimal.LOGICAL_NAME:
        return new BigDecimal(notation.asText());
      case org.apache.kafka.connect.data.Date.LOGICAL_NAME:
        return new Date(LocalDate.parse(notation.asText()).toEpochDay() * DAY_MS);
      case Time.LOGICAL_NAME:
        return new Date(LocalTime.parse(notation.asText()).toNanoOfDay() / 1_000_000);
      case Timestamp.LOGICAL_NAME:
        return Date.from(Instant.parse(notation.asText()));
      default:
    }
    switch (schema.type()) {
      case INT8:
        return whole(notation).byteValueExact();
      case INT16:
        return whole(notation).shortValueExact();
      case INT32:
        return whole(notation).intValueExact();
      case INT64:
        return whole(notation).longValueExact();
      case FLOAT32:
        return Float.valueOf(notation.asText());
      case FLOAT64:
        return Double.valueOf(notation.asText());
      case BOOLEAN:
        return notation.asBoolean();
      case STRING:
        return notation.asText();
      case BYTES:
        return Text.hex(notation.asText());
      case ARRAY:
        List<Object> items = new ArrayList<>();
        notation.forEach(item -> items.add(value(schema.valueSchema(), item)));
        return items;
      case MAP:
        return map(schema.keySchema(), schema.valueSchema(), notation);
      default:
        return struct(schema, notation);
    }
  }

  private static BigInteger whole(JsonNode notation) {
    if (!notation.isIntegralNumber()) {
      throw new CaseException("a whole number is wanted, not " + notation);
    }
    return notation.bigIntegerValue();
  }

  /** An object's names are keys that are text; other keys need pairs: {@code [[1, "a"]]}. */
  private static Map<Object, Object> map(Schema keys, Schema values, JsonNode notation) {
    Map<Object, Object> map = new LinkedHashMap<>();
    if (notation.isObject()) {
      notation.properties().forEach(entry -> map.put(entry.getKey(), value(values, entry.getValue())));
    } else {
      notation.forEach(pair -> map.put(value(keys, pair.get(0)), value(values, pair.get(1))));
    }
    return map;
  }

  private static Struct struct(Schema schema, JsonNode notation) {
    Struct struct = new Struct(schema);
    for (Map.Entry<String, JsonNode> entry : notation.properties()) {
      Field field = schema.field(entry.getKey());
      if (field == null) {
        throw new CaseException("the schema has no field `" + entry.getKey() + "`");
      }
      Object value = value(field.schema(), entry.getValue());
      if (value != null || field.schema().isOptional()) {
        try {
          struct.put(field, value);
        } catch (DataException e) {
          throw new CaseException("field `" + entry.getKey() + "`: " + e.getMessage(), e);
        }
      }
    }
    return struct;
  }

  /** What Connect's JSON converter makes of JSON without a schema. */
  private static Object plain(JsonNode notation) {
    switch (notation.getNodeType()) {
      case STRING:
        return notation.asText();
      case BOOLEAN:
        return notation.asBoolean();
      case NUMBER:
        return notation.isIntegralNumber() ? (Object) whole(notation).longValueExact() : (Object) notation.asDouble();
      case ARRAY:
        List<Object> items = new ArrayList<>();
        notation.forEach(item -> items.add(value(null, item)));
        return items;
      default:
        return map(null, null, notation);
    }
  }

  private static String tag(JsonNode notation) {
    if (!notation.isObject() || notation.size() != 1) {
      return null;
    }
    String name = notation.fieldNames().next();
    return name.startsWith("$") && name.length() > 1 ? name : null;
  }

  private static Object tagged(String tag, JsonNode value) {
    String text = value.asText();
    switch (tag) {
      case "$int8":
        return whole(value).byteValueExact();
      case "$int16":
        return whole(value).shortValueExact();
      case "$int32":
        return whole(value).intValueExact();
      case "$int64":
        return whole(value).longValueExact();
      case "$float32":
        return Float.valueOf(text);
      case "$float64":
        return Double.valueOf(text);
      case "$decimal":
        return new BigDecimal(text);
      case "$bigint":
        return new BigInteger(text);
      case "$bytes":
        return Text.hex(text);
      case "$buffer": // Neither at the start of its array nor to its end.
        byte[] bytes = Text.hex(text);
        ByteBuffer buffer = ByteBuffer.allocate(bytes.length + 2);
        buffer.position(1).limit(bytes.length + 1);
        buffer.slice().put(bytes);
        return buffer;
      case "$ms":
        return new Date(value.asLong());
      case "$map":
        return map(null, null, value);
      case "$struct":
        return value(schema(required(value, "schema")), required(value, "value"));
      case "$text": // A text of this many times the character: what is too long for a file.
        return required(value, "of").asText().repeat(required(value, "times").asInt());
      case "$nested": // Lists within lists.
        Object nested = List.of();
        for (int level = 1; level < value.asInt(); level++) {
          nested = List.of(nested);
        }
        return nested;
      case "$LocalDate":
        return LocalDate.parse(text);
      case "$LocalTime":
        return LocalTime.parse(text);
      case "$LocalDateTime":
        return LocalDateTime.parse(text);
      case "$OffsetDateTime":
        return OffsetDateTime.parse(text);
      case "$ZonedDateTime":
        return ZonedDateTime.parse(text);
      case "$Instant":
        return Instant.parse(text);
      case "$UUID":
        return UUID.fromString(text);
      case "$Duration":
        return Duration.parse(text);
      case "$surrogate":
        return "\ud800";
      default:
        throw new CaseException("no tag " + tag);
    }
  }

  private static JsonNode required(JsonNode node, String name) {
    JsonNode child = node.get(name);
    if (child == null) {
      throw new CaseException("`" + name + "` is missing in " + node);
    }
    return child;
  }

  private static Iterable<Map.Entry<String, JsonNode>> children(JsonNode node, String name) {
    JsonNode child = node.get(name);
    return child == null ? List.of() : child.properties();
  }
}
