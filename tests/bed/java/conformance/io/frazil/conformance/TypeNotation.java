package io.frazil.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/**
 * Iceberg types as case files write them: {@code struct<x int required, y list<string>>}. A field is
 * optional unless {@code required} stands behind its type.
 */
final class TypeNotation {
  private static final Pattern TRANSFORM = Pattern.compile("([a-z]+)(?:\\[(\\d+)])? (.+)");

  private TypeNotation() {}

  /** Reads the columns of a table: {@code {"id": "long required"}}, or a schema as Iceberg has it. */
  static Schema schema(JsonNode columns) {
    if (columns.has("type") && columns.has("fields")) {
      return SchemaParser.fromJson(columns.toString());
    }
    AtomicInteger ids = new AtomicInteger();
    List<Types.NestedField> fields = new ArrayList<>();
    for (Map.Entry<String, JsonNode> column : columns.properties()) {
      Text text = new Text(column.getValue().asText());
      fields.add(field(ids, column.getKey(), text));
      text.end();
    }
    return new Schema(fields);
  }

  /** Reads one type. */
  static Type type(String notation) {
    Text text = new Text(notation);
    Type type = type(new AtomicInteger(), text);
    text.end();
    return type;
  }

  private static Types.NestedField field(AtomicInteger ids, String name, Text text) {
    int id = ids.incrementAndGet();
    Type type = type(ids, text);
    return required(text) ? Types.NestedField.required(id, name, type) : Types.NestedField.optional(id, name, type);
  }

  private static boolean required(Text text) {
    text.blanks();
    return text.eat("required");
  }

  private static Type type(AtomicInteger ids, Text text) {
    text.blanks();
    if (text.eat("list<")) {
      int id = ids.incrementAndGet();
      Type element = type(ids, text);
      boolean required = required(text);
      text.expect(">");
      return required ? Types.ListType.ofRequired(id, element) : Types.ListType.ofOptional(id, element);
    }
    if (text.eat("map<")) {
      int key = ids.incrementAndGet();
      int value = ids.incrementAndGet();
      Type keyType = type(ids, text);
      text.expect(",");
      Type valueType = type(ids, text);
      boolean required = required(text);
      text.expect(">");
      return required
          ? Types.MapType.ofRequired(key, value, keyType, valueType)
          : Types.MapType.ofOptional(key, value, keyType, valueType);
    }
    if (text.eat("struct<")) {
      List<Types.NestedField> fields = new ArrayList<>();
      while (!text.eat(">")) {
        text.eat(",");
        text.blanks();
        String name = text.word(">,");
        fields.add(field(ids, name, text));
        text.blanks();
      }
      return Types.StructType.of(fields);
    }
    String name = text.word(",<>(");
    if (text.eat("(")) { // decimal(9, 2)
      name += "(" + text.number();
      text.expect(",");
      text.blanks();
      name += ", " + text.number() + ")";
      text.expect(")");
    }
    try {
      return Types.fromTypeName(name);
    } catch (IllegalArgumentException e) {
      throw new CaseException("`" + name + "` is no Iceberg type", e);
    }
  }

  /** Writes a type as {@link #type} reads it. */
  static String text(Type type) {
    switch (type.typeId()) {
      case LIST:
        Types.NestedField element = type.asListType().fields().get(0);
        return "list<" + typed(element) + ">";
      case MAP:
        List<Types.NestedField> entry = type.asMapType().fields();
        return "map<" + text(entry.get(0).type()) + ", " + typed(entry.get(1)) + ">";
      case STRUCT:
        StringJoiner fields = new StringJoiner(", ", "struct<", ">");
        for (Types.NestedField field : type.asStructType().fields()) {
          fields.add(quoted(field.name()) + " " + typed(field));
        }
        return fields.toString();
      default:
        return type.toString();
    }
  }

  /** Writes the type of a field, with {@code required} if it is. */
  static String typed(Types.NestedField field) {
    return text(field.type()) + (field.isRequired() ? " required" : "");
  }

  private static String quoted(String name) {
    return name.matches("[^ `<>,]+") ? name : "`" + name + "`";
  }

  /** Reads a partition spec: {@code ["bucket[16] id", "day ts"]}. */
  static PartitionSpec spec(Schema schema, JsonNode fields) {
    PartitionSpec.Builder builder = PartitionSpec.builderFor(schema);
    for (JsonNode field : fields) {
      Matcher parts = TRANSFORM.matcher(field.asText());
      if (!parts.matches()) {
        throw new CaseException("a partition field looks like \"bucket[16] id\", not " + field);
      }
      String column = parts.group(3);
      int number = parts.group(2) == null ? 0 : Integer.parseInt(parts.group(2));
      switch (parts.group(1)) {
        case "identity" -> builder.identity(column);
        case "bucket" -> builder.bucket(column, number);
        case "truncate" -> builder.truncate(column, number);
        case "year" -> builder.year(column);
        case "month" -> builder.month(column);
        case "day" -> builder.day(column);
        case "hour" -> builder.hour(column);
        case "void" -> builder.alwaysNull(column);
        default -> throw new CaseException("no transform " + parts.group(1));
      }
    }
    return builder.build();
  }

  /** Writes a partition spec as {@link #spec} reads it. */
  static List<String> spec(PartitionSpec spec) {
    List<String> fields = new ArrayList<>();
    for (PartitionField field : spec.fields()) {
      fields.add(field.transform() + " " + spec.schema().findColumnName(field.sourceId()));
    }
    return fields;
  }
}
