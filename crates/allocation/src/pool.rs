//! Ways and bandwidth to hand out, and the least that each core gets of them.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use thiserror::Error;

use crate::grid::{Grid, PARTS_MAX, Share};

/// Most cores that split one cache: the size of a decision's tables.
pub const CORES_MAX: usize = 16;

/// Values for all cores, stored inline: a decision must not wait for the memory allocator.
pub type PerCore<T> = SmallVec<[T; CORES_MAX]>;

/// Ways and bandwidth to hand out, and the least that each core gets of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Resources of the whole machine.
    pub grid: Grid,
    /// Least share of a core while a job runs on it.
    pub least: Share,
    /// Least share of a core while nothing runs on it; at most `least`. At least 1 way and 1 partition, because a mask
    /// of ways is never empty.
    pub idle: Share,
}

/// A pool that is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PoolError {
    /// No cores, or too many.
    #[error("{cores} cores: give 1 to {CORES_MAX}")]
    Cores { cores: usize },
    /// Nothing to split, or more than the tables of a decision hold.
    #[error("{} ways and {} partitions to split: give 1 to {PARTS_MAX} of each", grid.ways, grid.partitions)]
    Grid { grid: Grid },
    /// Less than each core's least.
    #[error(
        "{cores} cores with at least {} ways and {} partitions each need more than the {} ways and {} partitions that \
         there are: lower the least share, or use fewer cores",
        least.ways, least.partitions, grid.ways, grid.partitions
    )]
    TooLittle {
        cores: usize,
        /// Least share of each core.
        least: Share,
        grid: Grid,
    },
    /// A least share of nothing, or idle cores that keep more than busy ones.
    #[error(
        "idle cores keep {idle:?} and busy ones at least {least:?}: give 1 or more, and idle cores no more than busy \
         ones"
    )]
    Least {
        /// Least share of busy cores.
        least: Share,
        /// Least share of idle cores.
        idle: Share,
    },
}

impl Pool {
    /// The fifth paper's machine: 20 ways, 20 partitions, at least 3 ways for whatever runs (section VII, against
    /// thrashing). Its least bandwidth is not stated: 1 partition here. Idle cores keep what a mask needs.
    pub const PAPER: Pool = Pool {
        grid: Grid::PAPER,
        least: Share { ways: 3, partitions: 1 },
        idle: Share { ways: 1, partitions: 1 },
    };

    /// Whether `cores` cores can split this.
    ///
    /// # Errors
    /// [`PoolError`] says what is missing.
    pub fn check(&self, cores: usize) -> Result<(), PoolError> {
        let Pool { grid, least, idle } = *self;
        if !(1..=CORES_MAX).contains(&cores) {
            return Err(PoolError::Cores { cores });
        }
        if !grid.is_sound() {
            return Err(PoolError::Grid { grid });
        }
        let none = idle.ways == 0 || idle.partitions == 0;
        if none || idle.ways > least.ways || idle.partitions > least.partitions {
            return Err(PoolError::Least { least, idle });
        }
        let enough = |each: u8, all: u8| cores * usize::from(each) <= usize::from(all);
        if !(enough(least.ways, grid.ways) && enough(least.partitions, grid.partitions)) {
            return Err(PoolError::TooLittle { cores, least, grid });
        }
        Ok(())
    }

    /// Resources left to hand out once `busy` cores have their least and `idle` ones theirs.
    pub(crate) fn spare(&self, busy: usize, idle: usize) -> Spare {
        let left = |all: u8, least: u8, kept: u8| {
            let taken = busy * usize::from(least) + idle * usize::from(kept);
            usize::from(all).saturating_sub(taken)
        };
        Spare {
            ways: left(self.grid.ways, self.least.ways, self.idle.ways),
            partitions: left(self.grid.partitions, self.least.partitions, self.idle.partitions),
        }
    }
}

/// Resources that have not been handed out yet; either may be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spare {
    pub ways: usize,
    pub partitions: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_must_be_enough_for_all() {
        let pool = Pool::PAPER;
        assert_eq!(pool.check(6), Ok(()));
        assert!(matches!(pool.check(7), Err(PoolError::TooLittle { cores: 7, .. })));
        assert!(matches!(pool.check(0), Err(PoolError::Cores { .. })));
        for grid in [(0, 20), (20, 0), (65, 20), (20, 65)].map(|(ways, partitions)| Grid { ways, partitions }) {
            assert_eq!(Pool { grid, ..pool }.check(1), Err(PoolError::Grid { grid }));
        }
        let greedy_idlers = Pool {
            idle: Share { ways: 4, partitions: 1 },
            ..pool
        };
        assert!(matches!(greedy_idlers.check(4), Err(PoolError::Least { .. })));
    }

    #[test]
    fn what_is_spare_and_what_is_least_make_up_the_grid() {
        let spare = Pool::PAPER.spare(3, 1);
        assert_eq!((spare.ways, spare.partitions), (20 - 9 - 1, 20 - 3 - 1));
    }
}
