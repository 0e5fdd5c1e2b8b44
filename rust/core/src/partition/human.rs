//! Partition values as people and paths see them, as Iceberg's Java library writes them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use iceberg::spec::{Literal, PrimitiveLiteral, PrimitiveType, Transform};

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Returns year, month and day of a day counted from the epoch, in the proleptic Gregorian calendar.
pub(super) fn civil(days: i64) -> (i64, i64, i64) {
    // Years begin in March here, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Returns the text of a partition value, `null` for none.
pub(super) fn human(
    transform: Transform,
    source: &PrimitiveType,
    value: Option<&Literal>,
) -> String {
    let Some(Literal::Primitive(value)) = value else {
        return "null".to_string();
    };
    match (transform, value) {
        (Transform::Year, PrimitiveLiteral::Int(years)) => {
            format!("{:04}", 1970 + i64::from(*years))
        }
        (Transform::Month, PrimitiveLiteral::Int(months)) => {
            let months = i64::from(*months);
            let year = 1970 + months.div_euclid(12);
            format!("{year:04}-{:02}", months.rem_euclid(12) + 1)
        }
        (Transform::Day, PrimitiveLiteral::Int(days)) => date(i64::from(*days)),
        (Transform::Hour, PrimitiveLiteral::Int(hours)) => {
            let hours = i64::from(*hours);
            format!("{}-{:02}", date(hours.div_euclid(24)), hours.rem_euclid(24))
        }
        (Transform::Bucket(_), PrimitiveLiteral::Int(bucket)) => bucket.to_string(),
        _ => plain(source, value),
    }
}

fn plain(source: &PrimitiveType, value: &PrimitiveLiteral) -> String {
    match (source, value) {
        (PrimitiveType::Date, PrimitiveLiteral::Int(days)) => date(i64::from(*days)),
        (PrimitiveType::Time, PrimitiveLiteral::Long(micros)) => time(*micros, 1_000),
        (PrimitiveType::Timestamp, PrimitiveLiteral::Long(micros)) => instant(*micros, 1_000),
        (PrimitiveType::Timestamptz, PrimitiveLiteral::Long(micros)) => {
            instant(*micros, 1_000) + "Z"
        }
        (PrimitiveType::TimestampNs, PrimitiveLiteral::Long(nanos)) => instant(*nanos, 1),
        (PrimitiveType::TimestamptzNs, PrimitiveLiteral::Long(nanos)) => instant(*nanos, 1) + "Z",
        (PrimitiveType::Decimal { scale, .. }, PrimitiveLiteral::Int128(unscaled)) => {
            decimal(*unscaled, *scale as usize)
        }
        (PrimitiveType::Uuid, PrimitiveLiteral::UInt128(value)) => {
            uuid::Uuid::from_u128(*value).to_string()
        }
        (_, PrimitiveLiteral::Boolean(value)) => value.to_string(),
        (_, PrimitiveLiteral::Int(value)) => value.to_string(),
        (_, PrimitiveLiteral::Long(value)) => value.to_string(),
        (_, PrimitiveLiteral::Float(value)) => format!("{:?}", value.0),
        (_, PrimitiveLiteral::Double(value)) => format!("{:?}", value.0),
        (_, PrimitiveLiteral::String(value)) => value.clone(),
        (_, PrimitiveLiteral::Binary(value)) => STANDARD.encode(value),
        (_, PrimitiveLiteral::Int128(value)) => value.to_string(),
        (_, PrimitiveLiteral::UInt128(value)) => value.to_string(),
        (_, PrimitiveLiteral::AboveMax | PrimitiveLiteral::BelowMin) => "null".to_string(),
    }
}

fn date(days: i64) -> String {
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Returns a time of day as `java.time` writes it: seconds only when needed, fractions in groups
/// of three digits. `value` counts units of `nanos` nanoseconds.
fn time(value: i64, nanos: i64) -> String {
    let per_second = MICROS_PER_SECOND * 1_000 / nanos;
    let (seconds, fraction) = (value.div_euclid(per_second), value.rem_euclid(per_second));
    let fraction = fraction * nanos;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let text = format!("{hour:02}:{minute:02}");
    if fraction == 0 && second == 0 {
        return text;
    }
    let text = format!("{text}:{second:02}");
    if fraction == 0 {
        text
    } else if fraction % 1_000_000 == 0 {
        format!("{text}.{:03}", fraction / 1_000_000)
    } else if fraction % 1_000 == 0 {
        format!("{text}.{:06}", fraction / 1_000)
    } else {
        format!("{text}.{fraction:09}")
    }
}

fn instant(value: i64, nanos: i64) -> String {
    let per_day = SECONDS_PER_DAY * (MICROS_PER_SECOND * 1_000 / nanos);
    let day = date(value.div_euclid(per_day));
    format!("{day}T{}", time(value.rem_euclid(per_day), nanos))
}

fn decimal(unscaled: i128, scale: usize) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if scale == 0 {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(transform: Transform, source: PrimitiveType, value: Literal, expected: &str) {
        assert_eq!(human(transform, &source, Some(&value)), expected);
    }

    #[test]
    fn texts_of_dates_are_those_of_the_java_library() {
        use PrimitiveType as T;
        check(Transform::Year, T::Timestamp, Literal::int(47), "2017");
        check(Transform::Month, T::Timestamp, Literal::int(575), "2017-12");
        check(
            Transform::Day,
            T::Timestamp,
            Literal::int(17_501),
            "2017-12-01",
        );
        check(
            Transform::Hour,
            T::Timestamp,
            Literal::int(420_034),
            "2017-12-01-10",
        );
    }

    #[test]
    fn texts_of_plain_values_are_those_of_the_java_library() {
        use PrimitiveType as T;
        let micros = 1_512_123_175_038_194i64;
        check(
            Transform::Identity,
            T::Timestamp,
            Literal::long(micros),
            "2017-12-01T10:12:55.038194",
        );
        check(
            Transform::Identity,
            T::Timestamptz,
            Literal::long(micros),
            "2017-12-01T10:12:55.038194Z",
        );
        check(
            Transform::Identity,
            T::Timestamp,
            Literal::long(0),
            "1970-01-01T00:00",
        );
        check(
            Transform::Identity,
            T::Time,
            Literal::long(36_775_038_194i64),
            "10:12:55.038194",
        );
        check(
            Transform::Identity,
            T::Date,
            Literal::int(17_501),
            "2017-12-01",
        );
        check(
            Transform::Identity,
            T::Long,
            Literal::long(-1_234_567_890_000i64),
            "-1234567890000",
        );
        check(
            Transform::Identity,
            T::String,
            Literal::string("a/b/c=d"),
            "a/b/c=d",
        );
        check(
            Transform::Identity,
            T::Binary,
            Literal::binary(vec![1, 2, 3]),
            "AQID",
        );
        check(Transform::Bucket(16), T::Long, Literal::int(3), "3");
        let price = T::Decimal {
            precision: 9,
            scale: 2,
        };
        check(
            Transform::Identity,
            price.clone(),
            Literal::decimal(-150),
            "-1.50",
        );
        check(Transform::Truncate(10), price, Literal::decimal(7), "0.07");
        assert_eq!(human(Transform::Day, &T::Date, None), "null");
    }

    #[test]
    fn texts_before_the_epoch_floor() {
        use PrimitiveType as T;
        check(Transform::Year, T::Date, Literal::int(-1), "1969");
        check(Transform::Month, T::Date, Literal::int(-1), "1969-12");
        check(Transform::Day, T::Date, Literal::int(-1), "1969-12-31");
        check(
            Transform::Hour,
            T::Timestamp,
            Literal::int(-1),
            "1969-12-31-23",
        );
        check(
            Transform::Identity,
            T::Timestamp,
            Literal::long(-1),
            "1969-12-31T23:59:59.999999",
        );
        assert_eq!(civil(-719_528), (0, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
    }
}
