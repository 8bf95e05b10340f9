//! Sums of INCRBYFLOAT and HINCRBYFLOAT, to the last digit as Redis on x86-64 has them.
//!
//! **Problem.** Redis adds in the processor's numbers of 80 bits and shows 17 digits behind the point, so `5000 + 0.1`
//! is `5000.10000000000000009`. Rust has no such numbers.
//!
//! **Method.** A number is a significand of 64 bits and a power of two. Reading, adding and showing each compute in
//! whole numbers, exactly, then round once, to the nearest and in a tie to the even one: what the standard for floating
//! point asks of the processor.
//!
//! **Bounds.** A number has at most [`LENGTH_MAX`] letters and an absolute value below 2^127; a greater one is refused,
//! where Redis has numbers of almost 5000 digits. Hexadecimal numbers are refused.

use std::cmp::Ordering;

use super::{Failure, reply};

/// The most letters of a number.
const LENGTH_MAX: usize = 64;
/// The greatest power of ten in a number.
const EXPONENT_MAX: i32 = 64;
/// Digits behind the point.
const SHOWN: usize = 17;

/// A number, or infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Float {
    is_negative: bool,
    /// The highest bit is set, but for zero and infinity.
    significand: u64,
    /// Power of two; [`i32::MAX`] of infinity.
    exponent: i32,
}

impl Float {
    pub const ZERO: Float = Float {
        is_negative: false,
        significand: 0,
        exponent: 0,
    };

    /// Parses a number as `strtold` does.
    pub fn read(text: &[u8]) -> Result<Float, Failure> {
        let parsed = std::str::from_utf8(text).ok().and_then(parsed);
        parsed.map_or_else(|| reply("ERR value is not a valid float"), Ok)
    }

    pub fn is_finite(self) -> bool {
        self.exponent != i32::MAX
    }

    /// The sum, rounded.
    pub fn plus(self, other: Float) -> Result<Float, Failure> {
        if !self.is_finite() || !other.is_finite() {
            return reply("ERR increment would produce NaN or Infinity");
        }
        if self.significand == 0 || other.significand == 0 {
            return Ok(if self.significand == 0 { other } else { self });
        }
        let (high, low) = if self.exponent >= other.exponent {
            (self, other)
        } else {
            (other, self)
        };
        // 63 bits below the significand; those of the lower number that are lost count as one more bit below.
        let base = high.exponent - 63;
        let large = u128::from(high.significand) << 63;
        let shift = (low.exponent - base).clamp(-127, 63);
        let whole = u128::from(low.significand);
        let small = match shift {
            0.. => whole << shift,
            _ => whole >> -shift | u128::from(whole << (128 + shift) != 0),
        };
        let (sum, is_negative) = match (high.is_negative == low.is_negative, large.cmp(&small)) {
            (true, _) => (large + small, high.is_negative),
            (false, Ordering::Less) => (small - large, low.is_negative),
            (false, _) => (large - small, high.is_negative),
        };
        Ok(rounded(is_negative, sum, base))
    }

    /// The number in decimal digits.
    pub fn shown(self) -> Result<String, Failure> {
        let whole = u128::from(self.significand);
        let unit = 10_u128.pow(SHOWN as u32);
        let (integer, fraction) = match self.exponent {
            64.. => return reply("ERR a float has at most 38 digits before the point here"),
            0.. => (whole << self.exponent, 0),
            ..-127 => (0, 0),
            down => {
                let down = down.unsigned_abs();
                let scaled = whole * unit;
                let (cut, rest) = (scaled >> down, scaled & ((1 << down) - 1));
                let up = match rest.cmp(&(1 << (down - 1))) {
                    Ordering::Less => 0,
                    Ordering::Equal => cut & 1,
                    Ordering::Greater => 1,
                };
                ((cut + up) / unit, (cut + up) % unit)
            }
        };
        let digits = format!("{integer}.{fraction:0SHOWN$}");
        let digits = digits.trim_end_matches('0').trim_end_matches('.');
        let sign = if self.is_negative && digits != "0" { "-" } else { "" };
        Ok(format!("{sign}{digits}"))
    }
}

/// The nearest number to `bits` times 2 to the power of `exponent`.
fn rounded(is_negative: bool, bits: u128, exponent: i32) -> Float {
    if bits == 0 {
        return Float::ZERO;
    }
    let leading = bits.leading_zeros() as i32;
    let aligned = bits << leading;
    let (significand, rest) = ((aligned >> 64) as u64, aligned as u64);
    let is_up = rest > 1 << 63 || rest == 1 << 63 && significand & 1 == 1;
    let exponent = exponent + 64 - leading;
    match significand.checked_add(u64::from(is_up)) {
        Some(significand) => Float {
            is_negative,
            significand,
            exponent,
        },
        None => Float {
            is_negative,
            significand: 1 << 63,
            exponent: exponent + 1,
        },
    }
}

