package io.frazil.connect;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

/** How old a record is, by no clock but the broker's and a monotonic one. */
public class RecordAgesTest {
    private static final long BROKER = 1_700_000_000_000L;
    private static final long MINUTE = 60_000;

    private final RecordAges ages = new RecordAges();

    @Test
    public void ageIsWhatARecordWaitedLongerThanTheFastest() {
        assertEquals(0, ages.of(BROKER, 1_000));
        assertEquals(0, ages.of(BROKER + 50, 1_050));
        assertEquals(300, ages.of(BROKER + 100, 1_400));
        assertEquals("faster than any before", 0, ages.of(BROKER + 500, 1_490));
        assertEquals(310, ages.of(BROKER + 100, 1_400));
        assertEquals("it has no timestamp", 0, ages.of(-1, 2_000));
    }

    @Test
    public void aRecordReadAfterALongStopIsOld() {
        ages.of(BROKER, 0);
        assertEquals(90 * MINUTE, ages.of(BROKER, 90 * MINUTE));
        assertEquals(1, ages.of(BROKER + 90 * MINUTE, 90 * MINUTE + 1));
    }

    @Test
    public void aClockThatIsSetIsForgottenAfterAWhile() {
        ages.of(BROKER, 0);
        // The broker's clock goes back by two hours: everything looks old until a new normal is known.
        long back = BROKER - 120 * MINUTE;
        assertEquals(120 * MINUTE, ages.of(back + MINUTE, MINUTE));
        assertEquals(120 * MINUTE, ages.of(back + 11 * MINUTE, 11 * MINUTE));
        assertEquals(0, ages.of(back + 22 * MINUTE, 22 * MINUTE));
    }
}
