//! Numbers of JSON, exactly.
//!
//! A whole number is 64 bits wide or a decimal. Any other is a double if the shortest text of that
//! double is the same number, as it is up to 15 digits; else the digits are kept.

use super::lexer::malformed;
use crate::convert::decimal::Decimal;
use crate::convert::number::{f64_to_decimal, same_number};
use crate::decode::refused::Refused;

/// Digits and everything else of a number in a text.
const LENGTH_MAX: usize = 1_000;
/// Digits of which any double keeps all.
const DIGITS_KEPT: usize = 15;
/// Digits that tell any two doubles apart: who writes doubles writes no more.
const DIGITS_WRITTEN: usize = 17;
/// Digits that 64 bits surely hold.
const DIGITS_U64: usize = 19;

/// A number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number<'s> {
    Int(i64),
    Float(f64),
    /// At most 17 digits, of which a double would not keep all.
    Digits {
        unscaled: i64,
        scale: i32,
    },
    /// Big-endian two's complement.
    Decimal {
        unscaled: &'s [u8],
        scale: i32,
    },
}

/// The parts of a number as they are read.
struct Parts {
    negative: bool,
    /// The digits, when they are no more than [`DIGITS_U64`].
    mantissa: u64,
    /// The number of digits from the first that is not 0.
    digits: usize,
    /// The digits behind the point.
    fraction: usize,
    exponent: i64,
    is_whole: bool,
    length: usize,
}

/// Reads the number at `start` of `text`; returns it and its length in bytes.
#[inline]
pub(crate) fn read<'s>(
    text: &str,
    start: usize,
    scratch: &'s mut Vec<u8>,
) -> Result<(Number<'s>, usize), Refused> {
    let bytes = text.as_bytes().get(start..).unwrap_or_default();
    let parts = scan(bytes).map_err(|(message, at)| malformed(message, start + at))?;
    let length = parts.length;
    if parts.is_whole && parts.digits < DIGITS_U64 {
        let value = parts.mantissa.cast_signed();
        let value = if parts.negative { -value } else { value };
        return Ok((Number::Int(value), length));
    }
    if length > LENGTH_MAX {
        let message = "a number has more than 1,000 characters";
        return Err(Refused::new("VALUE_OUT_OF_RANGE", message).at(start));
    }
    let text = text
        .get(start..start + length)
        .ok_or_else(Refused::internal)?;
    let number = match parts.is_whole {
        true => whole(text, scratch),
        false => fraction(text, &parts, scratch),
    };
    number
        .map(|number| (number, length))
        .map_err(|refused| refused.at(start))
}

/// Returns the number of eight digits, if it is that many.
#[inline]
fn eight_digits(bytes: [u8; 8]) -> Option<u64> {
    const NIBBLES: u64 = 0xF0F0_F0F0_F0F0_F0F0;
    let word = u64::from_le_bytes(bytes);
    // Only of digits is the upper half 3, and stays so when 6 is added.
    let upper = (word & NIBBLES) | ((word.wrapping_add(0x0606_0606_0606_0606) & NIBBLES) >> 4);
    if upper != 0x3333_3333_3333_3333 {
        return None;
    }
    // The first digit lies lowest: pairs, then fours, then all eight.
    let digits = word.wrapping_sub(0x3030_3030_3030_3030);
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let low = (pairs & 0x0000_00FF_0000_00FF).wrapping_mul(0x000F_4240_0000_0064);
    let high = ((pairs >> 16) & 0x0000_00FF_0000_00FF).wrapping_mul(0x0000_2710_0000_0001);
    Some(low.wrapping_add(high) >> 32)
}

/// Appends the digits from `at` on to `value`; returns it, cut to 64 bits, and where they end.
#[inline]
fn take_digits(bytes: &[u8], mut at: usize, mut value: u64) -> (u64, usize) {
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let Some(digits) = eight_digits(*eight) else {
            break;
        };
        value = value.wrapping_mul(100_000_000).wrapping_add(digits);
        at += 8;
    }
    while let Some(digit @ b'0'..=b'9') = bytes.get(at).copied() {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        at += 1;
    }
    (value, at)
}

