package io.frazil.conformance;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.cfg.JsonNodeFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** One case, by the file and name that it has. */
record Case(String file, String name, JsonNode body) {
  /** The table of cases that name none. */
  static final String TABLE = "db.t";

  static final ObjectMapper JSON = JsonMapper.builder()
      .enable(JsonParser.Feature.STRICT_DUPLICATE_DETECTION)
      .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS, DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
      .disable(JsonNodeFeature.STRIP_TRAILING_BIGDECIMAL_ZEROES)
      .build();

  private static final Set<String> KEYS = Set.of("name", "about", "source", "target", "column", "samples", "schema",
      "key-schema", "table", "tables", "config", "records", "expect", "cell", "peer", "must-fail", "reporter",
      "partitions", "wrap");
  private static final Set<String> FILE_KEYS = Set.of("about", "cases");

  /** Reads all cases of a file. */
  static List<Case> read(Path path, String shown) {
    JsonNode root;
    try {
      root = JSON.readTree(Files.readString(path));
    } catch (IOException e) {
      throw new CaseException(shown + ": " + e.getMessage(), e);
    }
    List<Case> cases = new ArrayList<>();
    if (!root.isObject()) {
      throw new CaseException(shown + ": a case file is an object");
    }
    if (root.has("cases")) {
      known(shown, root, FILE_KEYS);
      for (JsonNode body : root.get("cases")) {
        cases.add(of(shown, body));
      }
    } else {
      cases.add(of(shown, root));
    }
    Set<String> names = new HashSet<>();
    for (Case read : cases) {
      if (!names.add(read.name)) {
        throw new CaseException(shown + ": two cases have the name `" + read.name + "`");
      }
    }
    return cases;
  }

  private static Case of(String file, JsonNode body) {
    if (!body.path("name").isTextual()) {
      throw new CaseException(file + ": a case has no name");
    }
    String name = body.get("name").asText();
    known(file + ": " + name, body, KEYS);
    Case read = new Case(file, name, body);
    return body.has("samples") ? read.spread() : read;
  }

  private static void known(String where, JsonNode node, Set<String> keys) {
    node.fieldNames().forEachRemaining(key -> {
      if (!keys.contains(key)) {
        throw new CaseException(where + ": unknown key `" + key + "`");
      }
    });
  }

  /** Turns {@code source}, {@code target} and {@code samples} into a table, a schema and records. */
  private Case spread() {
    ObjectNode body = this.body.deepCopy();
    JsonNode source = body.get("source");
    JsonNode target = body.get("target");
    if (target != null && !body.has("table")) {
      body.putObject("table").putObject("columns").set("v", target);
    }
    if (source != null && !body.has("schema")) {
      ObjectNode schema = body.putObject("schema");
      schema.put("type", "struct");
      schema.putObject("fields").set("v", source);
    }
    ArrayNode records = body.putArray("records");
    for (JsonNode sample : body.get("samples")) {
      ObjectNode record = records.addObject();
      record.putObject("value").set("v", sample.get(0));
      JsonNode expected = sample.get(1);
      if (expected == null) {
        throw new CaseException(file + ": " + name + ": a sample is [value, expected]");
      }
      if (expected.isObject() && expected.has("$error")) {
        record.putObject("error").put("code", expected.get("$error").asText())
            .put("column", expected.path("column").asText("v"));
      } else {
        record.putObject("row").set("v", expected);
      }
    }
    if (body.has("column")) {
      ObjectNode expect = body.has("expect") ? (ObjectNode) body.get("expect") : body.putObject("expect");
      expect.putObject("columns").set("v", body.get("column"));
    }
    return new Case(file, name, body);
  }

  /** Tells whether a word of the command line is part of the case's file or name. */
  boolean matches(String word) {
    return (file + ": " + name).contains(word);
  }

  /** Returns the tables that the case names or uses: each with what is expected of it. */
  List<String> tables() {
    Set<String> names = new java.util.TreeSet<>();
    body.path("tables").fieldNames().forEachRemaining(names::add);
    body.path("expect").path("tables").fieldNames().forEachRemaining(names::add);
    for (JsonNode record : body.path("records")) {
      record.path("rows").fieldNames().forEachRemaining(names::add);
    }
    if (names.isEmpty() || body.has("table") || body.path("expect").has("columns") || body.path("expect").has("rows")) {
      names.add(TABLE);
    }
    return new ArrayList<>(names);
  }

  /** Returns the table that is there before the sink starts, or a missing node. */
  JsonNode given(String table) {
    return table.equals(TABLE) && body.has("table") ? body.get("table") : body.path("tables").path(table);
  }

  /** Returns the tables that are there before the sink starts. */
  Map<String, JsonNode> given() {
    Map<String, JsonNode> given = new java.util.LinkedHashMap<>();
    if (body.has("table")) {
      given.put(TABLE, body.get("table"));
    }
    body.path("tables").properties().forEach(table -> given.put(table.getKey(), table.getValue()));
    return given;
  }

  /** Returns what is expected of a table. */
  JsonNode expected(String table) {
    JsonNode expect = body.path("expect");
    JsonNode own = expect.path("tables").path(table);
    return own.isMissingNode() && table.equals(TABLE) ? expect : own;
  }

  /** Tells whether the case waits for a commit while its tasks run. */
  boolean waits() {
    boolean waits = body.path("expect").has("committed");
    for (JsonNode record : body.path("records")) {
      waits |= record.asText().equals("commit");
    }
    return waits;
  }

  /** Returns all entries of the case's configuration, those of the format's defaults included. */
  Map<String, String> config(Map<String, String> defaults) {
    Map<String, String> config = new java.util.TreeMap<>(defaults);
    lay(config, body.path("config"));
    return config;
  }

  /** Lays keys over a configuration; null takes one away. */
  static void lay(Map<String, String> config, JsonNode keys) {
    for (Map.Entry<String, JsonNode> key : keys.properties()) {
      if (key.getValue().isNull()) {
        config.remove(key.getKey());
      } else {
        config.put(key.getKey(), key.getValue().asText());
      }
    }
  }
}
