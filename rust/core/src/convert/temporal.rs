//! Dates, times of day and points in time: ISO text, units and exact conversions.
//!
//! Text forms, nothing else: a date is `2024-02-29`; a time is `23:59`, `23:59:58` or
//! `23:59:58.123456789`; a timestamp is a date, `T` or one blank, a time, and optionally `Z`,
//! `+01`, `+0130` or `+01:30`. A date or a time may end in `Z`. A text without an offset is UTC.
//! Years before 0000 and after 9999 have a sign and four to seven digits, as ISO 8601 allows. A
//! date alone is a timestamp at midnight, and a timestamp at midnight UTC is a date.

use super::misfit::Reason;

/// Nanoseconds of a microsecond, a millisecond, a second and a day.
pub const NANOS_PER_MICRO: i64 = 1_000;
/// See [`NANOS_PER_MICRO`].
pub const NANOS_PER_MILLI: i64 = 1_000_000;
/// See [`NANOS_PER_MICRO`].
pub const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// See [`NANOS_PER_MICRO`].
pub const NANOS_PER_DAY: i64 = 86_400 * NANOS_PER_SECOND;

/// Reads a date, or a timestamp that is midnight in UTC; returns days since 1970-01-01.
pub fn parse_date(text: &str) -> Result<i32, Reason> {
    date_of(parse_timestamp(text)?)
}

/// Returns the day of a point in time that is midnight in UTC.
pub fn date_of(nanos: i128) -> Result<i32, Reason> {
    if nanos % i128::from(NANOS_PER_DAY) != 0 {
        return Err(Reason::PrecisionLoss);
    }
    day_of(nanos)
}

/// Reads a time of day; returns nanoseconds since midnight.
pub fn parse_time(text: &str) -> Result<i64, Reason> {
    let mut cursor = Cursor(text.as_bytes());
    let nanos = cursor.time()?;
    cursor.eat(b'Z');
    cursor.end()?;
    Ok(nanos)
}

/// Reads a timestamp, or a date as its midnight; returns nanoseconds since the epoch in UTC. An
/// offset is applied, never dropped.
pub fn parse_timestamp(text: &str) -> Result<i128, Reason> {
    let mut cursor = Cursor(text.as_bytes());
    let days = cursor.date()?;
    let (nanos, offset) = if cursor.eat(b'T') || cursor.eat(b' ') {
        (cursor.time()?, cursor.offset()?)
    } else {
        cursor.eat(b'Z');
        (0, 0)
    };
    cursor.end()?;
    let local = i128::from(days) * i128::from(NANOS_PER_DAY) + i128::from(nanos);
    Ok(local - i128::from(offset) * i128::from(NANOS_PER_SECOND))
}

/// Returns `nanos` in a coarser unit of `unit_nanos`, if nothing is lost.
pub fn exact_units(nanos: i128, unit_nanos: i64) -> Result<i64, Reason> {
    let unit = i128::from(unit_nanos);
    if nanos % unit != 0 {
        return Err(Reason::PrecisionLoss);
    }
    i64::try_from(nanos / unit).map_err(|_| Reason::OutOfRange)
}

/// Returns the UTC day of a point in time, rounded towards the past.
pub fn day_of(nanos: i128) -> Result<i32, Reason> {
    i32::try_from(nanos.div_euclid(i128::from(NANOS_PER_DAY))).map_err(|_| Reason::OutOfRange)
}

/// Days from 0000-03-01, the start of a cycle of 400 years, to 1970-01-01.
const DAYS_TO_EPOCH: i64 = 719_468;
const DAYS_PER_CYCLE: i64 = 146_097;

/// Returns the days since 1970-01-01 of a day of the Gregorian calendar, extended to all years;
/// `None` when the month has no such day.
///
/// Years begin in March here, so that the odd day of leap years is their last.
pub fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let last = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let year_of_cycle = year.rem_euclid(400);
    let day_of_cycle = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 + day_of_year;
    Some(year.div_euclid(400) * DAYS_PER_CYCLE + day_of_cycle - DAYS_TO_EPOCH)
}

