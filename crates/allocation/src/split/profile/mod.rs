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
//! different neighbours are merged until few enough are left. Reasons: decision 7.

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
pub(crate) use error::require;
pub use error::{ReadError, SplitError};
pub use measured::{MeasuredRuns, Span};
pub use phases::Kinds;
pub use recording::{Fit, PHASES_MAX, ProfileOptions, ProfileRecording, load};
pub use smooth::Smoothing;
pub use timing::Timing;
pub use windows::{ProfileWindow, Windows};

use serde::{Deserialize, Serialize};

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

impl Profile {
    /// Checks the grid, order, ends and rates.
    ///
    /// # Errors
    /// [`SplitError`], the first one found.
    pub fn check(&self) -> Result<(), SplitError> {
        let Profile { name, grid, .. } = self;
        let Grid { ways, partitions } = *grid;
        require(grid.is_sound(), || {
            format!(
                "{name}: is for {ways} ways and {partitions} bandwidth partitions; \
                 1 to {PARTS_MAX} of each can be handled"
            )
        })?;
        let mut before = 0.0;
        for (number, Phase { ends, rates }) in self.phases.iter().enumerate() {
            require(*ends > before && *ends <= 1.0, || {
                format!("{name}: phase {number} ends at {ends}, after one that ends at {before}")
            })?;
            before = *ends;
            let table = rates.grid();
            require(table == *grid, || {
                format!("{name}: phase {number} has rates for {table:?}, the profile is for {grid:?}")
            })?;
            for share in grid.shares() {
                let rate = rates.rate(share);
                require(rate > 0.0 && rate.is_finite(), || {
                    format!("{name}: phase {number} has a rate of {rate} instructions per second with {share:?}")
                })?;
            }
        }
        require(before >= 1.0, || {
            format!("{name}: its phases end at {before} of a run, not at 1")
        })
    }

    /// The number of the phase that a run is in at `progress`; at the very end, the last.
    pub fn phase_at(&self, progress: f64) -> usize {
        self.phases
            .partition_point(|phase| phase.ends <= progress)
            .min(self.phases.len().saturating_sub(1))
    }

    /// Seconds of a whole run with `share` all along.
    pub fn duration(&self, share: Share) -> f64 {
        let mut at = 0.0;
        let mut seconds = 0.0;
        for phase in &self.phases {
            seconds += (phase.ends - at) * self.instructions / f64::from(phase.rates.rate(share));
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
            assert!(error.to_string().contains("can be handled"), "{error}");
        }
        assert_eq!(of(64, 64).check(), Ok(()));
    }
}
