package io.frazil.bench;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;

/** Events in Avro and in Protobuf, framed as Confluent's serializers frame them. */
final class Binary extends ByteArrayOutputStream {
  private static final int VARINT = 0;
  private static final int FIXED64 = 1;
  private static final int DELIMITED = 2;

  /** Returns an event in Avro; all columns but the first are unions with null. */
  byte[] avro(Event event, int schemaId) {
    begin(schemaId);
    zigzag(event.id);
    some();
    zigzag(event.userId);
    avroText(event.type);
    some();
    zigzag(event.ts);
    some();
    fixed64(Double.doubleToRawLongBits(event.amount));
    avroText(event.country);
    avroText(event.session);
    avroText(event.device);
    some();
    write(event.isNew ? 1 : 0);
    avroText(event.url);
    return toByteArray();
  }

  /** Returns an event in Protobuf; the columns are fields 1 to 10, and all but the first optional. */
  byte[] protobuf(Event event, int schemaId) {
    begin(schemaId);
    write(0); // The first message of the schema.
    if (event.id != 0) {
      tag(1, VARINT);
      varint(event.id);
    }
    tag(2, VARINT);
    varint(event.userId);
    protobufText(3, event.type);
    tag(4, VARINT);
    varint(event.ts);
    tag(5, FIXED64);
    fixed64(Double.doubleToRawLongBits(event.amount));
    protobufText(6, event.country);
    protobufText(7, event.session);
    protobufText(8, event.device);
    tag(9, VARINT);
    write(event.isNew ? 1 : 0);
    protobufText(10, event.url);
    return toByteArray();
  }

  private void begin(int schemaId) {
    reset();
    write(0);
    for (int shift = 24; shift >= 0; shift -= 8) {
      write(schemaId >>> shift);
    }
  }

  /** The second branch of a union. */
  private void some() {
    zigzag(1);
  }

  private void avroText(String text) {
    some();
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    zigzag(bytes.length);
    writeBytes(bytes);
  }

  private void protobufText(int field, String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    tag(field, DELIMITED);
    varint(bytes.length);
    writeBytes(bytes);
  }

  private void tag(int field, int type) {
    varint((long) field << 3 | type);
  }

  private void zigzag(long value) {
    varint(value << 1 ^ value >> 63);
  }

  private void varint(long value) {
    long left = value;
    while ((left & ~0x7FL) != 0) {
      write((int) (left & 0x7F | 0x80));
      left >>>= 7;
    }
    write((int) left);
  }

  private void fixed64(long bits) {
    for (int shift = 0; shift < 64; shift += 8) {
      write((int) (bits >>> shift));
    }
  }
}
