package io.frazil.connect.wire;

import java.nio.charset.StandardCharsets;

/**
 * Texts that are turned into bytes together, which costs a third of turning each: nothing is made for
 * a single one. It works where all are ASCII, whose characters are one byte each.
 */
final class AsciiTexts {
    /** Characters that are held at most. Longer texts are as cheap one by one. */
    private static final int CHARS_MAX = 64 << 10;

    private StringBuilder chars = new StringBuilder();

    /** Forgets the texts. */
    void clear() {
        chars.setLength(0);
    }

    /** Returns the number of characters, which is that of bytes if all goes well. */
    int length() {
        return chars.length();
    }

    /** Adds a text, or does nothing and returns false when they would be too long. */
    boolean add(String text) {
        if (text.length() > CHARS_MAX - chars.length()) {
            return false;
        }
        chars.append(text);
        return true;
    }

    /** Appends all texts to {@code out}, or nothing and returns false when not all are ASCII. */
    boolean moveTo(ByteSink out) {
        String all = chars.toString();
        chars.setLength(0);
        byte[] bytes = all.getBytes(StandardCharsets.UTF_8);
        if (bytes.length == all.length()) {
            int at = out.length();
            out.raw(bytes);
            // Half a surrogate pair becomes one byte too, '?', which is another text.
            if (!out.hasQuestionMark(at, bytes.length)
                    || new String(bytes, StandardCharsets.ISO_8859_1).equals(all)) {
                return true;
            }
            out.truncate(at);
        }
        // The old one may have gone over to two bytes a character, for good.
        chars = new StringBuilder();
        return false;
    }
}