/// Returns year, month and day of a day since 1970-01-01; see [`days_of`].
fn calendar_of(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_EPOCH;
    let day_of_cycle = days.rem_euclid(DAYS_PER_CYCLE);
    let year_of_cycle = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524
        - day_of_cycle / (DAYS_PER_CYCLE - 1))
        / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_cycle + days.div_euclid(DAYS_PER_CYCLE) * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

/// Appends `2024-02-29`; years beyond 9999 and before 0000 get a sign, as in ISO 8601.
pub fn write_date(days: i32, out: &mut String) {
    let (year, month, day) = calendar_of(i64::from(days));
    match year {
        0..=9999 => out.push_str(&format!("{year:04}")),
        10_000.. => out.push_str(&format!("+{year}")),
        _ => out.push_str(&format!("{year:05}")),
    }
    out.push_str(&format!("-{month:02}-{day:02}"));
}

/// Appends `23:59:58` with as many groups of three fraction digits as needed.
pub fn write_time(nanos: i64, out: &mut String) {
    let seconds = nanos.div_euclid(NANOS_PER_SECOND);
    let fraction = nanos.rem_euclid(NANOS_PER_SECOND);
    out.push_str(&format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    ));
    if fraction == 0 {
    } else if fraction % NANOS_PER_MILLI == 0 {
        out.push_str(&format!(".{:03}", fraction / NANOS_PER_MILLI));
    } else if fraction % NANOS_PER_MICRO == 0 {
        out.push_str(&format!(".{:06}", fraction / NANOS_PER_MICRO));
    } else {
        out.push_str(&format!(".{fraction:09}"));
    }
}

/// Appends `2024-02-29T23:59:58.123`, with a `Z` when the source was a point in time.
pub fn write_timestamp(nanos: i128, zoned: bool, out: &mut String) -> Result<(), Reason> {
    let time = nanos.rem_euclid(i128::from(NANOS_PER_DAY));
    write_date(day_of(nanos)?, out);
    out.push('T');
    write_time(i64::try_from(time).map_err(|_| Reason::OutOfRange)?, out);
    if zoned {
        out.push('Z');
    }
    Ok(())
}