fn scan(bytes: &[u8]) -> Result<Parts, (&'static str, usize)> {
    let peek = |at: usize| bytes.get(at).copied();
    let negative = peek(0) == Some(b'-');
    let whole_from = usize::from(negative);
    let (mantissa, mut at) = take_digits(bytes, whole_from, 0);
    let begins_with_0 = peek(whole_from) == Some(b'0');
    match at - whole_from {
        0 => return Err(("a number has no digits", at)),
        1 => {}
        _ if begins_with_0 => {
            return Err(("a number begins with 0 and has more digits", whole_from));
        }
        _ => {}
    }
    let digits = if begins_with_0 { 0 } else { at - whole_from };
    let mut parts = Parts {
        negative,
        mantissa,
        digits,
        fraction: 0,
        exponent: 0,
        is_whole: true,
        length: at,
    };
    if peek(at) == Some(b'.') {
        at += 1;
        let from = at;
        (parts.mantissa, at) = take_digits(bytes, from, mantissa);
        if at == from {
            return Err(("a number has no digits behind its point", at));
        }
        parts.fraction = at - from;
        parts.digits += parts.fraction;
        if digits == 0 {
            let fraction = bytes.get(from..at).unwrap_or_default();
            let zeros = fraction.iter().take_while(|digit| **digit == b'0');
            parts.digits -= zeros.count();
        }
        parts.is_whole = false;
    }
    if let Some(b'e' | b'E') = peek(at) {
        at += 1;
        let falls = peek(at) == Some(b'-');
        at += usize::from(falls || peek(at) == Some(b'+'));
        let from = at;
        while let Some(digit @ b'0'..=b'9') = peek(at) {
            let exponent = parts.exponent.saturating_mul(10);
            parts.exponent = exponent.saturating_add(i64::from(digit - b'0'));
            at += 1;
        }
        if at == from {
            return Err(("a number has no digits in its exponent", at));
        }
        if falls {
            parts.exponent = parts.exponent.saturating_neg();
        }
        parts.is_whole = false;
    }
    parts.length = at;
    Ok(parts)
}

/// A whole number of 19 digits or more.
#[cold]
fn whole<'s>(text: &str, scratch: &'s mut Vec<u8>) -> Result<Number<'s>, Refused> {
    match text.parse() {
        Ok(value) => Ok(Number::Int(value)),
        Err(_) => Ok(Number::Decimal {
            unscaled: unscaled(text, scratch),
            scale: 0,
        }),
    }
}

const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

#[inline]
fn fraction<'s>(
    text: &str,
    parts: &Parts,
    scratch: &'s mut Vec<u8>,
) -> Result<Number<'s>, Refused> {
    let shift = parts
        .exponent
        .saturating_sub(i64::try_from(parts.fraction).unwrap_or(i64::MAX));
    if parts.digits <= DIGITS_KEPT {
        let power = usize::try_from(shift.unsigned_abs()).ok();
        if let Some(power) = power.and_then(|power| POWERS.get(power)) {
            // Both are exact as doubles, so that the one operation rounds once, to the nearest.
            #[expect(clippy::cast_precision_loss, reason = "15 digits are less than 2^53")]
            let mantissa = parts.mantissa as f64;
            let value = if shift < 0 {
                mantissa / power
            } else {
                mantissa * power
            };
            return Ok(Number::Float(if parts.negative { -value } else { value }));
        }
    }
    unusual(text, parts, shift, scratch)
}

