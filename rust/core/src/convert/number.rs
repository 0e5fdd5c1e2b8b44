//! Integers and floating-point numbers, exact or refused.

use super::decimal::Decimal;
use super::misfit::Reason;

/// `2^63` as a double: the first that no `i64` can hold.
const I64_BOUND: f64 = 9_223_372_036_854_775_808.0;

/// Returns the integer that `value` is; a fraction is a loss, NaN and infinities do not convert.
pub fn f64_to_i64(value: f64) -> Result<i64, Reason> {
    if !value.is_finite() {
        return Err(Reason::NotConvertible);
    }
    if value.trunc() != value {
        return Err(Reason::PrecisionLoss);
    }
    if !(-I64_BOUND..I64_BOUND).contains(&value) {
        return Err(Reason::OutOfRange);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "integral and in range, checked above"
    )]
    Ok(value as i64)
}

/// Returns `value` as an `int` column holds it.
pub fn i64_to_i32(value: i64) -> Result<i32, Reason> {
    i32::try_from(value).map_err(|_| Reason::OutOfRange)
}

/// Returns the double that is exactly `value`.
pub fn i64_to_f64(value: i64) -> Result<f64, Reason> {
    #[expect(clippy::cast_precision_loss, reason = "compared with the source below")]
    let double = value as f64;
    // `as` saturates, so 2^63 would compare equal to `i64::MAX`: the bound is checked first.
    #[expect(clippy::cast_possible_truncation, reason = "integral by construction")]
    if double < I64_BOUND && double as i64 == value {
        Ok(double)
    } else {
        Err(Reason::PrecisionLoss)
    }
}

/// Returns the float that is exactly `value`.
pub fn i64_to_f32(value: i64) -> Result<f32, Reason> {
    let double = i64_to_f64(value)?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "compared with the source below"
    )]
    let float = double as f32;
    if f64::from(float) == double {
        Ok(float)
    } else {
        Err(Reason::PrecisionLoss)
    }
}

/// Returns the float for a double: exact, or with the same shortest decimal text (so that the
/// `0.1` of a JSON document lands in a `float` column, and `16777217` does not).
pub fn f64_to_f32(value: f64) -> Result<f32, Reason> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "compared with the source below"
    )]
    let float = value as f32;
    if f64::from(float) == value || value.is_nan() {
        return Ok(float);
    }
    if float.is_infinite() {
        return Err(Reason::OutOfRange);
    }
    if float != 0.0 && float.to_string().parse() == Ok(value) {
        Ok(float)
    } else {
        Err(Reason::PrecisionLoss)
    }
}

/// Returns the double that is nearest to `value`: what a text with these digits means where doubles
/// are read.
pub fn nearest_f64(value: Decimal) -> Result<f64, Reason> {
    let text = format!("{}e{}", value.unscaled, -i64::from(value.scale));
    match text.parse() {
        Ok(double) if f64::is_finite(double) => Ok(double),
        Ok(_) => Err(Reason::OutOfRange),
        Err(_) => Err(Reason::Malformed),
    }
}

/// Returns the double whose shortest decimal text is the same number as `value`.
pub fn decimal_to_f64(value: Decimal) -> Result<f64, Reason> {
    let text = format!("{}e{}", value.unscaled, -i64::from(value.scale));
    let double: f64 = text.parse().map_err(|_| Reason::Malformed)?;
    if double.is_infinite() {
        return Err(Reason::OutOfRange);
    }
    if same_number(f64_to_decimal(double)?, value) {
        Ok(double)
    } else {
        Err(Reason::PrecisionLoss)
    }
}

/// Returns the float whose shortest decimal text is the same number as `value`.
pub fn decimal_to_f32(value: Decimal) -> Result<f32, Reason> {
    let text = format!("{}e{}", value.unscaled, -i64::from(value.scale));
    let float: f32 = text.parse().map_err(|_| Reason::Malformed)?;
    if float.is_infinite() {
        return Err(Reason::OutOfRange);
    }
    if same_number(f32_to_decimal(float)?, value) {
        Ok(float)
    } else {
        Err(Reason::PrecisionLoss)
    }
}

/// Digits of which a double keeps all, whichever they are.
const DIGITS_KEPT: u32 = 15;

/// Powers of ten that a double holds exactly, as far as they are needed.
const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// Returns the unscaled number of [`f64_to_decimal`] at `scale`, when it has at most 15 digits;
/// `None` says nothing.
///
/// Two numbers of at most 15 digits are never the same double, so that the one which is found by
/// multiplication and reads back as `value` is the number of its shortest text.
#[inline]
pub fn f64_at_scale(value: f64, scale: u32) -> Option<i64> {
    let power = *POWERS.get(usize::try_from(scale).ok()?)?;
    let scaled = value * power;
    #[expect(clippy::cast_possible_truncation, reason = "checked below")]
    let digits = (scaled + 0.5_f64.copysign(scaled)) as i64;
    if digits.unsigned_abs() >= 10_u64.pow(DIGITS_KEPT) {
        return None;
    }
    // Both are exact, so the division rounds once, as reading the text would.
    #[expect(clippy::cast_precision_loss, reason = "15 digits are less than 2^53")]
    let back = digits as f64 / power;
    (back == value).then_some(digits)
}

