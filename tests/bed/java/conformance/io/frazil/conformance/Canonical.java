package io.frazil.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/**
 * Expected values out of case files, and one text for each value by which expected and read ones
 * are compared: equal texts are equal values, -0.0 and NaN included.
 */
final class Canonical {
  private Canonical() {}

  /** Reads an expected value of a column type, as Iceberg's generic records hold it. */
  static Object value(Type type, JsonNode node) {
    if (node == null || node.isNull()) {
      return null;
    }
    String text = node.asText();
    try {
      switch (type.typeId()) {
        case BOOLEAN:
          return check(node.isBoolean(), node.asBoolean(), type, node);
        case INTEGER:
          return check(node.isIntegralNumber(), node.bigIntegerValue().intValueExact(), type, node);
        case LONG:
          return check(node.isIntegralNumber(), node.bigIntegerValue().longValueExact(), type, node);
        case FLOAT:
          return Float.valueOf(text);
        case DOUBLE:
          return Double.valueOf(text);
        case DECIMAL:
          return new BigDecimal(text).setScale(((Types.DecimalType) type).scale());
        case STRING:
          if (node.isObject() && node.has("$text")) {
            return ConnectNotation.value(null, node);
          }
          return check(node.isTextual(), text, type, node);
        case UUID:
          return UUID.fromString(text);
        case BINARY:
          return ByteBuffer.wrap(Text.hex(text));
        case FIXED:
          return Text.hex(text);
        case DATE:
          return LocalDate.parse(text);
        case TIME:
          return LocalTime.parse(text);
        case TIMESTAMP:
          return instant(((Types.TimestampType) type).shouldAdjustToUTC(), text);
        case TIMESTAMP_NANO:
          return instant(((Types.TimestampNanoType) type).shouldAdjustToUTC(), text);
        case LIST:
          List<Object> items = new ArrayList<>();
          check(node.isArray(), node, type, node)
              .forEach(item -> items.add(value(type.asListType().elementType(), item)));
          return items;
        case MAP:
          return map(type.asMapType(), node);
        case STRUCT:
          return struct(type.asStructType(), node);
        default:
          throw new CaseException("no values of type " + type);
      }
    } catch (IllegalArgumentException | ArithmeticException | java.time.DateTimeException e) {
      throw new CaseException(node + " is no value of " + type, e);
    }
  }

  private static <T> T check(boolean right, T value, Type type, JsonNode node) {
    if (!right) {
      throw new CaseException(node + " is no value of " + type);
    }
    return value;
  }

  private static Object instant(boolean zoned, String text) {
    return zoned ? (Object) OffsetDateTime.parse(text).withOffsetSameInstant(ZoneOffset.UTC) : LocalDateTime.parse(text);
  }

  private static Map<Object, Object> map(Types.MapType type, JsonNode node) {
    Map<Object, Object> map = new java.util.LinkedHashMap<>();
    if (node.isObject()) {
      for (Map.Entry<String, JsonNode> entry : node.properties()) {
        map.put(entry.getKey(), value(type.valueType(), entry.getValue()));
      }
    } else {
      node.forEach(pair -> map.put(value(type.keyType(), pair.get(0)), value(type.valueType(), pair.get(1))));
    }
    return map;
  }

  /** A field that is not named is null. */
  static GenericRecord struct(Types.StructType type, JsonNode node) {
    check(node.isObject(), node, type, node);
    for (Map.Entry<String, JsonNode> field : node.properties()) {
      if (type.field(field.getKey()) == null) {
        throw new CaseException("there is no column `" + field.getKey() + "` in " + TypeNotation.text(type));
      }
    }
    GenericRecord record = GenericRecord.create(type);
    for (Types.NestedField field : type.fields()) {
      record.setField(field.name(), value(field.type(), node.get(field.name())));
    }
    return record;
  }

  /** Returns the text of a value. */
  static String text(Type type, Object value) {
    if (value == null) {
      return "null";
    }
    switch (type.typeId()) {
      case STRING:
        return quoted(value.toString());
      case DECIMAL:
        return ((BigDecimal) value).toPlainString();
      case BINARY:
        ByteBuffer buffer = ((ByteBuffer) value).duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return Text.hex(bytes);
      case FIXED:
        return Text.hex((byte[]) value);
      case LIST:
        StringJoiner items = new StringJoiner(", ", "[", "]");
        ((List<?>) value).forEach(item -> items.add(text(type.asListType().elementType(), item)));
        return items.toString();
      case MAP:
        Map<String, String> entries = new TreeMap<>();
        ((Map<?, ?>) value).forEach((key, item) -> entries.put(
            text(type.asMapType().keyType(), key), text(type.asMapType().valueType(), item)));
        return entries.toString();
      case STRUCT:
        StringJoiner fields = new StringJoiner(", ", "{", "}");
        List<Types.NestedField> columns = type.asStructType().fields();
        for (int i = 0; i < columns.size(); i++) {
          Types.NestedField column = columns.get(i);
          fields.add(column.name() + "=" + text(column.type(), ((StructLike) value).get(i, Object.class)));
        }
        return fields.toString();
      default:
        return value.toString();
    }
  }

  private static String quoted(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      quoted.append(c < ' ' ? String.format(Locale.ROOT, "\\u%04x", (int) c) : Character.toString(c));
    }
    return quoted.append('"').toString();
  }
}
