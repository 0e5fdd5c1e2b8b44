package io.frazil.conformance;

import java.util.HexFormat;

/** Reads the small languages of case files from left to right. */
final class Text {
  private final String text;
  private int at;

  Text(String text) {
    this.text = text;
  }

  /** Returns the bytes of {@code 0x0102}. */
  static byte[] hex(String text) {
    if (!text.startsWith("0x")) {
      throw new CaseException("bytes look like \"0x0102\", not \"" + text + "\"");
    }
    return HexFormat.of().parseHex(text.substring(2));
  }

  /** Returns bytes as {@code 0x0102}. */
  static String hex(byte[] bytes) {
    return "0x" + HexFormat.of().formatHex(bytes);
  }

  /** Skips {@code wanted} if it comes next. */
  boolean eat(String wanted) {
    boolean there = text.startsWith(wanted, at);
    at += there ? wanted.length() : 0;
    return there;
  }

  /** Skips {@code wanted}, which must come next. */
  void expect(String wanted) {
    if (!eat(wanted)) {
      throw error("`" + wanted + "` is missing");
    }
  }

  /** Skips blanks. */
  void blanks() {
    while (at < text.length() && text.charAt(at) == ' ') {
      at++;
    }
  }

  /** Takes a word: everything up to a blank or one of {@code stops}; or what stands in backticks. */
  String word(String stops) {
    if (eat("`")) {
      int end = text.indexOf('`', at);
      if (end < 0) {
        throw error("a backtick is missing");
      }
      String quoted = text.substring(at, end);
      at = end + 1;
      return quoted;
    }
    int start = at;
    while (at < text.length() && text.charAt(at) != ' ' && stops.indexOf(text.charAt(at)) < 0) {
      at++;
    }
    if (start == at) {
      throw error("a word is missing");
    }
    return text.substring(start, at);
  }

  /** Takes a number. */
  int number() {
    int start = at;
    eat("-");
    while (at < text.length() && Character.isDigit(text.charAt(at))) {
      at++;
    }
    try {
      return Integer.parseInt(text.substring(start, at));
    } catch (NumberFormatException e) {
      throw error("a number is missing");
    }
  }

  /** Makes sure that nothing is left. */
  void end() {
    blanks();
    if (at < text.length()) {
      throw error("too much");
    }
  }

  CaseException error(String what) {
    return new CaseException(what + " at position " + at + " of \"" + text + "\"");
  }
}
