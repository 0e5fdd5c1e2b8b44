package io.frazil.conformance;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.Date;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;

/**
 * Protobuf of messages that ProtobufConverter turns into the very schema of the case.
 *
 * <p>That are those of optional fields without notes of their own: Protobuf has no required fields, no
 * lists without a value, and no place for most names. Where there is a table, whether the source
 * requires a field makes no difference.
 */
final class ProtobufForm extends NativeForm {
  private static final int VARINT = 0;
  private static final int EIGHT = 1;
  private static final int LENGTH = 2;
  private static final int FOUR = 5;

  ProtobufForm() throws IOException {
    super("PROTOBUF");
  }

  @Override
  String format() {
    return "protobuf";
  }

  @Override
  String write(Schema schema, Object value, Case body, ByteArrayOutputStream out) {
    if (schema.type() != Schema.Type.STRUCT) {
      throw new NativeBytes.Unwritable();
    }
    boolean anyway = !body.given().isEmpty() && !body.body().path("config").has("iceberg.tables.evolve-schema-enabled");
    StringBuilder text = new StringBuilder("syntax = \"proto3\";\nimport \"confluent/meta.proto\";\n"
        + "import \"confluent/type/decimal.proto\";\nimport \"google/type/date.proto\";\n");
    message("R", schema, anyway, text);
    out.write(0); // The first message of the file.
    message((Struct) value, out);
    return text.toString();
  }

  private static void require(boolean holds) {
    if (!holds) {
      throw new NativeBytes.Unwritable();
    }
  }

  private static boolean is(Schema schema, String name) {
    return name.equals(schema.name());
  }

  private static void message(String name, Schema schema, boolean anyway, StringBuilder text) {
    require(schema.name() == null || schema.name().equals(name));
    require(schema.doc() == null && schema.defaultValue() == null);
    text.append("message ").append(name).append(" {\n");
    int number = 0;
    for (Field field : schema.fields()) {
      number++;
      require(field.name().matches("[A-Za-z_][A-Za-z0-9_]*"));
      String inner = "M" + number;
      Schema of = field.schema();
      require(anyway || of.isOptional());
      switch (of.type()) {
        case ARRAY -> {
          plain(of, anyway);
          require(of.valueSchema().type() != Schema.Type.ARRAY && of.valueSchema().type() != Schema.Type.MAP);
          String type = type(of.valueSchema(), inner, anyway, text);
          text.append("repeated ").append(type).append(' ').append(field.name()).append(" = ").append(number);
          text.append(options(of.valueSchema()));
        }
        case MAP -> {
          plain(of, anyway);
          require(of.valueSchema().type() != Schema.Type.ARRAY && of.valueSchema().type() != Schema.Type.MAP);
          plain(of.keySchema(), true);
          String key = switch (of.keySchema().type()) {
            case STRING -> "string";
            case INT32 -> "int32";
            case INT64 -> "int64";
            case BOOLEAN -> "bool";
            default -> throw new NativeBytes.Unwritable();
          };
          String type = type(of.valueSchema(), inner, anyway, text);
          text.append("map<").append(key).append(", ").append(type).append("> ").append(field.name());
          text.append(" = ").append(number);
          require(options(of.valueSchema()).isEmpty());
        }
        default -> {
          String type = type(of, inner, anyway, text);
          text.append("optional ").append(type).append(' ').append(field.name()).append(" = ").append(number);
          text.append(options(of));
        }
      }
      text.append(";\n");
    }
    text.append("}\n");
  }

  /** Only what Protobuf itself says can be said of a type. */
  private static void plain(Schema schema, boolean anyway) {
    require(schema.name() == null && schema.doc() == null && schema.defaultValue() == null);
    require(schema.parameters() == null || schema.parameters().isEmpty());
    require(anyway || schema.isOptional());
  }

  private static String type(Schema schema, String inner, boolean anyway, StringBuilder text) {
    require(anyway || schema.isOptional());
    if (is(schema, Decimal.LOGICAL_NAME)) {
      return "confluent.type.Decimal";
    }
    if (is(schema, org.apache.kafka.connect.data.Date.LOGICAL_NAME)) {
      return "google.type.Date";
    }
    if (schema.type() == Schema.Type.STRUCT) {
      message(inner, schema, anyway, text);
      return inner;
    }
    plain(schema, anyway);
    return switch (schema.type()) {
      case INT8, INT16, INT32 -> "int32";
      case INT64 -> "int64";
      case FLOAT32 -> "float";
      case FLOAT64 -> "double";
      case BOOLEAN -> "bool";
      case STRING -> "string";
      case BYTES -> "bytes";
      default -> throw new NativeBytes.Unwritable();
    };
  }

