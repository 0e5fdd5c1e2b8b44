package io.frazil.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SortField;
import org.apache.iceberg.Table;
import org.apache.iceberg.types.Types;

/** Compares what a sink did with what a case expects. */
final class Check {
  private static final Set<String> EXPECT_KEYS = Set.of("columns", "rows", "tables", "absent", "fails", "validate",
      "committed", "ids", "docs", "identifier", "partition", "sort", "properties", "files", "snapshots", "branch",
      "format-version", "defaults", "location", "schemas", "specs");
  /** Shorter texts may stand in a message for other reasons. */
  private static final int VALUE_LENGTH = 6;

  private final Case body;
  private final Steps steps;
  private final Outcome outcome;
  private final List<String> complaints = new ArrayList<>();

  Check(Case body, Steps steps, Outcome outcome) {
    this.body = body;
    this.steps = steps;
    this.outcome = outcome;
  }

  /** Returns one line for each difference. */
  List<String> compare(Tables tables) throws IOException {
    JsonNode expect = body.body().path("expect");
    known(expect);
    if (expect.has("validate")) {
      validated(expect.get("validate"));
      return complaints;
    }
    failure(expect);
    rejections();
    secrets();
    for (String name : body.tables()) {
      table(name, tables.load(name));
    }
    for (JsonNode name : expect.path("absent")) {
      if (tables.load(name.asText()) != null) {
        complaints.add("there is a table " + name.asText());
      }
    }
    for (Map.Entry<String, JsonNode> offset : expect.path("committed").properties()) {
      same("committed " + offset.getKey(), offset.getValue().asLong(), outcome.committed.get(offset.getKey()));
    }
    return complaints;
  }

  private void known(JsonNode expect) {
    expect.fieldNames().forEachRemaining(key -> {
      if (!EXPECT_KEYS.contains(key)) {
        throw new CaseException(body.file() + ": " + body.name() + ": unknown key `" + key + "` of expect");
      }
    });
    boolean says = !expect.isEmpty();
    for (JsonNode record : body.body().path("records")) {
      says |= record.has("row") || record.has("rows") || record.has("error");
    }
    if (!says) {
      throw new CaseException(body.file() + ": " + body.name() + ": nothing is expected, so nothing can fail");
    }
  }

  private void same(String what, Object expected, Object found) {
    if (!String.valueOf(expected).equals(String.valueOf(found))) {
      complaints.add(what + ": expected " + expected + ", found " + found);
    }
  }

  private void validated(JsonNode expected) {
    Map<String, List<String>> open = new TreeMap<>(outcome.validated);
    for (Map.Entry<String, JsonNode> key : expected.properties()) {
      List<String> messages = open.remove(key.getKey());
      if (messages == null) {
        complaints.add("validate has no error on `" + key.getKey() + "`");
      } else if (!String.join(" ", messages).contains(key.getValue().asText())) {
        complaints.add("validate says of `" + key.getKey() + "`: " + messages + ", not " + key.getValue());
      }
    }
    open.forEach((key, messages) -> complaints.add("validate has an error on `" + key + "`: " + messages));
  }

  private void failure(JsonNode expect) {
    JsonNode wanted = expect.path("fails");
    String text = outcome.failureText();
    if (wanted.isMissingNode()) {
      if (outcome.failure != null) {
        complaints.add("the task failed in " + outcome.failedAt + ": " + text);
      }
      return;
    }
    if (outcome.failure == null) {
      complaints.add("the task did not fail");
      return;
    }
    if (wanted.has("code") && !text.contains("[" + wanted.get("code").asText())) {
      complaints.add("the task failed, but not with " + wanted.get("code").asText() + ": " + text);
    }
    if (wanted.has("at")) {
      same("failed in", wanted.get("at").asText(), outcome.failedAt);
    }
    for (JsonNode word : wanted.path("says")) {
      if (!text.contains(word.asText())) {
        complaints.add("the failure does not say " + word + ": " + text);
      }
    }
  }