fn parsed(text: &str) -> Option<Float> {
    if text.len() > LENGTH_MAX {
        return None;
    }
    let is_negative = text.starts_with('-');
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if ["inf", "infinity"].iter().any(|word| rest.eq_ignore_ascii_case(word)) {
        return Some(Float {
            is_negative,
            exponent: i32::MAX,
            ..Float::ZERO
        });
    }
    let (digits, power) = match rest.split_once(['e', 'E']) {
        Some((digits, power)) => (digits, power.parse::<i32>().ok()?),
        None => (rest, 0),
    };
    let (before, behind) = digits.split_once('.').unwrap_or((digits, ""));
    let all: Vec<u8> = before.bytes().chain(behind.bytes()).collect();
    if all.is_empty() || !all.iter().all(u8::is_ascii_digit) || power.abs() > EXPONENT_MAX {
        return None;
    }
    let mut number = Natural::default();
    all.iter()
        .for_each(|digit| number.times_ten_plus(u32::from(digit - b'0')));
    if number.bits() == 0 {
        return Some(Float {
            is_negative,
            ..Float::ZERO
        });
    }
    let power = power - behind.len() as i32;
    let mut divisor = Natural(vec![1]);
    for _ in 0..power.unsigned_abs() {
        if power > 0 { &mut number } else { &mut divisor }.times_ten_plus(0);
    }
    // A quotient of 66 or 67 bits, and one more bit for a remainder.
    let shift = 66 - (number.bits() as i32 - divisor.bits() as i32);
    if shift > 0 { &mut number } else { &mut divisor }.shift(shift.unsigned_abs());
    let mut quotient = 0_u128;
    for place in (0..=66).rev() {
        let mut part = divisor.clone();
        part.shift(place);
        quotient = quotient << 1 | u128::from(number.take(&part));
    }
    let sticky = quotient << 1 | u128::from(number.bits() > 0);
    let float = rounded(is_negative, sticky, -shift - 1);
    (float.exponent < 64).then_some(float)
}

/// A natural number of any length, the lowest 32 bits first.
#[derive(Clone, Default)]
struct Natural(Vec<u32>);

impl Natural {
    fn times_ten_plus(&mut self, digit: u32) {
        let mut carry = u64::from(digit);
        for part in &mut self.0 {
            carry += u64::from(*part) * 10;
            *part = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Number of bits, without zeros in front.
    fn bits(&self) -> usize {
        let top = self.0.iter().rposition(|part| *part != 0);
        top.map_or(0, |top| 32 * top + 32 - self.0[top].leading_zeros() as usize)
    }

    fn shift(&mut self, bits: u32) {
        let mut carry = 0;
        for part in &mut self.0 {
            let shifted = u64::from(*part) << (bits % 32) | carry;
            *part = shifted as u32;
            carry = shifted >> 32;
        }
        self.0.push(carry as u32);
        let zeros = (bits / 32) as usize;
        self.0.splice(0..0, std::iter::repeat_n(0, zeros));
    }

    fn part(&self, at: usize) -> u32 {
        self.0.get(at).copied().unwrap_or(0)
    }

    /// Subtracts `other` if it is not greater; returns whether it did.
    fn take(&mut self, other: &Natural) -> bool {
        let length = self.0.len().max(other.0.len());
        let order = (0..length).rev().map(|at| self.part(at).cmp(&other.part(at)));
        if order.fold(Ordering::Equal, Ordering::then) == Ordering::Less {
            return false;
        }
        let mut borrow = false;
        for at in 0..self.0.len() {
            let (first, under) = self.0[at].overflowing_sub(other.part(at));
            let (second, again) = first.overflowing_sub(u32::from(borrow));
            self.0[at] = second;
            borrow = under || again;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(one: &str, other: &str) -> String {
        let [one, other] = [one, other].map(|text| Float::read(text.as_bytes()).unwrap());
        one.plus(other).unwrap().shown().unwrap()
    }

    #[test]
    fn sums_are_those_of_numbers_of_80_bits() {
        for (one, other, expected) in [
            ("10.5", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("5000", "0.1", "5000.10000000000000009"),
            ("3", "-1.1", "1.9"),
            ("1.23", "-1.23", "0"),
            ("0", "-0", "0"),
            (".5", "5.", "5.5"),
            ("17179869184", "17179869184", "34359738368"),
            ("1e-20", "1", "1"),
            ("-1", "0.75", "-0.25"),
        ] {
            assert_eq!(sum(one, other), expected, "{one} + {other}");
        }
        for wrong in [
            "", " 1", "1 ", "1e", "e1", ".", "1.2.3", "0x1", "nan", "--1", "+-1", "1e65", "1e50",
        ] {
            assert!(Float::read(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        assert!(Float::read(b"-InFinity").unwrap().plus(Float::ZERO).is_err());
    }

    proptest! {
        /// Of numbers that doubles hold exactly, the sum is that of doubles where it needs no rounding.
        #[test]
        fn short_sums_are_exact(one in -1_000_000_i64..1_000_000, other in -1_000_000_i64..1_000_000, halves in 0_u32..12) {
            let unit = f64::from(1 << halves);
            let [one, other] = [one as f64 / unit, other as f64 / unit];
            prop_assert_eq!(sum(&one.to_string(), &other.to_string()), (one + other).to_string());
        }

        /// Decimal sums of few digits come out as on paper.
        #[test]
        fn decimal_sums_are_as_on_paper(one in 0_i64..1000, other in 0_i64..1000) {
            let text = |number: i64| format!("{}.{:02}", number / 100, number % 100);
            let expected = text(one + other);
            let expected = expected.trim_end_matches('0').trim_end_matches('.');
            prop_assert_eq!(sum(&text(one), &text(other)), expected);
        }
    }
}