  private static String options(Schema schema) {
    if (is(schema, Decimal.LOGICAL_NAME)) {
      StringBuilder parameters = new StringBuilder();
      schema.parameters().forEach((key, value) -> parameters.append(parameters.length() == 0 ? "" : ", ")
          .append(parameter(key.equals("connect.decimal.precision") ? "precision" : key, value)));
      return " [(confluent.field_meta) = { params: [" + parameters + "] }]";
    }
    if (schema.type() == Schema.Type.INT8 || schema.type() == Schema.Type.INT16) {
      String type = schema.type().getName();
      return " [(confluent.field_meta) = { params: [" + parameter("connect.type", type) + "] }]";
    }
    return "";
  }

  private static String parameter(String key, String value) {
    return "{ key: \"" + key + "\", value: \"" + value + "\" }";
  }

  private static void message(Struct value, ByteArrayOutputStream out) {
    int number = 0;
    for (Field field : value.schema().fields()) {
      number++;
      Object of = value.getWithoutDefault(field.name());
      if (field.schema().type() == Schema.Type.ARRAY) {
        require(of != null);
        for (Object element : (List<?>) of) {
          require(element != null);
          field(number, field.schema().valueSchema(), element, out);
        }
      } else if (field.schema().type() == Schema.Type.MAP) {
        require(of != null);
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) of).entrySet()) {
          require(entry.getKey() != null && entry.getValue() != null);
          ByteArrayOutputStream bytes = new ByteArrayOutputStream();
          field(1, field.schema().keySchema(), entry.getKey(), bytes);
          field(2, field.schema().valueSchema(), entry.getValue(), bytes);
          bytes(number, bytes.toByteArray(), out);
        }
      } else if (of != null) {
        field(number, field.schema(), of, out);
      }
    }
  }

  private static void field(int number, Schema schema, Object value, ByteArrayOutputStream out) {
    if (value instanceof BigDecimal decimal) {
      require(is(schema, Decimal.LOGICAL_NAME));
      // Another scale than its schema's is an error of the Java encoder.
      require(Integer.toString(decimal.scale()).equals(schema.parameters().get(Decimal.SCALE_FIELD)));
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      bytes(1, decimal.unscaledValue().toByteArray(), bytes);
      number(3, decimal.scale(), bytes);
      bytes(number, bytes.toByteArray(), out);
    } else if (value instanceof Date date) {
      LocalDate day = LocalDate.ofInstant(Instant.ofEpochMilli(date.getTime()), ZoneOffset.UTC);
      require(is(schema, org.apache.kafka.connect.data.Date.LOGICAL_NAME) && date.getTime() % 86_400_000 == 0);
      require(day.getYear() >= 1 && day.getYear() <= 9999);
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      number(1, day.getYear(), bytes);
      number(2, day.getMonthValue(), bytes);
      number(3, day.getDayOfMonth(), bytes);
      bytes(number, bytes.toByteArray(), out);
    } else if (value instanceof Struct struct) {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      message(struct, bytes);
      bytes(number, bytes.toByteArray(), out);
    } else if (value instanceof Boolean bool) {
      number(number, bool ? 1 : 0, out);
    } else if (value instanceof Float real) {
      varint((long) number << 3 | FOUR, out);
      fixed(Integer.toUnsignedLong(Float.floatToRawIntBits(real)), 4, out);
    } else if (value instanceof Double real) {
      varint((long) number << 3 | EIGHT, out);
      fixed(Double.doubleToRawLongBits(real), 8, out);
    } else if (value instanceof Number whole) {
      number(number, whole.longValue(), out);
    } else if (value instanceof String text) {
      bytes(number, text.getBytes(StandardCharsets.UTF_8), out);
    } else if (value instanceof byte[] bytes) {
      bytes(number, bytes, out);
    } else if (value instanceof ByteBuffer buffer) {
      byte[] bytes = new byte[buffer.remaining()];
      buffer.duplicate().get(bytes);
      bytes(number, bytes, out);
    } else {
      throw new NativeBytes.Unwritable();
    }
  }

  private static void number(int number, long value, ByteArrayOutputStream out) {
    varint((long) number << 3 | VARINT, out);
    varint(value, out);
  }

  private static void bytes(int number, byte[] value, ByteArrayOutputStream out) {
    varint((long) number << 3 | LENGTH, out);
    varint(value.length, out);
    out.writeBytes(value);
  }

  private static void fixed(long value, int bytes, ByteArrayOutputStream out) {
    for (int index = 0; index < bytes; index++) {
      out.write((int) (value >>> 8 * index));
    }
  }

  private static void varint(long value, ByteArrayOutputStream out) {
    long rest = value;
    while ((rest & ~0x7FL) != 0) {
      out.write((int) (rest & 0x7F | 0x80));
      rest >>>= 7;
    }
    out.write((int) rest);
  }
}
