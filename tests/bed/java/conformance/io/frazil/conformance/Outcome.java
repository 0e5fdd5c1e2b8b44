package io.frazil.conformance;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What a sink did with the records of a case, apart from what stands in tables. */
final class Outcome {
  /** A record that the sink set aside, and why. */
  record Rejected(String coordinates, String reason) {}

  final List<Rejected> rejected = new ArrayList<>();
  /** The offsets that the sink let be committed last, by {@code topic-partition}. */
  final Map<String, Long> committed = new TreeMap<>();
  /** Messages of {@code validate}, by key; null when it was not asked. */
  Map<String, List<String>> validated;
  /** What ended the task, and in which call; null when it did not end. */
  Throwable failure;
  String failedAt;

  /** Returns all messages of the failure and its causes. */
  String failureText() {
    StringBuilder text = new StringBuilder();
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      text.append(text.isEmpty() ? "" : "; ").append(cause);
    }
    return text.toString();
  }
}
