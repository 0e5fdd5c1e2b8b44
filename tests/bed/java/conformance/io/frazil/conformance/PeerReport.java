package io.frazil.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.iceberg.Table;
import org.apache.iceberg.types.Types;

/** Compares what the peer makes of records with what the cases say, and writes it down. */
final class PeerReport {
  private static final String SAME = "same row";
  private static final String BOTH = "refused by both";
  private static final String OTHER = "another value";
  private static final String STOPS = "the peer stops";
  private static final String DROPS = "the peer drops it";
  private static final String TAKES = "the peer takes it";
  private static final List<String> KINDS = List.of(SAME, BOTH, OTHER, STOPS, DROPS, TAKES);
  private static final int SHOWN_MAX = 90;

  /** A record of a case that the peer treats otherwise. */
  private record Difference(String where, String kind, String input, String wanted, String found, String right) {}

  private final Map<String, Map<String, Integer>> counts = new TreeMap<>();
  private final Map<String, Difference> differences = new LinkedHashMap<>();
  private final Map<String, Integer> repeats = new TreeMap<>();

  /** Folders whose cases turn on keys that the peer does not have, or on the table's state between records. */
  private static final Set<String> ELSEWHERE = Set.of("columns", "evolution", "metadata", "routing", "tables");

  /** Cases that say something of single records, and use no key that the peer does not have. */
  static boolean suits(Case body) {
    if (ELSEWHERE.contains(body.file().replaceAll("/.*", ""))) {
      return false;
    }
    for (Map.Entry<String, JsonNode> key : body.body().path("config").properties()) {
      if (key.getKey().startsWith("frazil.")) {
        return false;
      }
    }
    boolean says = false;
    for (JsonNode record : body.body().path("records")) {
      says |= record.has("row") || record.has("rows") || record.has("error");
    }
    return says && !body.body().has("must-fail") && !body.body().path("expect").has("fails")
        && !body.body().path("expect").has("validate");
  }

  /** Runs a case and notes each of its records. */
  void run(Case body, Tables tables, Map<String, String> config) throws IOException {
    Steps steps = new Steps(body, config);
    PeerRun run = new PeerRun(tables, config);
    for (PeerRun.Became became : body.body().has("samples") ? run.together(steps) : run.run(steps)) {
      String kind = kind(body, became, tables);
      if (kind == null) {
        continue;
      }
      String folder = body.file().replaceAll("/.*|\\.json", "");
      counts.computeIfAbsent(folder, any -> new TreeMap<>()).merge(kind, 1, Integer::sum);
      if (!Set.of(SAME, BOTH).contains(kind)) {
        note(body, became, kind, tables);
      }
    }
  }

  private String kind(Case body, PeerRun.Became became, Tables tables) {
    JsonNode notation = became.sent().notation();
    boolean refused = notation.has("error");
    if (!refused && !notation.has("row") && !notation.has("rows")) {
      return null;
    }
    if (became.thrown() != null) {
      return refused ? BOTH : STOPS;
    }
    if (became.rows().values().stream().allMatch(List::isEmpty)) {
      return DROPS;
    }
    if (refused) {
      return TAKES;
    }
    for (Map.Entry<String, List<String>> table : became.rows().entrySet()) {
      String wanted = wanted(became.sent(), table.getKey(), tables);
      if (wanted == null || !table.getValue().equals(List.of(wanted))) {
        return OTHER;
      }
    }
    return SAME;
  }

  /** The expected row in the types that the table has; null when they cannot hold it. */
  private static String wanted(Steps.Sent sent, String name, Tables tables) {
    JsonNode row = PeerRun.wantedRow(sent, name);
    Table table = tables.load(name);
    if (row == null || row.isArray() || table == null) {
      return null;
    }
    try {
      Types.StructType type = table.schema().asStruct();
      return Canonical.text(type, Canonical.struct(type, row));
    } catch (CaseException e) {
      return null;
    }
  }

