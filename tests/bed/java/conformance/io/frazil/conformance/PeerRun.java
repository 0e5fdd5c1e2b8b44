package io.frazil.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Runs a case through Apache Iceberg's sink: its {@code SinkWriter} on the case's catalog, each record
 * alone, its files appended as its coordinator would. Everything of it is found by name.
 */
final class PeerRun {
  private static final String PACKAGE = "org.apache.iceberg.connect.";

  /** What one record became: rows of tables, an exception, or neither. */
  record Became(Steps.Sent sent, Map<String, List<String>> rows, Throwable thrown) {}

  private final Tables tables;
  private final Object config;

  PeerRun(Tables tables, Map<String, String> keys) {
    this.tables = tables;
    Map<String, String> own = new HashMap<>();
    keys.forEach((key, value) -> {
      if (key.startsWith("iceberg.") || key.equals("name") || key.equals("topics")) {
        own.put(key, value);
      }
    });
    own.put("iceberg.catalog.type", "jdbc");
    this.config = make(PACKAGE + "IcebergSinkConfig", new Class<?>[] {Map.class}, own);
  }

  /**
   * Returns the same as {@link #run} for records that make one row each of one table, with one commit for
   * all: first each alone tells whether it is taken, then those that are go together.
   */
  List<Became> together(Steps steps) throws IOException {
    Map<Steps.Sent, Throwable> thrown = new IdentityHashMap<>();
    List<SinkRecord> taken = new ArrayList<>();
    Object probe = writer();
    for (Steps.Sent sent : steps.sent) {
      try {
        call(probe, "save", java.util.Collection.class, List.of(sent.record()));
        taken.add(sent.record());
      } catch (PeerException e) {
        thrown.put(sent, e.getCause());
      }
    }
    List<String> rows = List.of();
    String table = Case.TABLE;
    try {
      Object writer = writer();
      call(writer, "save", java.util.Collection.class, taken);
      Map<String, List<String>> added = append(call(writer, "completeWrite", null, null));
      rows = added.getOrDefault(table, List.of());
    } catch (PeerException e) {
      return run(steps);
    }
    if (rows.size() != taken.size()) {
      return run(steps);
    }
    List<Became> became = new ArrayList<>();
    Iterator<String> next = rows.iterator();
    for (Steps.Sent sent : steps.sent) {
      Throwable reason = thrown.get(sent);
      became.add(new Became(sent, reason == null ? Map.of(table, List.of(next.next())) : Map.of(), reason));
    }
    return became;
  }

  private Object writer() {
    return make(PACKAGE + "data.SinkWriter", new Class<?>[] {Catalog.class, config.getClass()}, tables.catalog(), config);
  }

  /** Returns what became of each record. */
  List<Became> run(Steps steps) throws IOException {
    List<Became> became = new ArrayList<>();
    Object writer = null;
    for (Steps.Sent sent : steps.sent) {
      if (sent.record() == null) {
        continue;
      }
      try {
        if (writer == null) {
          writer = writer();
        }
        call(writer, "save", java.util.Collection.class, List.of(sent.record()));
        Object result = call(writer, "completeWrite", null, null);
        became.add(new Became(sent, append(result), null));
      } catch (PeerException e) {
        became.add(new Became(sent, Map.of(), e.getCause()));
        writer = null; // Its task would have died: the next record meets a new one.
      }
    }
    return became;
  }

  private Map<String, List<String>> append(Object result) throws IOException {
    Map<String, List<DataFile>> files = new TreeMap<>();
    for (Object part : (List<?>) call(result, "writerResults", null, null)) {
      Object reference = call(part, "tableReference", null, null);
      String name = call(reference, "identifier", null, null).toString();
      for (Object file : (List<?>) call(part, "dataFiles", null, null)) {
        files.computeIfAbsent(name, any -> new ArrayList<>()).add((DataFile) file);
      }
    }
    Map<String, List<String>> rows = new TreeMap<>();
    for (Map.Entry<String, List<DataFile>> entry : files.entrySet()) {
      Table table = tables.catalog().loadTable(TableIdentifier.parse(entry.getKey()));
      Long before = table.currentSnapshot() == null ? null : table.currentSnapshot().snapshotId();
      AppendFiles append = table.newAppend();
      entry.getValue().forEach(append::appendFile);
      append.commit();
      rows.put(entry.getKey(), added(table, before));
    }
    return rows;
  }

  private static List<String> added(Table table, Long before) throws IOException {
    IcebergGenerics.ScanBuilder scan = IcebergGenerics.read(table);
    scan = before == null ? scan : scan.appendsAfter(before);
    List<String> rows = new ArrayList<>();
    try (CloseableIterable<Record> records = scan.build()) {
      records.forEach(record -> rows.add(Canonical.text(table.schema().asStruct(), record)));
    }
    return rows;
  }

  /** What the peer threw. */
  private static final class PeerException extends RuntimeException {
    private static final long serialVersionUID = 1;

    PeerException(Throwable cause) {
      super(cause);
    }
  }

  private static Object make(String name, Class<?>[] types, Object... arguments) {
    try {
      Constructor<?> constructor = Class.forName(name).getConstructor(types);
      return constructor.newInstance(arguments);
    } catch (InvocationTargetException e) {
      throw new PeerException(e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new CaseException("the peer is not on the class path, or is another version", e);
    }
  }

  private static Object call(Object target, String method, Class<?> type, Object argument) {
    try {
      return type == null
          ? target.getClass().getMethod(method).invoke(target)
          : target.getClass().getMethod(method, type).invoke(target, argument);
    } catch (InvocationTargetException e) {
      throw new PeerException(e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new CaseException("the peer is another version: it has no " + method, e);
    }
  }

  /** Returns what a case says of a record and a table: a row's notation, or null. */
  static JsonNode wantedRow(Steps.Sent sent, String table) {
    JsonNode row = table.equals(Case.TABLE) ? sent.notation().path("row") : sent.notation().path("rows").path(table);
    return row.isMissingNode() ? null : row;
  }
}
