//! Exact decimal numbers: 128 bits and a scale, never rounded.

use super::misfit::Reason;

/// `unscaled * 10^-scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    /// The digits with their sign.
    pub unscaled: i128,
    /// How many of the digits stand after the point; negative for trailing zeros.
    pub scale: i32,
}

/// `10^exponent`, if it fits.
fn power_of_ten(exponent: u32) -> Option<i128> {
    10_i128.checked_pow(exponent)
}

impl Decimal {
    /// Reads the big-endian two's complement bytes of a Java `BigInteger`. More than 128 bits are
    /// [`Reason::OutOfRange`].
    pub fn from_be_bytes(bytes: &[u8], scale: i32) -> Result<Self, Reason> {
        let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
        let mut unscaled: i128 = if negative { -1 } else { 0 };
        for (index, byte) in bytes.iter().enumerate() {
            if index + 16 < bytes.len() {
                // Only a sign extension may stand before the last 16 bytes.
                if *byte != if negative { 0xFF } else { 0 } {
                    return Err(Reason::OutOfRange);
                }
            } else {
                unscaled = unscaled << 8 | i128::from(*byte);
            }
        }
        if (unscaled < 0) != negative {
            return Err(Reason::OutOfRange);
        }
        Ok(Decimal { unscaled, scale })
    }

    /// Reads `-12.50`, `7` or `1.5e-3`: an optional sign, digits, at most one point with digits
    /// on both sides, an optional exponent. Nothing else, no blanks.
    pub fn parse(text: &str) -> Result<Self, Reason> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
            None => (text, 0),
        };
        let (negative, digits) = split_sign(mantissa);
        let (whole, fraction) = match digits.split_once('.') {
            Some((_, "")) => return Err(Reason::Malformed),
            Some(parts) => parts,
            None => (digits, ""),
        };
        if whole.is_empty() {
            return Err(Reason::Malformed);
        }
        let mut unscaled: i128 = 0;
        let mut overflow = false;
        for byte in whole.bytes().chain(fraction.bytes()) {
            if !byte.is_ascii_digit() {
                return Err(Reason::Malformed);
            }
            let digit = i128::from(byte - b'0');
            match unscaled
                .checked_mul(10)
                .and_then(|value| value.checked_add(digit))
            {
                Some(value) if !overflow => unscaled = value,
                _ => overflow = true,
            }
        }
        if overflow {
            return Err(Reason::OutOfRange);
        }
        let scale = i32::try_from(fraction.len())
            .ok()
            .and_then(|scale| scale.checked_sub(exponent))
            .ok_or(Reason::OutOfRange)?;
        let unscaled = if negative { -unscaled } else { unscaled };
        Ok(Decimal { unscaled, scale })
    }

    /// Returns the unscaled number at exactly `scale`.
    pub fn rescale(self, scale: i32) -> Result<i128, Reason> {
        if self.unscaled == 0 {
            return Ok(0);
        }
        let shift = i64::from(scale) - i64::from(self.scale);
        let magnitude = u32::try_from(shift.unsigned_abs()).unwrap_or(u32::MAX);
        if shift >= 0 {
            power_of_ten(magnitude)
                .and_then(|power| self.unscaled.checked_mul(power))
                .ok_or(Reason::OutOfRange)
        } else {
            // A power beyond 128 bits is larger than any number: all digits would be lost.
            let power = power_of_ten(magnitude).ok_or(Reason::PrecisionLoss)?;
            if self.unscaled % power == 0 {
                Ok(self.unscaled / power)
            } else {
                Err(Reason::PrecisionLoss)
            }
        }
    }

    /// Returns the unscaled number of a `decimal(precision, scale)` column.
    pub fn fit(self, precision: u32, scale: u32) -> Result<i128, Reason> {
        let scale = i32::try_from(scale).map_err(|_| Reason::OutOfRange)?;
        let unscaled = self.rescale(scale)?;
        match power_of_ten(precision) {
            Some(bound) if unscaled.unsigned_abs() < bound.unsigned_abs() => Ok(unscaled),
            _ => Err(Reason::OutOfRange),
        }
    }

    /// Returns the number as an integer, if it is one.
    pub fn to_i64(self) -> Result<i64, Reason> {
        i64::try_from(self.rescale(0)?).map_err(|_| Reason::OutOfRange)
    }

    /// Returns how many digits the unscaled number has; zero has one.
    pub fn precision(self) -> u32 {
        self.unscaled.unsigned_abs().checked_ilog10().unwrap_or(0) + 1
    }

    /// Appends all digits without an exponent, as Java's `toPlainString` does. A scale that would
    /// make more than 400 digits is written with an exponent instead.
    pub fn write_plain(self, out: &mut String) {
        let digits = self.unscaled.unsigned_abs().to_string();
        write_digits(self.unscaled < 0, &digits, self.scale, out);
    }
}