/// What is left of a text.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn eat(&mut self, expected: u8) -> bool {
        match self.0.split_first() {
            Some((byte, rest)) if *byte == expected => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn digit(&mut self) -> Option<i64> {
        match self.0.split_first() {
            Some((byte, rest)) if byte.is_ascii_digit() => {
                self.0 = rest;
                Some(i64::from(byte - b'0'))
            }
            _ => None,
        }
    }

    /// Reads exactly `count` digits.
    fn digits(&mut self, count: u32) -> Result<i64, Reason> {
        let mut value = 0;
        for _ in 0..count {
            value = value * 10 + self.digit().ok_or(Reason::Malformed)?;
        }
        Ok(value)
    }

    fn expect(&mut self, expected: u8) -> Result<(), Reason> {
        if self.eat(expected) {
            Ok(())
        } else {
            Err(Reason::Malformed)
        }
    }

    fn end(&self) -> Result<(), Reason> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Reason::Malformed)
        }
    }

    /// Reads four digits, or a sign and up to seven.
    fn year(&mut self) -> Result<i64, Reason> {
        let sign = match (self.eat(b'-'), self.eat(b'+')) {
            (false, false) => return self.digits(4),
            (true, false) => -1,
            (false, true) => 1,
            (true, true) => return Err(Reason::Malformed),
        };
        let mut year = self.digits(4)?;
        for _ in 0..3 {
            match self.digit() {
                Some(digit) => year = year * 10 + digit,
                None => break,
            }
        }
        Ok(sign * year)
    }

    fn date(&mut self) -> Result<i32, Reason> {
        let year = self.year()?;
        self.expect(b'-')?;
        let month = self.digits(2)?;
        self.expect(b'-')?;
        let day = self.digits(2)?;
        let days = days_of(year, month, day).ok_or(Reason::Malformed)?;
        i32::try_from(days).map_err(|_| Reason::OutOfRange)
    }

    fn time(&mut self) -> Result<i64, Reason> {
        let hour = self.digits(2)?;
        self.expect(b':')?;
        let minute = self.digits(2)?;
        let second = if self.eat(b':') {
            Some(self.digits(2)?)
        } else {
            None
        };
        if hour > 23 || minute > 59 || second.is_some_and(|second| second > 59) {
            return Err(Reason::Malformed);
        }
        let mut fraction = 0;
        if second.is_some() && self.eat(b'.') {
            let mut unit = NANOS_PER_SECOND / 10;
            fraction = self.digits(1)? * unit;
            while let Some(digit) = self.digit() {
                unit /= 10;
                if unit == 0 && digit != 0 {
                    return Err(Reason::PrecisionLoss);
                }
                fraction += digit * unit;
            }
        }
        let seconds = (hour * 60 + minute) * 60 + second.unwrap_or(0);
        Ok(seconds * NANOS_PER_SECOND + fraction)
    }

    /// Reads an offset in seconds; none is UTC.
    fn offset(&mut self) -> Result<i64, Reason> {
        if self.0.is_empty() || self.eat(b'Z') {
            return Ok(0);
        }
        let sign = if self.eat(b'-') {
            -1
        } else {
            self.expect(b'+')?;
            1
        };
        let hours = self.digits(2)?;
        let minutes = if self.eat(b':') || !self.0.is_empty() {
            self.digits(2)?
        } else {
            0
        };
        if hours > 18 || minutes > 59 {
            return Err(Reason::Malformed);
        }
        Ok(sign * (hours * 60 + minutes) * 60)
    }
}

#[cfg(test)]
mod tests {
    use chrono::Datelike;
    use proptest::prelude::*;

    use super::*;

    fn timestamp(nanos: i128, zoned: bool) -> String {
        let mut out = String::new();
        write_timestamp(nanos, zoned, &mut out).unwrap();
        out
    }

    #[test]
    fn dates_are_strict() {
        assert_eq!(parse_date("1970-01-01"), Ok(0));
        assert_eq!(parse_date("1969-12-31"), Ok(-1));
        assert_eq!(parse_date("2024-02-29"), Ok(19_782));
        assert_eq!(parse_date("2017-09-15Z"), Ok(17_424));
        assert_eq!(parse_date("2024-02-29T00:00:00Z"), Ok(19_782));
        assert_eq!(parse_date("2024-02-29 01:00+01:00"), Ok(19_782));
        assert_eq!(
            parse_date("2024-02-29T00:00:01Z"),
            Err(Reason::PrecisionLoss)
        );
        assert_eq!(parse_date("0000-01-01"), Ok(-719_528));
        assert_eq!(parse_date("-0001-12-31"), Ok(-719_529));
        assert_eq!(parse_date("+10000-01-01"), Ok(2_932_897));
        assert_eq!(parse_date("+5881580-07-11"), Ok(i32::MAX));
        assert_eq!(parse_date("+5881580-07-12"), Err(Reason::OutOfRange));
        assert_eq!(parse_date("-5877641-06-23"), Ok(i32::MIN));
        for text in [
            "",
            "2023-02-29",
            "2024-2-9",
            "24-02-09",
            "2024/02/09",
            "2024-02-29T",
            "2024-00-10",
            "2024-13-10",
            "2024-04-31",
            "+-2024-01-01",
            "12024-01-01",
            "+12345678-01-01",
            "20240229",
            " 2024-02-29",
            "infinity",
        ] {
            assert_eq!(parse_date(text), Err(Reason::Malformed), "{text}");
        }
    }

