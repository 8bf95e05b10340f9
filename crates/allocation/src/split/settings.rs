//! Settings of an allocator, and what makes them invalid.

use punctual_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::hysteresis::Refill;
use crate::policy::{PeriodicTask, Policy};
use crate::pool::Pool;
use crate::profile::{SplitError, require};
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

punctual_units::named! {
    /// The split that a dynamic policy begins with.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum Base by name {
        /// The best of the others for the task set at hand, by running it ahead ([`crate::ahead`]); where the best is
        /// not to lend at all, nothing is lent. Where refilling is free, or no task is known, that of `StaticFewest`.
        #[default]
        Ahead = "ahead",
        /// The same among static splits alone, where nothing can follow what jobs do: nothing is lent.
        AheadStatic = "ahead-static",
        /// The static split that overloads the fewest cores.
        StaticFewest = "static-fewest",
        /// The static split of the least total overload.
        StaticOverload = "static-overload",
        /// The static split of the least largest load.
        StaticBest = "static-best",
        /// The split that gives every core the same ways and bandwidth.
        Even = "equal",
    }
}

impl AllocatorSettings {
    /// Cost of a gained way, where the allocator looks ahead.
    pub(crate) fn looks(&self) -> Option<Refill> {
        let looks = matches!(self.base, Base::Ahead | Base::AheadStatic) && !self.policy.is_static();
        self.refill.filter(|_| looks)
    }

    /// The fifth paper's machine: [`Pool::PAPER`] among four cores, a decision at most every millisecond, reallocation
    /// free.
    pub const fn paper(policy: Policy) -> AllocatorSettings {
        AllocatorSettings {
            pool: Pool::PAPER,
            cores: 4,
            policy,
            base: Base::Ahead,
            refill: None,
            gap: Nanos::from_millis(1),
        }
    }

    /// Whether these programs and tasks can be allocated for.
    ///
    /// # Errors
    /// [`SplitError`] says what does not fit.
    pub fn check(&self, programs: &Programs, tasks: &[PeriodicTask]) -> Result<(), SplitError> {
        let AllocatorSettings {
            pool, cores, refill, ..
        } = *self;
        pool.check(cores)?;
        let (ours, theirs, count) = (pool.grid, programs.grid(), programs.len());
        require(ours == theirs, || {
            format!("the pool is of {ours:?}, the profiles are of {theirs:?}: they must be of one machine")
        })?;
        for (number, task) in tasks.iter().enumerate() {
            let PeriodicTask {
                program, core, period, ..
            } = *task;
            require(task.weight >= 0.0 && task.weight.is_finite(), || {
                format!(
                    "task {number} has a weight of {}: give a number of at least 0",
                    task.weight
                )
            })?;
            require(core < cores && program < count && task.window() > Nanos::ZERO, || {
                format!(
                    "task {number} is of program {program} on core {core} every {period}: there are {count} programs and \
                     {cores} cores, from 0, and a period or deadline is more than 0"
                )
            })?;
        }
        let positive = |value: f64| value > 0.0 && value.is_finite();
        refill.map_or(Ok(()), |refill| {
            let (way, partition) = (refill.way_bytes, refill.partition_bytes_per_second);
            require(positive(way) && positive(partition), || {
                format!(
                    "a refill of {way} bytes over {partition} bytes per second: give positive numbers, or no refill"
                )
            })
        })
    }
}
