package io.frazil.connect;

/**
 * Tells how long ago the broker took a record, without comparing two hosts' clocks.
 *
 * <p>The broker's clock is known only from its records: the one that came through fastest of late
 * shows how far it is from this process's monotonic clock. So a clock that is set, here or there,
 * distorts ages for as long as that record is remembered, and no longer.
 */
final class RecordAges {
    private static final long PERIOD_MILLIS = 600_000;

    private long periodStart;
    /** The smallest difference of arrival and timestamp, in this period and in the one before it. */
    private long smallest = Long.MAX_VALUE;
    private long smallestBefore = Long.MAX_VALUE;

    /** Returns the age in milliseconds of a record that arrives now, by a clock that only goes forward. */
    long of(long timestampMillis, long nowMillis) {
        if (timestampMillis < 0) {
            return 0; // It has none.
        }
        long difference = nowMillis - timestampMillis;
        if (smallest == Long.MAX_VALUE) {
            periodStart = nowMillis;
        } else if (nowMillis - periodStart >= PERIOD_MILLIS) {
            smallestBefore = smallest;
            smallest = Long.MAX_VALUE;
            periodStart = nowMillis;
        }
        smallest = Math.min(smallest, difference);
        return difference - Math.min(smallest, smallestBefore);
    }
}
