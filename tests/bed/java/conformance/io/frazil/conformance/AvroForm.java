package io.frazil.conformance;

import io.apicurio.registry.utils.converter.avro.AvroData;
import io.apicurio.registry.utils.converter.avro.AvroDataConfig;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;

/**
 * Avro as the AvroConverter of Confluent and Apicurio writes it.
 *
 * <p>It writes a default in place of null, and one name for the entries of all maps whose keys are no
 * text, whatever they are: such cases have no form.
 */
final class AvroForm extends NativeForm {
  AvroForm() throws IOException {
    super("AVRO");
  }

  @Override
  String format() {
    return "avro";
  }

  @Override
  String write(Schema schema, Object value, Case body, ByteArrayOutputStream out) throws IOException {
    requireNoDefaults(schema, value);
    AvroData data = new AvroData(new AvroDataConfig(Map.of("connect.meta.data", "true", "schemas.cache.config", "10")));
    org.apache.avro.Schema written = data.fromConnectSchema(schema);
    BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
    Object turned = data.fromConnectData(schema, value);
    // A value that is no record comes in a wrapper.
    if (turned instanceof io.apicurio.registry.serde.avro.NonRecordContainer<?> container) {
      turned = container.getValue();
    }
    new GenericDatumWriter<>(written).write(turned, encoder);
    encoder.flush();
    String text = written.toString();
    if (!new org.apache.avro.Schema.Parser().parse(text).equals(written)) {
      throw new NativeBytes.Unwritable();
    }
    return text;
  }

  /** No field may be null whose schema has a default. */
  private static void requireNoDefaults(Schema schema, Object value) {
    if (value == null) {
      if (schema.defaultValue() != null) {
        throw new NativeBytes.Unwritable();
      }
      return;
    }
    switch (schema.type()) {
      case STRUCT -> schema.fields()
          .forEach(field -> requireNoDefaults(field.schema(), ((Struct) value).getWithoutDefault(field.name())));
      case ARRAY -> ((List<?>) value).forEach(element -> requireNoDefaults(schema.valueSchema(), element));
      case MAP -> ((Map<?, ?>) value).values().forEach(element -> requireNoDefaults(schema.valueSchema(), element));
      default -> { }
    }
  }
}
