package io.frazil.bench;

import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Fills a topic: {@code BOOTSTRAP TOPIC PARTITIONS KIND FORMAT COUNT SCHEMA_ID}; prints the bytes of all values. */
public final class Generate {
  private Generate() {}

  public static void main(String[] arguments) {
    String topic = arguments[1];
    int partitions = Integer.parseInt(arguments[2]);
    Records records = new Records(arguments[3], arguments[4], Integer.parseInt(arguments[6]));
    long count = Long.parseLong(arguments[5]);
    Map<String, Object> config = Map.of("bootstrap.servers", arguments[0], "linger.ms", 50,
        "batch.size", 262_144, "buffer.memory", 134_217_728L, "compression.type", "lz4", "acks", "1",
        "enable.idempotence", false, "max.request.size", 10_000_000);
    AtomicReference<Exception> failure = new AtomicReference<>();
    long bytes = 0;
    try (KafkaProducer<byte[], byte[]> producer =
        new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
      for (long number = 0; number < count; number++) {
        byte[] value = records.next(number);
        bytes += value.length;
        producer.send(new ProducerRecord<>(topic, (int) (number % partitions), null, value), (sent, error) -> {
          if (error != null) {
            failure.compareAndSet(null, error);
          }
        });
      }
    }
    if (failure.get() != null) {
      throw new IllegalStateException("not all records were taken", failure.get());
    }
    System.out.println(bytes);
  }
}
