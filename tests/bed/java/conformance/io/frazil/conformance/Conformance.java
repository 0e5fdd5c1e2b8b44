package io.frazil.conformance;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Stream;

/**
 * Runs the cases of files and folders, and says of each how it ended.
 *
 * <p>Arguments: {@code --library PATH} names the native library, {@code --only WORD} chooses cases
 * by a word of their file or name, {@code --coverage TYPES_JSON} prints which sources were tried on
 * which targets and fails when one of that file is missing, {@code --verbose} times each case, {@code
 * --native FORM} delivers the values as bytes of {@code json}, {@code avro}, {@code protobuf} or {@code
 * json-schema} that the sink decodes, where they have such a form, {@code --peer PAGE --peer-version VERSION} runs them through Apache Iceberg's sink instead and writes the
 * page that compares; all others are files and folders.
 */
public final class Conformance {
  private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
  private final List<Path> places = new ArrayList<>();
  private final Coverage coverage = new Coverage();
  private String only = "";
  private String library;
  private Path types;
  private Path peerPage;
  private String peerVersion;
  private boolean verbose;
  /** Which bytes values are for the native decoder; null when they are values. */
  private String natively;
  /** The same, where schemas are in a registry. */
  private NativeForm form;
  private int passed;
  private int failed;

  private Conformance(String[] arguments) {
    for (int i = 0; i < arguments.length; i++) {
      switch (arguments[i]) {
        case "--only" -> only = arguments[++i];
        case "--library" -> library = arguments[++i];
        case "--coverage" -> types = Path.of(arguments[++i]);
        case "--verbose" -> verbose = true;
        case "--native" -> natively = arguments[++i];
        case "--peer" -> peerPage = Path.of(arguments[++i]);
        case "--peer-version" -> peerVersion = arguments[++i];
        default -> places.add(Path.of(arguments[i]));
      }
    }
  }

  /** Ends with 0 when all went well, with 1 when a case failed, with 2 when a file is wrong. */
  public static void main(String[] arguments) throws Exception {
    try {
      System.exit(new Conformance(arguments).run() ? 0 : 1);
    } catch (CaseException e) {
      System.err.println("conformance: " + e.getMessage());
      System.exit(2);
    }
  }

  private boolean run() throws IOException {
    List<Case> cases = new ArrayList<>();
    for (Path place : places) {
      for (Path file : files(place)) {
        cases.addAll(Case.read(file, shown(place, file)));
      }
    }
    cases.removeIf(body -> !body.matches(only));
    if (cases.isEmpty()) {
      throw new CaseException("no case has \"" + only + "\" in its file or name");
    }
    Path folder = Files.createTempDirectory("frazil-conformance-");
    form = natively == null ? null : NativeForm.of(natively);
    if (peerPage != null) {
      return peer(cases, folder);
    }
    // Each case has a catalog, a warehouse and tasks of its own; what waits for files leaves the
    // processors to the others.
    ExecutorService workers = Executors.newFixedThreadPool(2 * Runtime.getRuntime().availableProcessors());
    try {
      List<Future<Ended>> running = new ArrayList<>();
      for (Case body : cases) {
        Path own = folder.resolve(Integer.toString(running.size()));
        running.add(workers.submit(() -> one(body, new FrazilRun(library), own)));
      }
      for (Future<Ended> future : running) {
        Ended ended = ended(future);
        if (ended.complaints != null) {
          tell(ended);
        }
      }
    } finally {
      workers.shutdownNow();
      remove(folder);
      if (form != null) {
        form.registry().stop();
      }
    }
    boolean covered = types == null || coverage.print(out, types);
    out.println(passed + " passed, " + failed + " failed");
    return failed == 0 && covered;
  }

  /** Runs what the peer can run; differences are no failures. */
  private boolean peer(List<Case> cases, Path folder) throws IOException {
    PeerReport report = new PeerReport();
    int ran = 0;
    try {
      for (Case body : cases) {
        if (PeerReport.suits(body)) {
          ran++;
          Files.createDirectories(folder);
          try (Tables tables = new Tables(folder)) {
            report.run(body, tables, config(body, tables, new FrazilRun(null)));
          }
          remove(folder);
        }
      }
    } finally {
      remove(folder);
    }
    Files.writeString(peerPage, report.page(peerVersion, ran, cases.size()));
    out.println(ran + " of " + cases.size() + " cases ran through the peer");
    return true;
  }