  private void note(Case body, PeerRun.Became became, String kind, Tables tables) {
    JsonNode notation = became.sent().notation();
    JsonNode error = notation.path("error");
    String code = error.isTextual() ? error.asText() : error.path("code").asText();
    String wanted = notation.has("error") ? "`" + code + "`" : code(notation.has("row") ? notation.get("row") : notation.get("rows"));
    String found = became.thrown() != null ? named(became.thrown()) : code(became.rows().toString());
    String where = body.file().replace(".json", "") + ": " + body.name();
    String key = where + kind + code;
    repeats.merge(key, 1, Integer::sum);
    differences.putIfAbsent(key, new Difference(where, kind, code(notation.path("value")), wanted, found,
        right(kind, code, notation.path("value").toString())));
  }

  /** Who is right, and why. */
  private static String right(String kind, String code, String input) {
    if (kind.equals(TAKES) && input.matches(".*(NaN|Infinity).*")) {
      return "the case: the column has no such number";
    }
    if (kind.equals(TAKES)) {
      return switch (code) {
        case "VALUE_UNIT_UNKNOWN" -> "a choice: the peer's rule is days or milliseconds, the record says nothing";
        case "VALUE_NOT_CONVERTIBLE", "VALUE_NOT_A_RECORD" -> "a choice: the peer converts by a rule of its own";
        case "RECORD_TYPE_UNSUPPORTED", "RECORD_SCHEMA_REFUSED", "RECORD_TOO_DEEP" -> "a choice: the peer goes further here";
        case "REQUIRED_FIELD_NULL" -> "the case: the column is required";
        default -> "the case: the value is not the record's any more";
      };
    }
    return switch (kind) {
      case OTHER -> "the case: the row says something else than the record";
      case STOPS -> "the case: the column can hold the value";
      default -> "the case: nobody asked to lose it";
    };
  }

  private static String named(Throwable thrown) {
    Throwable cause = thrown;
    while (cause.getCause() != null) {
      cause = cause.getCause();
    }
    return "`" + cause.getClass().getSimpleName() + "`";
  }

  private static String code(Object value) {
    String text = String.valueOf(value).replace("|", "\\|").replace("`", "'").replace("\n", " ");
    return "`" + (text.length() > SHOWN_MAX ? text.substring(0, SHOWN_MAX) + "…" : text) + "`";
  }

  /** Returns the page. */
  String page(String version, int ran, int total) {
    StringBuilder page = new StringBuilder("# The cases through the Apache sink\n\n"
        + "Written by `./x conformance --peer`: the records of [tests/conformance](../tests/conformance/README.md)"
        + " through Apache Iceberg's sink " + version + " (its `SinkWriter`, each record alone, its files appended as"
        + " its coordinator does), read back by Iceberg's Java library. Cases about keys that it does not have, about"
        + " how tables are made and evolve, failures of a task and about validation are left out: " + ran + " of " + total + " cases ran.\n\n"
        + "Where a record is refused here with a code and set aside, and the peer throws, both refuse it; but the peer's"
        + " task then stops, for it reports nothing to a dead letter queue.\n\n| cases | "
        + String.join(" | ", KINDS) + " |\n|---" + "|---".repeat(KINDS.size()) + "|\n");
    Map<String, Integer> all = new TreeMap<>();
    counts.forEach((folder, kinds) -> {
      page.append(row(folder, kinds));
      kinds.forEach((kind, count) -> all.merge(kind, count, Integer::sum));
    });
    page.append(row("all", all)).append("\n## Where it differs\n\n"
        + "One line for each case and kind of difference, with the first record that shows it.\n\n"
        + "| case | record | right | the peer | records | who is right |\n|---|---|---|---|---|---|\n");
    differences.forEach((key, difference) -> page.append("| ").append(String.join(" | ", difference.where.replace("|", "\\|"),
        difference.input, difference.wanted, difference.found, repeats.get(key).toString(), difference.right)).append(" |\n"));
    return page.toString();
  }

  private static String row(String name, Map<String, Integer> kinds) {
    List<String> cells = new ArrayList<>(List.of(name));
    KINDS.forEach(kind -> cells.add(kinds.getOrDefault(kind, 0).toString()));
    return "| " + String.join(" | ", cells) + " |\n";
  }
}
