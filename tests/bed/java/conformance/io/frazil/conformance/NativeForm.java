package io.frazil.conformance;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import org.apache.kafka.connect.data.Schema;

/** How values with a schema become bytes that name it in a registry. */
abstract class NativeForm {
  private final SchemaServer registry;

  NativeForm(String kind) throws IOException {
    registry = new SchemaServer(kind);
  }

  /** Returns the form called so; null for JSON, which has no registry. */
  static NativeForm of(String name) throws IOException {
    return switch (name) {
      case "json" -> null;
      case "avro" -> new AvroForm();
      case "protobuf" -> new ProtobufForm();
      case "json-schema" -> new JsonSchemaForm();
      default -> throw new CaseException("no native form is called " + name);
    };
  }

  /** The value of {@code frazil.value.format}. */
  abstract String format();

  /** Writes a value and returns its schema. */
  abstract String write(Schema schema, Object value, Case body, ByteArrayOutputStream out) throws IOException;

  final SchemaServer registry() {
    return registry;
  }

  /** Returns a value behind the id of its schema. */
  final byte[] framed(Schema schema, Object value, Case body) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.writeBytes(new byte[5]);
    try {
      String text = write(schema, value, body, out);
      byte[] bytes = out.toByteArray();
      ByteBuffer.wrap(bytes).putInt(1, registry.register(text));
      return bytes;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