/// The longest number, in bytes, whose digits are written: 1,233 digits.
const WIDE_BYTES_MAX: usize = 512;

/// Appends the digits of a number of more than 128 bits, given as [`Decimal::from_be_bytes`] takes
/// it; see [`Decimal::write_plain`]. No column but text can hold such a number.
pub fn write_wide(bytes: &[u8], scale: i32, out: &mut String) -> Result<(), Reason> {
    if bytes.len() > WIDE_BYTES_MAX {
        return Err(Reason::OutOfRange);
    }
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let mut magnitude = bytes.to_vec();
    if negative {
        let mut carry = true;
        for byte in magnitude.iter_mut().rev() {
            let (negated, overflow) = (!*byte).overflowing_add(u8::from(carry));
            *byte = negated;
            carry = overflow;
        }
    }
    // The lowest digits first, nine at a time.
    let mut groups = Vec::new();
    while magnitude.iter().any(|byte| *byte != 0) {
        let mut rest: u64 = 0;
        for byte in &mut magnitude {
            let part = rest << 8 | u64::from(*byte);
            *byte = u8::try_from(part / 1_000_000_000).unwrap_or(u8::MAX);
            rest = part % 1_000_000_000;
        }
        groups.push(rest);
    }
    let mut digits = groups.pop().unwrap_or(0).to_string();
    for group in groups.iter().rev() {
        digits.push_str(&format!("{group:09}"));
    }
    write_digits(negative, &digits, scale, out);
    Ok(())
}

fn write_digits(negative: bool, digits: &str, scale: i32, out: &mut String) {
    if negative {
        out.push('-');
    }
    if !(-400..=400).contains(&scale) {
        out.push_str(&format!("{digits}E{}", -i64::from(scale)));
        return;
    }
    let places = usize::try_from(scale.max(0)).unwrap_or(0);
    if scale <= 0 {
        out.push_str(digits);
        if digits != "0" {
            for _ in scale..0 {
                out.push('0');
            }
        }
    } else if digits.len() <= places {
        out.push_str("0.");
        for _ in digits.len()..places {
            out.push('0');
        }
        out.push_str(digits);
    } else {
        let (whole, fraction) = digits.split_at(digits.len() - places);
        out.push_str(whole);
        out.push('.');
        out.push_str(fraction);
    }
}

fn split_sign(text: &str) -> (bool, &str) {
    if let Some(rest) = text.strip_prefix('-') {
        (true, rest)
    } else {
        (false, text.strip_prefix('+').unwrap_or(text))
    }
}

