package io.frazil.connect;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * How many records of a task did not fit, by code. The task counts, any thread may look. There are no more
 * codes than {@code docs/errors.md} has.
 */
final class RejectionCounts {
    /** Adds up all codes; it is no code, for those are in capitals. */
    static final String ALL = "all";

    private static final int REPORTED = 0;
    private static final int DROPPED = 1;

    private final Map<String, long[]> counts = new LinkedHashMap<>();

    RejectionCounts() {
        counts.put(ALL, new long[2]);
    }

    /** Counts a record that was handed to the error reporter. */
    synchronized void reported(String code) {
        count(code, REPORTED);
    }

    /** Counts a record that was lost, as the configuration allows. */
    synchronized void dropped(String code) {
        count(code, DROPPED);
    }

    private void count(String code, int what) {
        counts.get(ALL)[what]++;
        counts.computeIfAbsent(code, absent -> new long[2])[what]++;
    }

    /** Returns how many were reported and dropped, by code; a copy. */
    synchronized Map<String, long[]> counts() {
        Map<String, long[]> copy = new LinkedHashMap<>();
        counts.forEach((code, both) -> copy.put(code, both.clone()));
        return copy;
    }
}
