//! Ways and bandwidth to hand out, and the least that each core gets of them.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::grid::{Grid, PARTS_MAX, Share};
use crate::profile::{SplitError, require};

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
    /// [`SplitError`] says what is missing.
    pub fn check(&self, cores: usize) -> Result<(), SplitError> {
        let Pool { grid, least, idle } = *self;
        require((1..=CORES_MAX).contains(&cores), || {
            format!("{cores} cores: give 1 to {CORES_MAX}")
        })?;
        let Grid { ways, partitions } = grid;
        require(grid.is_sound(), || {
            format!("{ways} ways and {partitions} partitions to split: give 1 to {PARTS_MAX} of each")
        })?;
        let some = idle.ways > 0 && idle.partitions > 0;
        let at_most = idle.ways <= least.ways && idle.partitions <= least.partitions;
        require(some && at_most, || {
            format!(
                "idle cores keep {idle:?} and busy ones at least {least:?}: give 1 or more, and idle cores no more \
                 than busy ones"
            )
        })?;
        let enough = |each: u8, all: u8| cores * usize::from(each) <= usize::from(all);
        require(enough(least.ways, ways) && enough(least.partitions, partitions), || {
            format!(
                "{cores} cores with at least {} ways and {} partitions each need more than the {ways} ways and \
                 {partitions} partitions that there are: lower the least share, or use fewer cores",
                least.ways, least.partitions
            )
        })
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

/// Resources that have not been handed out yet, or a part of them; either may be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spare {
    pub ways: usize,
    pub partitions: usize,
}

/// Cells number the parts of this: by ways, then by partitions.
impl Spare {
    pub fn cells(self) -> usize {
        (self.ways + 1) * (self.partitions + 1)
    }

    pub fn cell(self, part: Spare) -> usize {
        part.ways * (self.partitions + 1) + part.partitions
    }

    pub fn part(self, cell: usize) -> Spare {
        Spare {
            ways: cell / (self.partitions + 1),
            partitions: cell % (self.partitions + 1),
        }
    }

    /// The rest after `part` was taken.
    pub fn without(self, part: Spare) -> Spare {
        Spare {
            ways: self.ways - part.ways,
            partitions: self.partitions - part.partitions,
        }
    }

    /// Share of a core that gets all of this beyond `least`.
    pub fn beyond(self, least: Share) -> Share {
        Share {
            ways: least.ways + self.ways as u8,
            partitions: least.partitions + self.partitions as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_must_be_enough_for_all() {
        let pool = Pool::PAPER;
        assert_eq!(pool.check(6), Ok(()));
        let why = |pool: Pool, cores| pool.check(cores).unwrap_err().0;
        assert!(why(pool, 7).starts_with("7 cores with at least 3 ways"));
        assert!(why(pool, 0).starts_with("0 cores: give"));
        for grid in [(0, 20), (20, 0), (65, 20), (20, 65)].map(|(ways, partitions)| Grid { ways, partitions }) {
            assert!(why(Pool { grid, ..pool }, 1).ends_with("of each"));
        }
        let greedy_idlers = Pool {
            idle: Share { ways: 4, partitions: 1 },
            ..pool
        };
        assert!(why(greedy_idlers, 4).starts_with("idle cores keep"));
    }

    #[test]
    fn what_is_spare_and_what_is_least_make_up_the_grid() {
        let spare = Pool::PAPER.spare(3, 1);
        assert_eq!((spare.ways, spare.partitions), (20 - 9 - 1, 20 - 3 - 1));
    }
}
