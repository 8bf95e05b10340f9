//! Limits and steps of a knob, and rounding to the steps without a lasting error.
//!
//! **Problem.** A control law asks for any number; a clock has nineteen settings. Plain rounding leaves an error of up
//! to half a step for good, unless an integrator drives the knob over the edge now and then, in a limit cycle as slow
//! and as wide as the loop's gains make it. Hysteresis keeps the knob still, and the error with it.
//!
//! **Method.** The rounding is carried: with the carry c, the sum of the rounding errors so far,
//!
//! ```text
//! s(k) = the one of the two settings around w(k) that is nearest to w(k) + c(k),    c(k+1) = c(k) + w(k) - s(k)
//! ```
//!
//! *Never wider than one step, right on average.* Let w stay between two neighbouring settings a gap g apart, and |c|
//! <= g/2. Only these two are candidates, so the knob moves by one step at most. If the lower one, a, is taken, w + c
//! is between a - g/2 and a + g/2, and the new carry w + c - a is within g/2 again; likewise for the upper one. Summed
//! up, the mean of n settings differs from the mean of what was asked for by (c(0) - c(n)) / n, at most g/n. When w
//! moves into another gap, the carry is cut to half of that gap.
//!
//! The price is a knob that changes at every sample at most, by one step. Where power is convex in the clock, going
//! back and forth between neighbours is the cheapest way to a mean between them; a change of the clock takes 140 us on
//! the Exynos 5422 (mainline's device tree), against samples of 100 ms. Noise shaping by error feedback is the known
//! name (Spang and Schultheiss, "Reduction of quantizing noise by use of feedback", 1962).

use crate::error::{ControlError, refused};
use crate::knob::Knob;

/// A knob with its limits and steps, and the carry of its rounding.
///
/// ```
/// use punctual_control::Actuator;
/// let clock = Actuator::on_steps(vec![0.8, 0.9, 1.0]).unwrap();
/// assert_eq!((clock.knob().min(), clock.knob().max(), clock.steps().len()), (0.8, 1.0, 3));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Actuator {
    knob: Knob,
    /// Ascending; empty for a knob whose rounding is left to the machine.
    steps: Vec<f64>,
    /// Sum of wanted minus set; at most half a gap.
    carry: f64,
}

impl From<Knob> for Actuator {
    /// Makes a knob with limits only.
    fn from(knob: Knob) -> Actuator {
        Actuator {
            knob,
            steps: Vec::new(),
            carry: 0.0,
        }
    }
}

impl Actuator {
    /// Makes a knob that has these settings and no others, in ascending order; its limits are the first and the last.
    ///
    /// # Errors
    /// [`ControlError`] for fewer than two settings, and for settings that are not finite or not ascending.
    pub fn on_steps(steps: Vec<f64>) -> Result<Actuator, ControlError> {
        let wrong = |index: usize| {
            let value = steps.get(index).copied().unwrap_or(f64::NAN);
            refused(format!(
                "setting {index} of a knob is {value}: give at least two settings, finite and ascending"
            ))
        };
        if steps.len() < 2 {
            return wrong(steps.len());
        }
        if let Some(index) = (0..steps.len()).find(|&i| !steps[i].is_finite() || (i > 0 && steps[i] <= steps[i - 1])) {
            return wrong(index);
        }
        let widest = steps.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        let knob = Knob::new(steps[0], steps[steps.len() - 1], widest)?;
        Ok(Actuator {
            steps,
            ..Actuator::from(knob)
        })
    }

    /// Limits of the knob, and its widest step.
    pub fn knob(&self) -> Knob {
        self.knob
    }

    /// The settings, ascending; empty for a knob without steps.
    pub fn steps(&self) -> &[f64] {
        &self.steps
    }

    /// Returns the setting for `wanted`, which lies within the limits, and carries the rounding.
    pub(crate) fn set(&mut self, wanted: f64) -> f64 {
        let Some((below, above)) = self.around(wanted) else {
            return wanted;
        };
        let half = 0.5 * (above - below);
        let carry = self.carry.clamp(-half, half);
        let set = if wanted + carry < below + half { below } else { above };
        self.carry = (carry + wanted - set).clamp(-half, half);
        set
    }

    /// Drops the carry: rounding starts anew.
    pub(crate) fn forget(&mut self) {
        self.carry = 0.0;
    }

    /// The neighbouring settings around `wanted`; on a setting and at the ends both are the same. `None` without steps.
    fn around(&self, wanted: f64) -> Option<(f64, f64)> {
        let last = self.steps.len().checked_sub(1)?;
        let above = self.steps.partition_point(|step| *step < wanted).min(last);
        let below = if self.steps[above] <= wanted {
            above
        } else {
            above.saturating_sub(1)
        };
        Some((self.steps[below], self.steps[above]))
    }
}