/// Numbers with many digits or a large exponent.
#[cold]
fn unusual<'s>(
    text: &str,
    parts: &Parts,
    shift: i64,
    scratch: &'s mut Vec<u8>,
) -> Result<Number<'s>, Refused> {
    let double: f64 = text.parse().map_err(|_| Refused::internal())?;
    if parts.digits == 0 {
        return Ok(Number::Float(double));
    }
    let scale = scale_of(shift).ok_or_else(|| {
        Refused::new(
            "VALUE_OUT_OF_RANGE",
            "a number has an exponent that nothing holds",
        )
    })?;
    let kept = || match (Decimal::parse(text), f64_to_decimal(double)) {
        (Ok(exact), Ok(kept)) => same_number(exact, kept),
        _ => false,
    };
    if double.is_finite() && ((parts.digits <= DIGITS_KEPT && double.is_normal()) || kept()) {
        return Ok(Number::Float(double));
    }
    if parts.digits <= DIGITS_WRITTEN && double.is_normal() {
        let unscaled = parts.mantissa.cast_signed();
        return Ok(Number::Digits {
            unscaled: if parts.negative { -unscaled } else { unscaled },
            scale,
        });
    }
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    Ok(Number::Decimal {
        unscaled: unscaled(mantissa, scratch),
        scale,
    })
}

/// Returns the scale of a number of which all digits are in front of `10^shift`.
fn scale_of(shift: i64) -> Option<i32> {
    let scale = shift.checked_neg()?;
    // One less than the least, so that a scale can be turned around.
    i32::try_from(scale).ok().filter(|scale| *scale > i32::MIN)
}

