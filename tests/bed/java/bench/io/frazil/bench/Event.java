package io.frazil.bench;

import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;

/** The usual record: ten columns, 213 bytes as JSON. A number and 64 random bits make all of it. */
final class Event {
  /** Connect's schema of it. */
  static final Schema SCHEMA = SchemaBuilder.struct()
      .field("id", Schema.INT64_SCHEMA)
      .field("user_id", Schema.OPTIONAL_INT64_SCHEMA)
      .field("event_type", Schema.OPTIONAL_STRING_SCHEMA)
      .field("ts", Schema.OPTIONAL_INT64_SCHEMA)
      .field("amount", Schema.OPTIONAL_FLOAT64_SCHEMA)
      .field("country", Schema.OPTIONAL_STRING_SCHEMA)
      .field("session", Schema.OPTIONAL_STRING_SCHEMA)
      .field("device", Schema.OPTIONAL_STRING_SCHEMA)
      .field("is_new", Schema.OPTIONAL_BOOLEAN_SCHEMA)
      .field("url", Schema.OPTIONAL_STRING_SCHEMA)
      .build();

  private static final String[] TYPES = {"page_view", "click", "add_to_cart", "purchase", "logout"};
  private static final String[] COUNTRIES = {"DE", "US", "FR", "JP", "BR", "IN"};
  private static final String[] DEVICES = {"ios", "android", "web", "tv"};
  private static final long BEGINNING_MS = 1_767_225_600_000L;

  long id;
  long userId;
  String type;
  long ts;
  double amount;
  String country;
  String session;
  String device;
  boolean isNew;
  String url;

  /** Becomes the record of a number; with {@code shops} the country is one of so many shops. */
  void become(long number, long bits, int shops) {
    id = number;
    userId = Math.floorMod(bits, 1_000_000L);
    type = TYPES[(int) Math.floorMod(bits >> 7, (long) TYPES.length)];
    ts = BEGINNING_MS + number;
    amount = Math.floorMod(bits >> 13, 100_000L) / 100.0;
    country = shops == 0
        ? COUNTRIES[(int) Math.floorMod(bits >> 17, (long) COUNTRIES.length)]
        : "s" + Math.floorMod(bits >> 17, (long) shops);
    session = Long.toHexString(bits) + Long.toHexString(bits * 31);
    device = DEVICES[(int) Math.floorMod(bits >> 23, (long) DEVICES.length)];
    isNew = (bits & 1) == 0;
    url = "/shop/item/" + Math.floorMod(bits >> 29, 50_000L) + "?ref=mail";
  }

  /** Appends the record as JSON. */
  void json(StringBuilder out) {
    out.append("{\"id\":").append(id).append(",\"user_id\":").append(userId)
        .append(",\"event_type\":\"").append(type).append("\",\"ts\":").append(ts)
        .append(",\"amount\":").append(amount).append(",\"country\":\"").append(country)
        .append("\",\"session\":\"").append(session).append("\",\"device\":\"").append(device)
        .append("\",\"is_new\":").append(isNew).append(",\"url\":\"").append(url).append("\"}");
  }

  /** Returns the record as Connect's struct. */
  Struct struct() {
    return new Struct(SCHEMA).put("id", id).put("user_id", userId).put("event_type", type)
        .put("ts", ts).put("amount", amount).put("country", country).put("session", session)
        .put("device", device).put("is_new", isNew).put("url", url);
  }
}
