//! Range and resolution of a knob.

use crate::error::{ControlError, refused};

/// The range of a knob and the distance between its settings, in the knob's own unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knob {
    min: f64,
    max: f64,
    quantum: f64,
}

impl Knob {
    /// Makes a knob from `min` to `max` whose neighbouring settings are at most `quantum` apart; 0 if any value can be
    /// set.
    ///
    /// # Errors
    /// [`ControlError`] for an empty range, a negative quantum, NaN and infinities.
    pub fn new(min: f64, max: f64, quantum: f64) -> Result<Knob, ControlError> {
        if !(min.is_finite() && max.is_finite() && min < max) {
            refused(format!(
                "a knob cannot range from {min} to {max}: both must be finite and the minimum below the maximum"
            ))
        } else if !(quantum.is_finite() && quantum >= 0.0) {
            refused(format!(
                "a knob cannot move in steps of {quantum}: the step must be finite and not negative, 0 for a \
                 continuous knob"
            ))
        } else {
            Ok(Knob { min, max, quantum })
        }
    }

    /// Lowest setting, in the knob's unit.
    pub fn min(self) -> f64 {
        self.min
    }

    /// Highest setting, in the knob's unit.
    pub fn max(self) -> f64 {
        self.max
    }

    /// Largest distance between neighbouring settings; 0 for a continuous knob.
    pub fn quantum(self) -> f64 {
        self.quantum
    }

    /// Returns the value within the range that is nearest to `value`.
    pub(crate) fn clamp(self, value: f64) -> f64 {
        value.clamp(self.min, self.max)
    }

    /// Whether `applied` is `wanted` but for rounding to a neighbouring setting. A larger difference means that the
    /// machine refused or limited the setting.
    ///
    /// A controller must not correct its memory for mere rounding: an integral that moves by less than a quantum per
    /// sample would be set back each time and never reach the next setting, and its error would stay for good.
    pub(crate) fn is_rounding(self, wanted: f64, applied: f64) -> bool {
        (applied - wanted).abs() <= self.quantum
    }
}
