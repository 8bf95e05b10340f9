//! How an allocator decides, and what settings cannot be.

use punctual_units::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::grid::Grid;
use crate::hysteresis::Refill;
use crate::policy::{Policy, Task};
use crate::pool::{Pool, PoolError};
use crate::programs::Programs;

/// How an [`crate::Allocator`] decides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// What is handed out.
    pub pool: Pool,
    /// Among how many cores, 1..=[`crate::CORES_MAX`].
    pub cores: usize,
    /// By which policy.
    pub policy: Policy,
    /// What a dynamic policy begins with, and, where refilling costs, is never slower than.
    pub base: Base,
    /// What a gained way costs; nothing if none.
    pub refill: Option<Refill>,
    /// Least time between two decisions.
    pub gap: Nanos,
}

/// The split that a dynamic policy begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Base {
    /// The static split that overloads the fewest cores: for periodic tasks whose jobs are all to be in time.
    #[default]
    StaticFewest,
    /// As much for every core: where not every task has a deadline, so that balancing loads would slow those that have.
    Even,
}

impl Settings {
    /// The fifth paper's machine: [`Pool::PAPER`] among four cores, a decision at most every millisecond, reallocation
    /// free.
    pub const fn paper(policy: Policy) -> Settings {
        Settings {
            pool: Pool::PAPER,
            cores: 4,
            policy,
            base: Base::StaticFewest,
            refill: None,
            gap: Nanos::from_millis(1),
        }
    }

    /// Whether these programs and tasks can be allocated for.
    ///
    /// # Errors
    /// [`SettingsError`] says what does not fit.
    pub fn check(&self, programs: &Programs, tasks: &[Task]) -> Result<(), SettingsError> {
        let Settings {
            pool, cores, refill, ..
        } = *self;
        pool.check(cores)?;
        if pool.grid != programs.grid() {
            return Err(SettingsError::OtherGrid {
                pool: pool.grid,
                profiles: programs.grid(),
            });
        }
        for (number, task) in tasks.iter().enumerate() {
            if task.core >= cores || task.program >= programs.len() || task.period == Nanos::ZERO {
                return Err(SettingsError::Task {
                    task: number,
                    program: task.program,
                    core: task.core,
                    period: task.period,
                    programs: programs.len(),
                    cores,
                });
            }
        }
        if let Some(Refill {
            way_bytes,
            partition_bytes_per_second,
        }) = refill
        {
            let positive = |value: f64| value > 0.0 && value.is_finite();
            if !(positive(way_bytes) && positive(partition_bytes_per_second)) {
                return Err(SettingsError::Refill {
                    way_bytes,
                    partition_bytes_per_second,
                });
            }
        }
        Ok(())
    }
}

/// Settings that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum SettingsError {
    /// Too little for so many cores.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A pool of another machine than the profiles'.
    #[error("the pool is of {pool:?}, the profiles are of {profiles:?}: they must be of one machine")]
    OtherGrid {
        /// The pool's.
        pool: Grid,
        /// The profiles'.
        profiles: Grid,
    },
    /// A task on a core, or of a program, that does not exist, or without a period.
    #[error(
        "task {task} is of program {program} on core {core} every {period}: there are {programs} programs and {cores} cores, from 0, and a period is more than 0"
    )]
    Task {
        /// Which task, from 0.
        task: usize,
        /// Of which program.
        program: usize,
        /// On which core.
        core: usize,
        /// How often.
        period: Nanos,
        /// How many programs there are.
        programs: usize,
        /// How many cores there are.
        cores: usize,
    },
    /// A refill that costs nothing or less.
    #[error(
        "a refill of {way_bytes} bytes over {partition_bytes_per_second} bytes per second: give positive numbers, or no refill"
    )]
    Refill {
        /// Bytes of a way.
        way_bytes: f64,
        /// Bytes per second of a partition.
        partition_bytes_per_second: f64,
    },
}
