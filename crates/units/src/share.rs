//! A part of a whole.

use std::fmt;

use serde::{Deserialize, Serialize};
/// A part of a whole, 0 to 1 inclusive, never NaN.
///
/// ```
/// use punctual_units::Share;
/// assert_eq!(Share::new(0.5).unwrap().get(), 0.5);
/// assert!(Share::new(1.5).is_err());
/// assert_eq!(Share::clamped(1.5), Share::ONE);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(f64);

/// Error for a number outside of 0..=1, or NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutOfRange(pub f64);

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a share: it must lie between 0 and 1", self.0)
    }
}

impl std::error::Error for OutOfRange {}

impl Share {
    /// Share of an empty part, 0.
    pub const ZERO: Share = Share(0.0);
    /// Share of the whole, 1.
    pub const ONE: Share = Share(1.0);

    /// Converts `value` to a share.
    ///
    /// # Errors
    /// [`OutOfRange`] outside of 0..=1 and for NaN.
    pub fn new(value: f64) -> Result<Share, OutOfRange> {
        if (0.0..=1.0).contains(&value) {
            Ok(Share(value))
        } else {
            Err(OutOfRange(value))
        }
    }

    /// The nearest share to `value`; NaN becomes [`Share::ZERO`].
    pub fn clamped(value: f64) -> Share {
        if value.is_nan() {
            Share::ZERO
        } else {
            Share(value.clamp(0.0, 1.0))
        }
    }

    /// Computes `part / whole`; [`Share::ONE`] for an empty whole, because nothing is missing from it.
    pub fn of(part: usize, whole: usize) -> Share {
        if whole == 0 {
            Share::ONE
        } else {
            Share::clamped(part as f64 / whole as f64)
        }
    }

    /// The share as a plain number, 0 to 1.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Share {
    type Error = OutOfRange;
    fn try_from(value: f64) -> Result<Share, OutOfRange> {
        Share::new(value)
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> f64 {
        share.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0 * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn clamping_lands_in_range_and_leaves_shares_alone(value in any::<f64>()) {
            let share = Share::clamped(value);
            prop_assert!((0.0..=1.0).contains(&share.get()));
            if let Ok(valid) = Share::new(value) {
                prop_assert_eq!(valid, share);
            }
        }
    }

    #[test]
    fn an_empty_whole_misses_nothing() {
        assert_eq!(Share::of(0, 0), Share::ONE);
    }
}