/// Writes the digits of `text`, whatever else is in it, as big-endian two's complement.
fn unscaled<'s>(text: &str, out: &'s mut Vec<u8>) -> &'s [u8] {
    // The magnitude grows digit by digit, its lowest byte first.
    out.clear();
    for digit in text.bytes().filter(u8::is_ascii_digit) {
        let mut carry = u32::from(digit - b'0');
        for byte in out.iter_mut() {
            carry += u32::from(*byte) * 10;
            let [low, ..] = carry.to_le_bytes();
            *byte = low;
            carry >>= 8;
        }
        if carry > 0 {
            let [low, ..] = carry.to_le_bytes();
            out.push(low);
        }
    }
    out.push(0); // Room for the sign.
    if text.starts_with('-') {
        let mut carry = true;
        for byte in out.iter_mut() {
            (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
        }
    }
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> Result<Number<'static>, &'static str> {
        let scratch = Box::leak(Box::default());
        match read(text, 0, scratch) {
            Ok((number, length)) => {
                assert_eq!(length, text.len(), "{text}");
                Ok(number)
            }
            Err(refused) => Err(refused.code()),
        }
    }

    fn decimal(unscaled: &'static [u8], scale: i32) -> Result<Number<'static>, &'static str> {
        Ok(Number::Decimal { unscaled, scale })
    }

    #[test]
    fn a_number_is_what_holds_it_exactly() {
        assert_eq!(number("0"), Ok(Number::Int(0)));
        assert_eq!(number("-0"), Ok(Number::Int(0)));
        assert_eq!(number("-9223372036854775808"), Ok(Number::Int(i64::MIN)));
        assert_eq!(number("9223372036854775807"), Ok(Number::Int(i64::MAX)));
        let bytes: &'static [u8] = &[0, 0x80, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(number("9223372036854775808"), decimal(bytes, 0));
        let bytes: &'static [u8] = &[0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
        assert_eq!(number("-9223372036854775809"), decimal(bytes, 0));
        assert_eq!(number("12345.67"), Ok(Number::Float(12345.67)));
        assert_eq!(number("1e2"), Ok(Number::Float(100.0)));
        assert_eq!(number("1.5E-3"), Ok(Number::Float(0.0015)));
        assert_eq!(number("0.1000000000000000000000"), Ok(Number::Float(0.1)));
        assert_eq!(
            number("0.30000000000000004"),
            Ok(Number::Float(0.30000000000000004))
        );
        let digits = Number::Digits {
            unscaled: -12_345_678_901_234_567,
            scale: 3,
        };
        assert_eq!(number("-12345678901234.567"), Ok(digits));
        assert_eq!(number("1e400"), decimal(&[0, 1], -400));
        assert_eq!(number("-1e-400"), decimal(&[0xFF, 0xFF], 400));
        assert_eq!(number("0e999999999999999999999"), Ok(Number::Float(0.0)));
        assert_eq!(
            number("1.5e-9223372036854775807"),
            Err("VALUE_OUT_OF_RANGE")
        );
        assert_eq!(number("1e2147483648"), Err("VALUE_OUT_OF_RANGE"));
        assert_eq!(number("1e999999999999999999999"), Err("VALUE_OUT_OF_RANGE"));
        assert_eq!(number(&"1".repeat(1_001)), Err("VALUE_OUT_OF_RANGE"));
        assert!(matches!(
            number(&"1".repeat(1_000)),
            Ok(Number::Decimal { .. })
        ));
    }

    #[test]
    fn eight_digits_are_read_at_once() {
        assert_eq!(eight_digits(*b"12345678"), Some(12_345_678));
        assert_eq!(eight_digits(*b"00000000"), Some(0));
        assert_eq!(eight_digits(*b"99999999"), Some(99_999_999));
        for at in 0..8 {
            for other in (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit()) {
                let mut bytes = *b"12345678";
                bytes[at] = other;
                assert_eq!(eight_digits(bytes), None, "{other} at {at}");
            }
        }
    }

    #[test]
    fn a_negative_zero_keeps_its_sign() {
        let Ok(Number::Float(zero)) = number("-0.0") else {
            panic!("no double");
        };
        assert!(zero == 0.0 && zero.is_sign_negative());
    }

    #[test]
    fn what_is_no_number_of_json_is_refused() {
        for text in ["-", "01", "-01", "1.", "1.e3", "1e", "1e+", "-a"] {
            assert_eq!(number(text), Err("JSON_MALFORMED"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn digits_are_those_of_the_text(
            negative in any::<bool>(),
            whole in "0|[1-9][0-9]{0,24}",
            fraction in "[0-9]{0,24}",
            exponent in -30_i64..30,
        ) {
            let point = if fraction.is_empty() { "" } else { "." };
            let sign = if negative { "-" } else { "" };
            let text = format!("{sign}{whole}{point}{fraction}e{exponent}");
            let Ok(exact) = Decimal::parse(&text) else { return Ok(()) };
            let kept = match number(&text).expect("a number") {
                Number::Int(_) => panic!("a whole number"),
                Number::Float(value) => {
                    prop_assert_eq!(Ok(value), text.parse());
                    f64_to_decimal(value).expect("finite")
                }
                Number::Digits { unscaled, scale } => Decimal { unscaled: unscaled.into(), scale },
                Number::Decimal { unscaled, scale } => {
                    Decimal::from_be_bytes(unscaled, scale).expect("as many digits as parsed")
                }
            };
            prop_assert!(same_number(exact, kept), "{text}: {exact:?} {kept:?}");
        }

        #[test]
        fn doubles_come_back(value in any::<f64>()) {
            prop_assume!(value.is_finite());
            for text in [format!("{value:e}"), format!("{value:?}"), format!("{value:.17e}")] {
                match number(&text).expect("a number") {
                    Number::Float(read) => prop_assert_eq!(read.to_bits(), value.to_bits()),
                    Number::Digits { unscaled, scale } => {
                        let read = crate::convert::number::nearest_f64(Decimal {
                            unscaled: unscaled.into(),
                            scale,
                        });
                        prop_assert_eq!(read, Ok(value));
                    }
                    Number::Int(read) => prop_assert_eq!(read as f64, value),
                    Number::Decimal { .. } => {}
                }
            }
        }
    }
}
