package io.frazil.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/** Which source types were tried on which column types, and what came of it. */
final class Coverage {
  private static final String LANDED = "landed";
  private static final String REFUSED = "refused";
  /** What is created when there is no column yet. */
  private static final String NEW = "new";

  /** Source, target, and what the samples of the cell came to: {@link #LANDED} and error codes. */
  private final Map<String, Map<String, Set<String>>> cells = new TreeMap<>();

  /** Notes the samples of a case that passed. */
  void add(Case body) {
    JsonNode cell = body.body().path("cell");
    JsonNode source = cell.has(0) ? cell.get(0) : body.body().path("source");
    JsonNode target = cell.has(1) ? cell.get(1) : body.body().path("target");
    if (!source.isTextual() || body.body().has("must-fail")) {
      return;
    }
    Set<String> outcomes = cells.computeIfAbsent(source.asText(), any -> new TreeMap<>())
        .computeIfAbsent(target.isTextual() ? target.asText() : NEW, any -> new TreeSet<>());
    for (JsonNode record : body.body().path("records")) {
      if (record.has("error")) {
        JsonNode error = record.get("error");
        outcomes.add(error.isTextual() ? error.asText() : error.path("code").asText());
      } else if (!record.path("value").path("v").isNull()) {
        outcomes.add(LANDED);
      }
    }
  }

  /** Prints the matrix; returns whether every cell of the type table has a case. */
  boolean print(PrintStream out, Path types) throws IOException {
    int landed = 0;
    int refused = 0;
    for (Map.Entry<String, Map<String, Set<String>>> row : cells.entrySet()) {
      out.println(row.getKey());
      for (Map.Entry<String, Set<String>> cell : row.getValue().entrySet()) {
        boolean lands = cell.getValue().contains(LANDED);
        landed += lands ? 1 : 0;
        refused += lands ? 0 : 1;
        out.printf("  %-26s %-8s %s%n", cell.getKey(), lands ? LANDED : REFUSED, codes(cell.getValue()));
      }
    }
    out.println(landed + " cells landed, " + refused + " refused");
    return !Files.exists(types) || complete(out, types);
  }

  private static String codes(Set<String> outcomes) {
    Set<String> codes = new TreeSet<>(outcomes);
    codes.remove(LANDED);
    return String.join(" ", codes);
  }

  /** Compares with the table that the documentation is made of: a cell is [source, target, landed or code]. */
  private boolean complete(PrintStream out, Path types) throws IOException {
    int missing = 0;
    for (JsonNode cell : Case.JSON.readTree(Files.readString(types)).path("cells")) {
      String source = cell.path("source").asText();
      String target = cell.path("target").asText();
      String wanted = cell.path("outcome").asText().equals(LANDED) ? LANDED : cell.path("code").asText();
      Set<String> found = cells.getOrDefault(source, Map.of()).getOrDefault(target, Set.of());
      if (!found.contains(wanted)) {
        missing++;
        out.println("no case shows " + source + " into " + target + ": " + wanted + " " + found);
      }
    }
    out.println(missing == 0 ? "every cell of docs/types.md has a case" : missing + " cells of docs/types.md have no case");
    return missing == 0;
  }
}
