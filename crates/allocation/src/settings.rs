//! Settings of an allocator, and what makes them invalid.

use punctual_units::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::grid::Grid;
use crate::hysteresis::Refill;
use crate::policy::{PeriodicTask, Policy};
use crate::pool::{Pool, PoolError};
use crate::programs::Programs;

/// How an [`crate::Allocator`] decides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllocatorSettings {
    /// Resources that are handed out.
    pub pool: Pool,
    /// Number of cores, 1..=[`crate::CORES_MAX`].
    pub cores: usize,
    pub policy: Policy,
    /// Split that a dynamic policy begins with; where refilling costs, also the reference that it must not fall behind.
    pub base: Base,
    /// Cost of a gained way; `None`: free.
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

impl AllocatorSettings {
    /// The fifth paper's machine: [`Pool::PAPER`] among four cores, a decision at most every millisecond, reallocation
    /// free.
    pub const fn paper(policy: Policy) -> AllocatorSettings {
        AllocatorSettings {
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
    pub fn check(&self, programs: &Programs, tasks: &[PeriodicTask]) -> Result<(), SettingsError> {
        let AllocatorSettings {
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

/// Why settings are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum SettingsError {
    /// A pool that does not suffice for the cores.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A pool of another machine than the profiles'.
    #[error("the pool is of {pool:?}, the profiles are of {profiles:?}: they must be of one machine")]
    OtherGrid {
        /// Grid of the pool.
        pool: Grid,
        /// Grid of the profiles.
        profiles: Grid,
    },
    /// A task on a core, or of a program, that does not exist, or without a period.
    #[error(
        "task {task} is of program {program} on core {core} every {period}: there are {programs} programs and {cores} cores, from 0, and a period is more than 0"
    )]
    Task {
        /// Which task, from 0.
        task: usize,
        /// Program of the task, from 0.
        program: usize,
        /// Core of the task, from 0.
        core: usize,
        /// Period of the task.
        period: Nanos,
        programs: usize,
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
