package io.frazil.serde;

import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.utils.converter.AvroConverter;
import java.math.BigDecimal;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Timestamp;

/**
 * Sends orders by Apicurio's serializers, so that what Frazil reads was not written by Frazil.
 *
 * <p>Arguments: the broker, the registry's own interface, the topic, the form, how many orders, and
 * the number of the first. Forms: {@code headers-globalId} and {@code headers-contentId} name the schema
 * in a header; {@code frame8} in the 8 bytes of Apicurio's frame; {@code converter} goes through
 * Apicurio's AvroConverter as Connect calls it, with Confluent's frame.
 */
public final class Produce {
  private static final String SCHEMA = "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"bed\",\"fields\":["
      + "{\"name\":\"id\",\"type\":\"long\"},"
      + "{\"name\":\"customer\",\"type\":\"string\"},"
      + "{\"name\":\"note\",\"type\":[\"null\",\"string\"],\"default\":null},"
      + "{\"name\":\"lines\",\"type\":{\"type\":\"array\",\"items\":{\"type\":\"record\",\"name\":\"Line\","
      + "\"fields\":[{\"name\":\"sku\",\"type\":\"string\"},{\"name\":\"count\",\"type\":\"int\"}]}}}]}";

  private Produce() {}

  /** Sends and ends; anything that fails is the end too. */
  public static void main(String[] arguments) throws Exception {
    String broker = arguments[0];
    String registry = arguments[1];
    String topic = arguments[2];
    String form = arguments[3];
    int count = Integer.parseInt(arguments[4]);
    int first = Integer.parseInt(arguments[5]);
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", broker);
    config.put("acks", "all");
    config.put("apicurio.registry.url", registry);
    config.put("apicurio.registry.auto-register", true);
    if (form.equals("converter")) {
      convert(topic, count, first, config);
    } else {
      serialize(topic, form, count, first, config);
    }
  }

  private static void serialize(String topic, String form, int count, int first, Map<String, Object> config)
      throws Exception {
    boolean headers = form.startsWith("headers-");
    config.put("apicurio.registry.headers.enabled", headers);
    if (headers) {
      config.put("apicurio.registry.use-id", form.substring("headers-".length()));
    }
    Schema schema = new Schema.Parser().parse(SCHEMA);
    AvroKafkaSerializer<GenericRecord> serializer = new AvroKafkaSerializer<>();
    serializer.configure(config, false);
    try (KafkaProducer<byte[], GenericRecord> producer =
        new KafkaProducer<>(config, new ByteArraySerializer(), serializer)) {
      for (int number = first; number < first + count; number++) {
        GenericRecord line = new GenericData.Record(schema.getField("lines").schema().getElementType());
        line.put("sku", "sku-" + number);
        line.put("count", number % 7);
        GenericRecord order = new GenericData.Record(schema);
        order.put("id", (long) number);
        order.put("customer", "Zoë " + number);
        order.put("note", number % 2 == 0 ? null : "note " + number);
        order.put("lines", List.of(line, line));
        producer.send(new ProducerRecord<>(topic, 0, null, order)).get();
      }
    }
  }

  private static void convert(String topic, int count, int first, Map<String, Object> config) throws Exception {
    config.put("apicurio.registry.as-confluent", true);
    config.put("apicurio.registry.id-handler", "io.apicurio.registry.serde.Legacy4ByteIdHandler");
    config.put("apicurio.registry.headers.enabled", false);
    org.apache.kafka.connect.data.Schema schema = SchemaBuilder.struct().name("bed.Priced")
        .field("id", org.apache.kafka.connect.data.Schema.INT64_SCHEMA)
        .field("small", org.apache.kafka.connect.data.Schema.INT8_SCHEMA)
        .field("price", Decimal.builder(2).parameter("connect.decimal.precision", "9").build())
        .field("at", Timestamp.SCHEMA)
        .field("tags", SchemaBuilder.map(org.apache.kafka.connect.data.Schema.STRING_SCHEMA,
            org.apache.kafka.connect.data.Schema.OPTIONAL_INT32_SCHEMA).build())
        .build();
    try (AvroConverter<Object> converter = new AvroConverter<>();
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
      converter.configure(config, false);
      for (int number = first; number < first + count; number++) {
        Map<String, Integer> tags = new HashMap<>();
        tags.put("n", number);
        tags.put("none", null);
        Struct value = new Struct(schema).put("id", (long) number).put("small", (byte) (number % 100))
            .put("price", new BigDecimal(number).movePointLeft(2).setScale(2))
            .put("at", new Date(1_700_000_000_000L + number)).put("tags", tags);
        byte[] bytes = converter.fromConnectData(topic, schema, value);
        producer.send(new ProducerRecord<>(topic, 0, null, bytes)).get();
      }
    }
  }
}
