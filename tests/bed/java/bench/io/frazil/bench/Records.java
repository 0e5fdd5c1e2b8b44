package io.frazil.bench;

import java.nio.charset.StandardCharsets;
import java.util.SplittableRandom;

/** Makes records of one kind in one format, the same ones each time. */
final class Records {
  private static final long SEED = 42;
  private static final int WIDE_COLUMNS = 200;
  private static final String ENVELOPE = "{\"schema\":{\"type\":\"struct\",\"optional\":false,\"fields\":["
      + field("id", "int64", false) + "," + field("user_id", "int64", true) + ","
      + field("event_type", "string", true) + "," + field("ts", "int64", true) + ","
      + field("amount", "double", true) + "," + field("country", "string", true) + ","
      + field("session", "string", true) + "," + field("device", "string", true) + ","
      + field("is_new", "boolean", true) + "," + field("url", "string", true) + "]},\"payload\":";

  private final SplittableRandom random = new SplittableRandom(SEED);
  private final StringBuilder text = new StringBuilder(8192);
  private final Binary binary = new Binary();
  private final Event event = new Event();
  private final String kind;
  private final String format;
  private final int shops;
  private final int schemaId;

  /** {@code kind}: event, wide, nested, or shopN with N shops; {@code format}: json, envelope, avro, protobuf. */
  Records(String kind, String format, int schemaId) {
    this.kind = kind.startsWith("shop") ? "event" : kind;
    this.shops = kind.startsWith("shop") ? Integer.parseInt(kind.substring("shop".length())) : 0;
    this.format = format;
    this.schemaId = schemaId;
    if (!this.kind.equals("event") && !format.equals("json")) {
      throw new IllegalArgumentException("records of kind " + kind + " are made as JSON only");
    }
  }

  /** Returns the record of a number; numbers are asked for one after the other. */
  byte[] next(long number) {
    long bits = random.nextLong();
    text.setLength(0);
    switch (kind) {
      case "event" -> event.become(number, bits, shops);
      case "wide" -> wide(number, bits);
      case "nested" -> nested(number, bits);
      default -> throw new IllegalArgumentException("no records of kind " + kind);
    }
    switch (format) {
      case "avro" -> {
        return binary.avro(event, schemaId);
      }
      case "protobuf" -> {
        return binary.protobuf(event, schemaId);
      }
      case "envelope" -> {
        text.append(ENVELOPE);
        event.json(text);
        text.append('}');
      }
      case "json" -> {
        if (kind.equals("event")) {
          event.json(text);
        }
      }
      default -> throw new IllegalArgumentException("no format " + format);
    }
    return text.toString().getBytes(StandardCharsets.UTF_8);
  }

  private static String field(String name, String type, boolean optional) {
    return "{\"field\":\"" + name + "\",\"type\":\"" + type + "\",\"optional\":" + optional + "}";
  }

  /** 200 columns of five types in turn; one in eight values is null. */
  private void wide(long number, long bits) {
    text.append("{\"id\":").append(number);
    long mixed = bits;
    for (int column = 1; column < WIDE_COLUMNS; column++) {
      mixed = mixed * 6_364_136_223_846_793_005L + 1_442_695_040_888_963_407L;
      long high = mixed >>> 20;
      text.append(",\"c").append(column).append("\":");
      if ((mixed >>> 61) == 0) {
        text.append("null");
        continue;
      }
      switch (column % 5) {
        case 0 -> text.append(high % 1_000_000);
        case 1 -> text.append(high % 100_000 / 100.0);
        case 2 -> text.append("\"state-").append(high % 16).append('"');
        case 3 -> text.append((high & 1) == 0);
        default -> text.append('"').append(Long.toHexString(high)).append('"');
      }
    }
    text.append('}');
  }

  /** A struct in a struct, a list of structs, a list of strings and a map. */
  private void nested(long number, long bits) {
    text.append("{\"id\":").append(number).append(",\"customer\":{\"name\":\"n")
        .append(Math.floorMod(bits, 100_000L)).append("\",\"address\":{\"city\":\"c")
        .append(Math.floorMod(bits >> 9, 400L)).append("\",\"zip\":\"")
        .append(10_000 + Math.floorMod(bits >> 13, 80_000L)).append("\"}},\"items\":[");
    int items = 1 + (int) Math.floorMod(bits >> 21, 4L);
    for (int item = 0; item < items; item++) {
      long mixed = bits * (2 * item + 31);
      text.append(item == 0 ? "" : ",").append("{\"sku\":\"sku-").append(Math.floorMod(mixed >> 11, 5_000L))
          .append("\",\"quantity\":").append(1 + Math.floorMod(mixed >> 27, 9L))
          .append(",\"price\":").append(Math.floorMod(mixed >> 33, 100_000L) / 100.0).append('}');
    }
    text.append("],\"tags\":[\"t").append(Math.floorMod(bits >> 29, 50L)).append("\",\"u")
        .append(Math.floorMod(bits >> 35, 7L)).append("\"],\"attributes\":{\"color\":\"")
        .append(Math.floorMod(bits >> 39, 12L)).append("\",\"size\":\"")
        .append(Math.floorMod(bits >> 43, 6L)).append("\"}}");
  }
}