fn parse_exponent(text: &str) -> Result<i32, Reason> {
    let (negative, digits) = split_sign(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Reason::Malformed);
    }
    let exponent: i32 = digits.parse().map_err(|_| Reason::OutOfRange)?;
    Ok(if negative { -exponent } else { exponent })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(decimal: Decimal) -> String {
        let mut out = String::new();
        decimal.write_plain(&mut out);
        out
    }

    #[test]
    fn bytes_are_read_as_java_wrote_them() {
        let read = |bytes: &[u8]| Decimal::from_be_bytes(bytes, 2).map(|d| d.unscaled);
        assert_eq!(read(&[]), Ok(0));
        assert_eq!(read(&[0x7F]), Ok(127));
        assert_eq!(read(&[0x80]), Ok(-128));
        assert_eq!(read(&[0x00, 0x80]), Ok(128));
        assert_eq!(read(&[0xFF; 20]), Ok(-1));
        assert_eq!(read(&i128::MAX.to_be_bytes()), Ok(i128::MAX));
        assert_eq!(read(&i128::MIN.to_be_bytes()), Ok(i128::MIN));
        let mut wide = vec![0];
        wide.extend_from_slice(&u128::MAX.to_be_bytes());
        assert_eq!(read(&wide), Err(Reason::OutOfRange));
        let mut wide = vec![1];
        wide.extend_from_slice(&[0; 16]);
        assert_eq!(read(&wide), Err(Reason::OutOfRange));
    }

    #[test]
    fn text_forms_are_strict() {
        for (text, unscaled, scale) in [
            ("0", 0, 0),
            ("-12.50", -1250, 2),
            ("+7", 7, 0),
            ("1e3", 1, -3),
            ("1.5E-3", 15, 4),
        ] {
            assert_eq!(
                Decimal::parse(text),
                Ok(Decimal { unscaled, scale }),
                "{text}"
            );
        }
        for text in [
            "", "-", ".", "1.", ".5", " 1", "1 ", "1,5", "0x1", "NaN", "1e", "--1", "1.2.3", "١",
        ] {
            assert_eq!(Decimal::parse(text), Err(Reason::Malformed), "{text}");
        }
        assert_eq!(Decimal::parse(&"9".repeat(40)), Err(Reason::OutOfRange));
        assert_eq!(Decimal::parse("1e99999999999"), Err(Reason::OutOfRange));
    }

    #[test]
    fn rescaling_never_rounds() {
        let number = Decimal {
            unscaled: 1005,
            scale: 3,
        };
        assert_eq!(number.fit(10, 3), Ok(1005));
        assert_eq!(number.fit(10, 5), Ok(100_500));
        assert_eq!(number.fit(10, 2), Err(Reason::PrecisionLoss));
        assert_eq!(number.fit(3, 3), Err(Reason::OutOfRange));
        assert_eq!(
            Decimal {
                unscaled: 1,
                scale: -20
            }
            .fit(38, 0),
            Ok(10_i128.pow(20))
        );
        assert_eq!(
            Decimal {
                unscaled: 1,
                scale: -38
            }
            .fit(38, 0),
            Err(Reason::OutOfRange)
        );
        assert_eq!(
            Decimal {
                unscaled: 1,
                scale: i32::MIN
            }
            .fit(38, 38),
            Err(Reason::OutOfRange)
        );
        assert_eq!(
            Decimal {
                unscaled: 1,
                scale: i32::MAX
            }
            .fit(38, 0),
            Err(Reason::PrecisionLoss)
        );
        assert_eq!(
            Decimal {
                unscaled: 0,
                scale: i32::MIN
            }
            .fit(1, 0),
            Ok(0)
        );
    }

    #[test]
    fn plain_text_keeps_the_scale() {
        for (unscaled, scale, text) in [
            (150, 2, "1.50"),
            (-5, 3, "-0.005"),
            (1, -2, "100"),
            (0, -2, "0"),
            (0, 2, "0.00"),
            (i128::MIN, 0, "-170141183460469231731687303715884105728"),
            (7, i32::MIN, "7E2147483648"),
        ] {
            assert_eq!(plain(Decimal { unscaled, scale }), text);
        }
    }

    #[test]
    fn numbers_of_any_width_keep_their_digits() {
        let wide = |bytes: &[u8], scale| {
            let mut out = String::new();
            write_wide(bytes, scale, &mut out).map(|()| out)
        };
        let mut two_to_128 = vec![1];
        two_to_128.extend_from_slice(&[0; 16]);
        assert_eq!(
            wide(&two_to_128, 0).as_deref(),
            Ok("340282366920938463463374607431768211456")
        );
        let mut negative = vec![0xFF];
        negative.extend_from_slice(&[0; 16]);
        assert_eq!(
            wide(&negative, 38).as_deref(),
            Ok("-3.40282366920938463463374607431768211456")
        );
        let mut longest = vec![0x7F];
        longest.extend_from_slice(&[0xFF; WIDE_BYTES_MAX - 1]);
        assert_eq!(wide(&longest, 0).map(|digits| digits.len()), Ok(1_233));
        longest.push(0);
        assert_eq!(wide(&longest, 0), Err(Reason::OutOfRange));
    }

    proptest! {
        #[test]
        fn a_number_is_written_alike_at_any_width(unscaled in any::<i128>(), scale in -40..60_i32) {
            let mut out = String::new();
            write_wide(&unscaled.to_be_bytes(), scale, &mut out).unwrap();
            prop_assert_eq!(out, plain(Decimal { unscaled, scale }));
        }

        #[test]
        fn plain_text_reads_back(unscaled in any::<i128>(), scale in 0..60_i32) {
            let number = Decimal { unscaled, scale };
            if unscaled != i128::MIN {
                prop_assert_eq!(Decimal::parse(&plain(number)), Ok(number));
            }
        }

        #[test]
        fn a_rescaled_number_is_the_same_number(unscaled in any::<i64>(), up in 0..18_i32) {
            let number = Decimal { unscaled: i128::from(unscaled), scale: 3 };
            let wide = number.rescale(3 + up).map(|unscaled| Decimal { unscaled, scale: 3 + up });
            prop_assert_eq!(wide.and_then(|wide| wide.rescale(3)), Ok(i128::from(unscaled)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = Decimal::parse(&text);
        }
    }
}