  /** Each expected refusal is there with its code, column and coordinates, and there is no other. */
  private void rejections() {
    Map<String, String> open = new TreeMap<>();
    for (Outcome.Rejected rejected : outcome.rejected) {
      if (open.put(rejected.coordinates(), rejected.reason()) != null) {
        complaints.add("record " + rejected.coordinates() + " was set aside twice");
      }
    }
    for (Steps.Sent sent : steps.sent) {
      JsonNode wanted = sent.notation().path("error");
      if (wanted.isMissingNode()) {
        continue;
      }
      String reason = open.remove(sent.coordinates());
      String code = wanted.isTextual() ? wanted.asText() : wanted.path("code").asText();
      if (reason == null) {
        complaints.add("record " + sent.coordinates() + " was not refused with " + code);
        continue;
      }
      List<String> words = new ArrayList<>(List.of("[" + code, "record " + sent.coordinates() + ":"));
      if (wanted.has("column") && !reason.matches("(?s).*column=" + java.util.regex.Pattern.quote(
          wanted.get("column").asText()) + "[],].*")) {
        complaints.add("record " + sent.coordinates() + ": column " + wanted.get("column") + " is not named in: " + reason);
      }
      wanted.path("says").forEach(word -> words.add(word.asText()));
      for (String word : words) {
        if (!reason.contains(word)) {
          complaints.add("record " + sent.coordinates() + ": `" + word + "` is not in: " + reason);
        }
      }
    }
    open.forEach((place, reason) -> complaints.add("record " + place + " was refused: " + reason));
  }

  /** No message shows a value of the record. */
  private void secrets() {
    List<String> messages = new ArrayList<>();
    outcome.rejected.forEach(rejected -> messages.add(rejected.reason()));
    messages.add(outcome.failureText());
    for (Steps.Sent sent : steps.sent) {
      if (sent.notation().has("error") || outcome.failure != null) {
        List<String> values = new ArrayList<>();
        gather(sent.notation().path("value"), values);
        for (String value : values) {
          if (messages.stream().anyMatch(message -> message.contains(value))) {
            complaints.add("a message shows a value of record " + sent.coordinates());
          }
        }
      }
    }
  }

  private static void gather(JsonNode node, List<String> values) {
    if (node.isTextual() && node.asText().length() >= VALUE_LENGTH) {
      values.add(node.asText());
    }
    node.forEach(child -> gather(child, values));
  }

  private void table(String name, Table table) throws IOException {
    JsonNode expected = body.expected(name);
    known(expected.isMissingNode() ? Case.JSON.createObjectNode().put("rows", 0) : expected);
    List<JsonNode> wanted = rows(name, expected);
    if (table == null) {
      if (!wanted.isEmpty() || expected.has("columns")) {
        complaints.add("there is no table " + name);
      }
      return;
    }
    schema(name, table, expected);
    Types.StructType type = table.schema().asStruct();
    List<String> left = new ArrayList<>();
    for (JsonNode row : wanted) {
      try {
        left.add(Canonical.text(type, Canonical.struct(type, row)));
      } catch (CaseException e) {
        complaints.add(name + ": " + e.getMessage());
      }
    }
    List<String> found = Tables.rows(table, expected.path("branch").asText(null));
    for (String row : new ArrayList<>(found)) {
      if (left.remove(row)) {
        found.remove(row);
      }
    }
    Collections.sort(left);
    Collections.sort(found);
    left.forEach(row -> complaints.add(name + " lacks " + row));
    found.forEach(row -> complaints.add(name + " has " + row));
    extras(name, table, expected);
  }

  /** What the records say of a table, and what stands in {@code expect}. */
  private List<JsonNode> rows(String name, JsonNode expected) {
    List<JsonNode> rows = new ArrayList<>();
    for (Steps.Sent sent : steps.sent) {
      if (name.equals(Case.TABLE) && sent.notation().has("row")) {
        rows.add(sent.notation().get("row"));
      }
      JsonNode own = sent.notation().path("rows").path(name);
      if (own.isArray()) {
        own.forEach(rows::add);
      } else if (!own.isMissingNode()) {
        rows.add(own);
      }
    }
    expected.path("rows").forEach(rows::add);
    JsonNode given = body.given(name);
    if (!given.has("then")) { // What stood there before, unless its columns were changed since.
      given.path("rows").forEach(rows::add);
    }
    return rows;
  }