/// Returns the number of the shortest decimal text that reads back as `value`.
pub fn f64_to_decimal(value: f64) -> Result<Decimal, Reason> {
    if value.is_finite() {
        Decimal::parse(&format!("{value:e}"))
    } else {
        Err(Reason::NotConvertible)
    }
}

/// Returns the number of the shortest decimal text that reads back as `value`.
pub fn f32_to_decimal(value: f32) -> Result<Decimal, Reason> {
    if value.is_finite() {
        Decimal::parse(&format!("{value:e}"))
    } else {
        Err(Reason::NotConvertible)
    }
}

/// Reads a floating-point column's text: a decimal number, `NaN`, `Infinity` or `-Infinity`.
pub fn parse_f64(text: &str) -> Result<f64, Reason> {
    match text {
        "NaN" => Ok(f64::NAN),
        "Infinity" => Ok(f64::INFINITY),
        "-Infinity" => Ok(f64::NEG_INFINITY),
        "-0" | "-0.0" => Ok(-0.0),
        _ => decimal_to_f64(Decimal::parse(text)?),
    }
}

/// Reads a `float` column's text; see [`parse_f64`].
pub fn parse_f32(text: &str) -> Result<f32, Reason> {
    match text {
        "NaN" => Ok(f32::NAN),
        "Infinity" => Ok(f32::INFINITY),
        "-Infinity" => Ok(f32::NEG_INFINITY),
        "-0" | "-0.0" => Ok(-0.0),
        _ => decimal_to_f32(Decimal::parse(text)?),
    }
}

/// Reads an integer's text: an optional sign and digits.
pub fn parse_i64(text: &str) -> Result<i64, Reason> {
    if let Ok(value) = text.parse() {
        return Ok(value);
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        Err(Reason::OutOfRange)
    } else {
        Err(Reason::Malformed)
    }
}

/// Appends a double's shortest text: `1.0`, `1e300`, `NaN`, `-Infinity`.
pub fn write_f64(value: f64, out: &mut String) {
    if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        out.push_str(&format!("{value:?}"));
    }
}

/// Appends a float's shortest text; see [`write_f64`].
pub fn write_f32(value: f32, out: &mut String) {
    if value.is_infinite() {
        write_f64(f64::from(value), out);
    } else {
        out.push_str(&format!("{value:?}"));
    }
}

