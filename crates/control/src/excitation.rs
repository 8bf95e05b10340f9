//! Excitation: how to move several knobs at once so that a record separates their effects.
//!
//! **Problem.** The effects of two knobs that move together cannot be separated; every combination of their levels
//! should occur. Trying the combinations one after another in nested loops holds the outer knobs still for most of the
//! record, and a drifting workload then looks like their effect.
//!
//! **Method.** Relatively prime cycles (QeDB, section 4.3.1). Each knob runs through its own levels again and again,
//! one run lasting its *cycle length* in samples. If the lengths have no common factor, pairwise, then by the Chinese
//! remainder theorem every combination of positions within the cycles occurs exactly once per *period*, the product
//! of the lengths. Thus
//! - every combination of levels occurs in every window of one period, and
//! - over a period the knobs are uncorrelated, at every lag: the ideal for least squares.
//!
//! The theorem needs coprime cycle lengths, not coprime numbers of levels: a cycle need not be a multiple of its
//! number of levels. Some levels are then held for one sample longer than others, and two knobs with four levels each
//! (cycles of 4 and 5 samples, say) are possible.

use crate::error::{ControlError, refused, require};

/// Longest period accepted, in samples. At the shortest control period in use, 0.1 s, it would take over eleven days; a
/// longer one is a mistake in the levels.
const PERIOD_MAX: u64 = 10_000_000;

/// Part of one knob in an excitation.
#[derive(Clone, Debug, PartialEq)]
struct Cycle {
    /// Levels in the order in which they are set, in the knob's unit; at least two different ones.
    levels: Vec<f64>,
    /// Samples for one run through the levels, at least as many as levels.
    length: u64,
}

/// A plan that moves every knob through its levels so that all combinations occur.
#[derive(Clone, Debug, PartialEq)]
pub struct Excitation {
    cycles: Vec<Cycle>,
    period: u64,
}

impl Excitation {
    /// Makes the excitation with the shortest cycles that hold every level for at least `hold` samples (0 means 1):
    /// knob by knob, the first length that has no factor in common with those before.
    ///
    /// ```
    /// use punctual_control::Excitation;
    /// let clock = vec![1.0e9, 1.5e9, 2.0e9]; // Hz
    /// let admitted = vec![0.5, 0.75, 1.0];
    /// let plan = Excitation::covering(vec![clock, admitted], 2).unwrap();
    /// assert_eq!(plan.period(), 6 * 7);
    /// assert_eq!(plan.at(0), vec![1.0e9, 0.5]);
    /// assert_eq!(plan.at(41), vec![2.0e9, 1.0]);
    /// ```
    ///
    /// # Errors
    /// [`ControlError`] for missing levels and for a period beyond any record.
    pub fn covering(levels: Vec<Vec<f64>>, hold: u32) -> Result<Excitation, ControlError> {
        require(!levels.is_empty(), || {
            "there is no knob to excite: give the levels of at least one".into()
        })?;
        for (knob, levels) in levels.iter().enumerate() {
            check(knob, levels)?;
        }
        let too_long = || {
            ControlError::Refused(format!(
                "covering all combinations takes more than {PERIOD_MAX} samples: use fewer levels, or hold them for \
                 fewer samples"
            ))
        };
        let mut cycles: Vec<Cycle> = Vec::with_capacity(levels.len());
        let mut period = 1u64;
        for levels in levels {
            let shortest = (levels.len() as u64).saturating_mul(u64::from(hold.max(1)));
            let length = (shortest..=PERIOD_MAX)
                .find(|&length| cycles.iter().all(|other| common_factor(length, other.length) == 1))
                .ok_or_else(too_long)?;
            period *= length;
            if period > PERIOD_MAX {
                return Err(too_long());
            }
            cycles.push(Cycle { levels, length });
        }
        Ok(Excitation { cycles, period })
    }

    /// Samples until the levels repeat; a record of this length holds every combination of levels.
    pub fn period(&self) -> u64 {
        self.period
    }

    /// The level of each knob during sample `k`.
    pub fn at(&self, k: u64) -> Vec<f64> {
        self.cycles.iter().map(|cycle| cycle.level(k)).collect()
    }
}

impl Cycle {
    /// Position p of a cycle of length c over n levels has level floor(p n / c): each level for c/n samples, rounded
    /// up or down.
    fn level(&self, k: u64) -> f64 {
        let position = k % self.length;
        // Within bounds: position < length makes the quotient less than the number of levels; both fit in 64 bits
        // because the length is at most PERIOD_MAX and there are no more levels than that.
        self.levels[(position * self.levels.len() as u64 / self.length) as usize]
    }
}

fn check(knob: usize, levels: &[f64]) -> Result<(), ControlError> {
    if let Some(value) = levels.iter().find(|level| !level.is_finite()) {
        return refused(format!("knob {knob} has the level {value}: levels must be finite"));
    }
    require(levels.iter().any(|level| *level != levels[0]), || {
        format!("knob {knob} has fewer than two different levels: it would never move")
    })
}

/// The greatest common divisor, by Euclid.
fn common_factor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_factor(b, a % b) }
}