  private void schema(String name, Table table, JsonNode expected) {
    Schema schema = table.schema();
    if (expected.has("columns")) {
      List<String> columns = new ArrayList<>();
      TypeNotation.schema(expected.get("columns")).columns()
          .forEach(column -> columns.add(column.name() + " " + TypeNotation.typed(column)));
      List<String> found = new ArrayList<>();
      schema.columns().forEach(column -> found.add(column.name() + " " + TypeNotation.typed(column)));
      same(name + " has the columns", columns, found);
    }
    each(expected, "ids", (path, id) -> same(name + ": the id of " + path, id.asInt(),
        schema.findField(path) == null ? null : schema.findField(path).fieldId()));
    each(expected, "docs", (path, doc) -> same(name + ": the doc of " + path, doc.isNull() ? null : doc.asText(),
        schema.findField(path) == null ? "no such column" : schema.findField(path).doc()));
    each(expected, "defaults", (path, value) -> {
      Types.NestedField field = schema.findField(path);
      same(name + ": the defaults of " + path, value.asText(), field == null ? "no such column"
          : Canonical.text(field.type(), field.initialDefault()) + "/" + Canonical.text(field.type(), field.writeDefault()));
    });
    if (expected.has("identifier")) {
      Set<String> wanted = new TreeSet<>();
      expected.get("identifier").forEach(column -> wanted.add(column.asText()));
      same(name + ": identifier fields", wanted, new TreeSet<>(schema.identifierFieldNames()));
    }
  }

  private void extras(String name, Table table, JsonNode expected) throws IOException {
    if (expected.has("partition")) {
      List<String> wanted = new ArrayList<>();
      expected.get("partition").forEach(field -> wanted.add(field.asText()));
      same(name + ": partition spec", wanted, TypeNotation.spec(table.spec()));
    }
    if (expected.has("sort")) {
      List<String> wanted = new ArrayList<>();
      expected.get("sort").forEach(field -> wanted.add(field.asText()));
      List<String> found = new ArrayList<>();
      for (SortField field : table.sortOrder().fields()) {
        found.add(field.transform() + " " + table.schema().findColumnName(field.sourceId()) + " "
            + field.direction() + " " + field.nullOrder());
      }
      same(name + ": sort order", wanted, found);
    }
    each(expected, "properties", (key, value) -> same(name + ": property " + key,
        value.isNull() ? null : value.asText(), table.properties().get(key)));
    if (expected.has("files")) {
      same(name + ": data files", expected.get("files").asInt(), Tables.files(table));
    }
    if (expected.has("snapshots")) {
      int count = 0;
      for (Object ignored : table.snapshots()) {
        count++;
      }
      same(name + ": snapshots", expected.get("snapshots").asInt(), count);
    }
    if (expected.has("schemas")) {
      same(name + ": schemas", expected.get("schemas").asInt(), table.schemas().size());
    }
    if (expected.has("specs")) {
      same(name + ": specs", expected.get("specs").asInt(), table.specs().size());
    }
    if (expected.has("location")) {
      same(name + ": ends with " + expected.get("location").asText(), true,
          table.location().endsWith(expected.get("location").asText()));
    }
    if (expected.has("format-version")) {
      same(name + ": format version", expected.get("format-version").asInt(),
          ((org.apache.iceberg.HasTableOperations) table).operations().current().formatVersion());
    }
  }

  private interface Entry {
    void check(String key, JsonNode value);
  }

  private static void each(JsonNode expected, String key, Entry entry) {
    expected.path(key).properties().forEach(found -> entry.check(found.getKey(), found.getValue()));
  }
}
