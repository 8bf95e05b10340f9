//! Range and resolution of a knob.

/// The range of a knob and the distance between its settings, in the knob's own unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knob {
    min: f64,
    max: f64,
    quantum: f64,
}

/// Numbers that do not describe a knob.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum KnobError {
    /// The range is empty, or a limit is not finite.
    #[error("a knob cannot range from {min} to {max}: both must be finite and the minimum below the maximum")]
    Range { min: f64, max: f64 },
    /// The quantum is negative or not finite.
    #[error(
        "a knob cannot move in steps of {quantum}: the step must be finite and not negative, 0 for a continuous knob"
    )]
    Quantum { quantum: f64 },
    /// The settings of a knob with steps are not a list of ascending numbers.
    #[error("setting {index} of a knob is {value}: give at least two settings, finite and ascending")]
    Steps {
        /// Index from 0 of the setting that is not finite or not ascending.
        index: usize,
        /// NaN where fewer than two settings are given.
        value: f64,
    },
}

impl Knob {
    /// Makes a knob from `min` to `max` whose neighbouring settings are at most `quantum` apart; 0 if any value can be
    /// set.
    ///
    /// # Errors
    /// [`KnobError`] for an empty range, a negative quantum, NaN and infinities.
    pub fn new(min: f64, max: f64, quantum: f64) -> Result<Knob, KnobError> {
        if !(min.is_finite() && max.is_finite() && min < max) {
            Err(KnobError::Range { min, max })
        } else if !(quantum.is_finite() && quantum >= 0.0) {
            Err(KnobError::Quantum { quantum })
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