    #[test]
    fn times_are_strict() {
        assert_eq!(parse_time("00:00"), Ok(0));
        assert_eq!(parse_time("23:59:59.999999999"), Ok(NANOS_PER_DAY - 1));
        assert_eq!(parse_time("01:02:03.5"), Ok(3_723_500_000_000));
        assert_eq!(parse_time("01:02:03.5000000000000"), Ok(3_723_500_000_000));
        assert_eq!(
            parse_time("01:02:03.0000000001"),
            Err(Reason::PrecisionLoss)
        );
        for text in [
            "",
            "24:00:00",
            "1:02",
            "01:60",
            "01:02:60",
            "01:02.5",
            "01:02:03.",
            "-01:00",
            "01:02:03+01",
        ] {
            assert_eq!(parse_time(text), Err(Reason::Malformed), "{text}");
        }
    }

    #[test]
    fn offsets_are_applied() {
        let expected = 1_704_193_445_i128 * i128::from(NANOS_PER_SECOND);
        for text in [
            "2024-01-02T11:04:05Z",
            "2024-01-02 11:04:05",
            "2024-01-02T12:04:05+01:00",
            "2024-01-02T12:04:05+01",
            "2024-01-02T05:34:05-0530",
        ] {
            assert_eq!(parse_timestamp(text), Ok(expected), "{text}");
        }
        assert_eq!(
            parse_timestamp("2024-01-02"),
            Ok(19_724 * i128::from(NANOS_PER_DAY))
        );
        for text in [
            "",
            "2024-01-02T",
            "2024-01-02+01:00",
            "1704193445000",
            "2024-01-02T11:04:05 Z",
            "2024-01-02T11:04:05+1",
            "2024-01-02T11:04:05+19:00",
            "2024-01-02T11:04:05UTC",
            "2024-01-02  11:04:05",
        ] {
            assert_eq!(parse_timestamp(text), Err(Reason::Malformed), "{text}");
        }
    }

    #[test]
    fn text_of_dates_and_times() {
        let mut out = String::new();
        write_date(-719_529, &mut out);
        write_date(-719_162 - 366, &mut out);
        assert_eq!(out, "-0001-12-310000-01-01");
        out.clear();
        write_date(i32::MAX, &mut out);
        assert_eq!(out, "+5881580-07-11");
        assert_eq!(
            timestamp(1_700_000_000_123_000_000, true),
            "2023-11-14T22:13:20.123Z"
        );
        assert_eq!(timestamp(-1, false), "1969-12-31T23:59:59.999999999");
        assert_eq!(timestamp(-1_000, false), "1969-12-31T23:59:59.999999");
        assert_eq!(day_of(-1), Ok(-1));
        assert_eq!(
            exact_units(1_500, NANOS_PER_MICRO),
            Err(Reason::PrecisionLoss)
        );
        assert_eq!(exact_units(-2_000, NANOS_PER_MICRO), Ok(-2));
        assert_eq!(
            exact_units(i128::from(i64::MAX) * 2_000, NANOS_PER_MICRO),
            Err(Reason::OutOfRange)
        );
    }

    proptest! {
        #[test]
        fn a_timestamp_reads_back(nanos in 0..4_102_444_800_000_000_000_i128) {
            prop_assert_eq!(parse_timestamp(&timestamp(nanos, true)), Ok(nanos));
        }

        #[test]
        fn every_date_reads_back(days in any::<i32>()) {
            let mut text = String::new();
            write_date(days, &mut text);
            prop_assert_eq!(parse_date(&text), Ok(days));
        }

        #[test]
        fn days_follow_each_other(days in -4_000_000..4_000_000_i32) {
            // An independent calendar knows these years.
            let date = chrono::NaiveDate::from_epoch_days(days).unwrap();
            let (year, month, day) = calendar_of(i64::from(days));
            let expected = (i64::from(date.year()), i64::from(date.month()), i64::from(date.day()));
            prop_assert_eq!((year, month, day), expected);
            prop_assert_eq!(days_of(year, month, day), Some(i64::from(days)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-0-9T:.+Z ]{0,40}") {
            let _ = parse_timestamp(&text);
            let _ = parse_date(&text);
            let _ = parse_time(&text);
        }
    }
}
