//! A program as an allocator sees it: its phases and their rates, and where these come from.
//!
//! **Problem.** A recording says more than an allocator can use: a rate for each of 400 shares at thousands of places.
//! An allocator wants few phases, the same for all shares, because it decides where any share's rate changes.
//!
//! **Terms.** A [`ProfileRecording`] is a profile's file: [`MeasuredRuns`], one under each share, or [`Windows`] with
//! the misses of a trace, which a [`Timing`] model turns into rates. Its [`Course`] says how long each stretch of
//! progress takes under each share. A [`Profile`] is its summary in at most [`PHASES_MAX`] phases, and [`Accuracy`]
//! what that costs.
//!
//! **Method.** The fifth paper's (section IV): windows of like behaviour form clusters, runs of one cluster are phases.
//! Measured files come with their clusters. Where a phase begins under any share, a joint one does; of these the least
//! different neighbours are merged until few enough are left. Decision record: `docs/decisions/0007-phases.md`.

mod accuracy;
mod course;
mod error;
mod measured;
mod merge;
mod phases;
mod recording;
mod rows;
mod smooth;
mod timing;
mod windows;

pub use accuracy::Accuracy;
pub use course::Course;
pub use error::{Problem, ReadError};
pub use measured::{MeasuredRuns, Span};
pub use phases::Kinds;
pub use recording::{Fit, PHASES_MAX, ProfileOptions, ProfileRecording, load};
pub use smooth::Smoothing;
pub use timing::Timing;
pub use windows::{ProfileWindow, Windows};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::grid::{Grid, PARTS_MAX, Share};
use crate::table::RateTable;

/// A program's phases, joint for all shares of the machine that it was profiled for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Which program, on which input.
    pub name: String,
    /// Grid of the machine where it was profiled.
    pub grid: Grid,
    /// Instructions of a whole run under the largest share.
    pub instructions: f64,
    /// In order; the last ends at progress 1.
    pub phases: Vec<Phase>,
}

/// A range of progress with one rate for each share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Progress at its end, in (0, 1].
    pub ends: f64,
    /// Rate under each share, in instructions per second.
    pub rates: RateTable,
}

/// Why a profile is invalid.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ProfileError {
    /// A machine with nothing to split, or more than can be handled.
    #[error("{name}: is for {} ways and {} bandwidth partitions; 1 to {PARTS_MAX} of each can be handled", grid.ways, grid.partitions)]
    Grid {
        name: String,
        /// Grid of the profile.
        grid: Grid,
    },
    /// Phases must be in order and end at 1.
    #[error("{name}: phase {phase} ends at {ends}, after one that ends at {before}")]
    Order {
        name: String,
        /// Which phase, from 0.
        phase: usize,
        /// Progress at the phase's end.
        ends: f64,
        /// Progress at the end of the phase before.
        before: f64,
    },
    /// A program without phases, or whose last phase ends early.
    #[error("{name}: its phases end at {ends} of a run, not at 1")]
    Unfinished {
        name: String,
        /// Progress at the last phase's end.
        ends: f64,
    },
    /// A rate must be positive and finite.
    #[error("{name}: phase {phase} has a rate of {rate} instructions per second with {share:?}")]
    Rate {
        name: String,
        /// Which phase, from 0.
        phase: usize,
        /// Share with the wrong rate.
        share: Share,
        /// Rate in instructions per second.
        rate: f32,
    },
    /// A table of another machine.
    #[error("{name}: phase {phase} has rates for {table:?}, the profile is for {grid:?}")]
    OtherGrid {
        name: String,
        /// Which phase, from 0.
        phase: usize,
        /// Grid of the phase's table.
        table: Grid,
        /// Grid of the profile.
        grid: Grid,
    },
}

impl Profile {
    /// Checks the grid, order, ends and rates.
    ///
    /// # Errors
    /// [`ProfileError`], the first one found.
    pub fn check(&self) -> Result<(), ProfileError> {
        let name = || self.name.clone();
        if !self.grid.is_sound() {
            return Err(ProfileError::Grid {
                name: name(),
                grid: self.grid,
            });
        }
        let mut before = 0.0;
        for (number, phase) in self.phases.iter().enumerate() {
            if !(phase.ends > before && phase.ends <= 1.0) {
                return Err(ProfileError::Order {
                    name: name(),
                    phase: number,
                    ends: phase.ends,
                    before,
                });
            }
            before = phase.ends;
            if phase.rates.grid() != self.grid {
                return Err(ProfileError::OtherGrid {
                    name: name(),
                    phase: number,
                    table: phase.rates.grid(),
                    grid: self.grid,
                });
            }
            for share in self.grid.shares() {
                let rate = phase.rates.rate(share);
                if !(rate > 0.0 && rate.is_finite()) {
                    return Err(ProfileError::Rate {
                        name: name(),
                        phase: number,
                        share,
                        rate,
                    });
                }
            }
        }
        if before < 1.0 {
            return Err(ProfileError::Unfinished {
                name: name(),
                ends: before,
            });
        }
        Ok(())
    }

    /// The number of the phase that a run is in at `progress`; at the very end, the last.
    pub fn phase_at(&self, progress: f64) -> usize {
        self.phases
            .partition_point(|phase| phase.ends <= progress)
            .min(self.phases.len().saturating_sub(1))
    }

    /// Seconds of a whole run with `share` all along.
    pub fn duration(&self, share: Share) -> f64 {
        self.remaining(0.0, share)
    }

    /// Seconds from `progress` to the end with `share` all along (the fifth paper's *TimeLeft*).
    pub fn remaining(&self, progress: f64, share: Share) -> f64 {
        let from = self.phase_at(progress);
        let mut at = progress;
        let mut seconds = 0.0;
        for phase in &self.phases[from..] {
            seconds += (phase.ends - at).max(0.0) * self.instructions / f64::from(phase.rates.rate(share));
            at = phase.ends;
        }
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_of_a_machine_that_can_be() {
        let of = |ways, partitions| {
            let grid = Grid { ways, partitions };
            let phase = Phase {
                ends: 1.0,
                rates: RateTable::new(grid, |_| 1e9),
            };
            Profile {
                name: "even".into(),
                grid,
                instructions: 1e9,
                phases: vec![phase],
            }
        };
        for (ways, partitions) in [(0, 4), (4, 0), (65, 4), (4, 65)] {
            let error = of(ways, partitions).check().unwrap_err();
            assert!(matches!(error, ProfileError::Grid { .. }), "{error}");
        }
        assert_eq!(of(64, 64).check(), Ok(()));
    }
}