  private static Ended ended(Future<Ended> future) {
    try {
      return future.get();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException(e);
    } catch (ExecutionException e) {
      throw e.getCause() instanceof CaseException wrong ? wrong : new IllegalStateException(e.getCause());
    }
  }

  private static String shown(Path place, Path file) {
    Path shown = Files.isDirectory(place) ? place.relativize(file) : file.getFileName();
    return shown.toString();
  }

  private static List<Path> files(Path place) throws IOException {
    if (!Files.isDirectory(place)) {
      return List.of(place);
    }
    try (Stream<Path> found = Files.walk(place)) {
      return found.filter(path -> path.toString().endsWith(".json") && !path.getFileName().toString().equals("types.json"))
          .sorted().toList();
    }
  }

  /** How a case ended; without complaints when it has no form to run in. */
  private record Ended(Case body, List<String> complaints, long millis) {}

  private Ended one(Case body, Sink sink, Path folder) throws IOException {
    long started = System.nanoTime();
    Files.createDirectories(folder);
    List<String> complaints;
    try {
      complaints = complaints(body, sink, folder);
    } finally {
      remove(folder);
    }
    if (complaints != null && body.body().has("must-fail")) {
      complaints = inverted(body, complaints);
    }
    return new Ended(body, complaints, (System.nanoTime() - started) / 1_000_000);
  }

  private void tell(Ended ended) {
    boolean good = ended.complaints.isEmpty();
    passed += good ? 1 : 0;
    failed += good ? 0 : 1;
    if (good) {
      coverage.add(ended.body);
    }
    String time = verbose ? "  " + ended.millis + " ms" : "";
    out.println("case " + (natively == null ? "" : "native " + natively + " ") + ended.body.file() + ": " + ended.body.name() + " ... " + (good ? "ok" : "FAILED") + time);
    ended.complaints.forEach(complaint -> out.println("    " + complaint));
  }

  /** Returns what is wrong; null when the case has no form in bytes and was to run so. */
  private List<String> complaints(Case body, Sink sink, Path folder) throws IOException {
    try (Tables tables = new Tables(folder)) {
      Map<String, String> config = config(body, tables, sink);
      Steps steps = new Steps(body, config);
      if (natively != null && !NativeBytes.turn(steps, body, config, form)) {
        return null;
      }
      Outcome outcome = sink.run(body, config, steps);
      return new Check(body, steps, outcome).compare(tables);
    }
  }

  /** Makes the tables that are there before, and returns the whole configuration. */
  private static Map<String, String> config(Case body, Tables tables, Sink sink) {
    for (String name : body.given().keySet()) {
      tables.make(name, body.given(name));
    }
    Map<String, String> defaults = sink.defaults(tables);
    if (body.given().isEmpty()) {
      defaults.put("iceberg.tables.auto-create-enabled", "true");
    }
    return body.config(defaults);
  }

  /** A case that must fail shows that the check which it breaks works. */
  private static List<String> inverted(Case body, List<String> complaints) {
    String wanted = body.body().get("must-fail").asText();
    return complaints.stream().anyMatch(complaint -> complaint.contains(wanted)) && complaints.size() == 1
        ? List.of()
        : List.of("one complaint with \"" + wanted + "\" was to come, not " + complaints);
  }

  private static void remove(Path folder) throws IOException {
    if (!Files.exists(folder)) {
      return;
    }
    Files.walkFileTree(folder, new SimpleFileVisitor<>() {
      @Override
      public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
        Files.delete(file);
        return FileVisitResult.CONTINUE;
      }

      @Override
      public FileVisitResult postVisitDirectory(Path folder, IOException error) throws IOException {
        Files.delete(folder);
        return FileVisitResult.CONTINUE;
      }
    });
  }
}