/// Tells whether both are the same number, whatever their scales.
pub fn same_number(left: Decimal, right: Decimal) -> bool {
    if left.scale >= right.scale {
        right.rescale(left.scale) == Ok(left.unscaled)
            || left.rescale(right.scale) == Ok(right.unscaled)
    } else {
        same_number(right, left)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn doubles_become_integers_only_when_they_are_integers() {
        assert_eq!(f64_to_i64(-0.0), Ok(0));
        assert_eq!(f64_to_i64(3e9), Ok(3_000_000_000));
        assert_eq!(f64_to_i64(2.5), Err(Reason::PrecisionLoss));
        assert_eq!(f64_to_i64(1e30), Err(Reason::OutOfRange));
        assert_eq!(f64_to_i64(I64_BOUND), Err(Reason::OutOfRange));
        assert_eq!(f64_to_i64(-I64_BOUND), Ok(i64::MIN));
        assert_eq!(f64_to_i64(f64::NAN), Err(Reason::NotConvertible));
    }

    #[test]
    fn integers_become_doubles_only_exactly() {
        assert_eq!(i64_to_f64(1 << 53), Ok(9_007_199_254_740_992.0));
        assert_eq!(i64_to_f64((1 << 53) + 1), Err(Reason::PrecisionLoss));
        assert_eq!(i64_to_f64(i64::MAX), Err(Reason::PrecisionLoss));
        assert_eq!(i64_to_f64(i64::MIN), Ok(-I64_BOUND));
        assert_eq!(i64_to_f32(16_777_216), Ok(16_777_216.0));
        assert_eq!(i64_to_f32(16_777_217), Err(Reason::PrecisionLoss));
    }

    #[test]
    fn a_double_lands_in_a_float_with_the_same_text() {
        assert_eq!(f64_to_f32(0.1), Ok(0.1));
        assert_eq!(f64_to_f32(0.5), Ok(0.5));
        assert_eq!(f64_to_f32(16_777_217.0), Err(Reason::PrecisionLoss));
        assert_eq!(f64_to_f32(0.123_456_789_012), Err(Reason::PrecisionLoss));
        assert_eq!(f64_to_f32(1e300), Err(Reason::OutOfRange));
        assert_eq!(f64_to_f32(1e-300), Err(Reason::PrecisionLoss));
        assert_eq!(f64_to_f32(f64::NEG_INFINITY), Ok(f32::NEG_INFINITY));
        assert!(f64_to_f32(f64::NAN).is_ok_and(f32::is_nan));
    }

    #[test]
    fn decimal_digits_survive_in_doubles_or_are_refused() {
        let number = |text| Decimal::parse(text);
        assert_eq!(number("12.34").and_then(decimal_to_f64), Ok(12.34));
        assert_eq!(number("1.500").and_then(decimal_to_f64), Ok(1.5));
        assert_eq!(number("1e300").and_then(decimal_to_f64), Ok(1e300));
        assert_eq!(
            number("9007199254740993").and_then(decimal_to_f64),
            Err(Reason::PrecisionLoss)
        );
        assert_eq!(
            number("1e400").and_then(decimal_to_f64),
            Err(Reason::OutOfRange)
        );
        assert_eq!(
            number("1e-400").and_then(decimal_to_f64),
            Err(Reason::PrecisionLoss)
        );
        assert_eq!(number("0.1").and_then(decimal_to_f32), Ok(0.1));
        assert_eq!(
            f64_to_decimal(1e20),
            Ok(Decimal {
                unscaled: 1,
                scale: -20
            })
        );
        assert_eq!(
            f32_to_decimal(0.1),
            Ok(Decimal {
                unscaled: 1,
                scale: 1
            })
        );
    }

    #[test]
    fn number_texts_are_strict() {
        assert_eq!(parse_i64("-42"), Ok(-42));
        assert_eq!(parse_i64("9223372036854775808"), Err(Reason::OutOfRange));
        for text in ["", "-", "abc", "12.5", " 1", "1_000", "0x1"] {
            assert_eq!(parse_i64(text), Err(Reason::Malformed), "{text}");
        }
        assert_eq!(parse_f64("0.1"), Ok(0.1));
        assert_eq!(parse_f64("-Infinity"), Ok(f64::NEG_INFINITY));
        assert!(parse_f64("-0").is_ok_and(|zero| zero.is_sign_negative()));
        for text in ["", "inf", "nan", "1.", "infinity"] {
            assert_eq!(parse_f64(text), Err(Reason::Malformed), "{text}");
        }
        assert_eq!(
            parse_f64("0.12345678901234567890"),
            Err(Reason::PrecisionLoss)
        );
    }

    #[test]
    fn float_texts_read_back() {
        let mut out = String::new();
        for value in [1.0, 1e300, 0.1, f64::INFINITY, f64::NEG_INFINITY] {
            out.clear();
            write_f64(value, &mut out);
            assert_eq!(parse_f64(&out), Ok(value), "{out}");
        }
        out.clear();
        write_f32(0.1, &mut out);
        assert_eq!(out, "0.1");
    }

    proptest! {
        #[test]
        fn digits_found_by_multiplication_are_those_of_the_text(
            any in any::<f64>(),
            unscaled in -2_000_000_000_000_000_i64..2_000_000_000_000_000,
            digits in 0..17_u32,
            places in 0..17_i32,
            scale in 0..17_u32,
        ) {
            let written: f64 = format!("{}e-{places}", unscaled / 10_i64.pow(digits)).parse().unwrap();
            for value in [any, written, -0.0] {
                let Some(found) = f64_at_scale(value, scale) else { continue };
                let exact = f64_to_decimal(value).and_then(|exact| exact.rescale(scale.cast_signed()));
                prop_assert_eq!(exact, Ok(i128::from(found)), "{}", value);
            }
            let kept = (unscaled / 10_i64.pow(digits)).unsigned_abs() < 10_u64.pow(DIGITS_KEPT);
            if kept && places.cast_unsigned() == scale && scale <= DIGITS_KEPT {
                prop_assert_eq!(f64_at_scale(written, scale), Some(unscaled / 10_i64.pow(digits)));
            }
        }

        #[test]
        fn every_finite_double_survives_as_text(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            if value.is_finite() && value != 0.0 {
                let mut out = String::new();
                write_f64(value, &mut out);
                prop_assert_eq!(parse_f64(&out), Ok(value));
            }
        }

        #[test]
        fn an_integer_that_became_a_double_reads_back(value in any::<i64>()) {
            if let Ok(double) = i64_to_f64(value) {
                prop_assert_eq!(f64_to_i64(double), Ok(value));
            }
        }
    }
}
