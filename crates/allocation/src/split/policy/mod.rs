//! Policies that decide each core's share, one file each.
//!
//! **Static** policies split once, from the utilisation of each core ([`Loads`]): [`equal`], and those of `statics`.
//! **Dynamic** policies split anew whenever a core changes its job or its
//! phase: [`dna`], [`dadna`] and [`Exact`]. They give each core only what raises its rate: partitions from which no
//! core gains stay spare, and [`crate::Allocator`] leaves them where they were.
//!
//! All of them keep to a [`Pool`]: no core under its least, no resource beyond what there is.

mod dadna;
mod dna;
mod equal;
mod exact;
pub(crate) mod loads;
pub(crate) mod optimum;
mod rescue;
mod statics;
pub(crate) mod surface;

pub use dadna::dadna;
pub use dna::dna;
pub use equal::equal;
pub use exact::{Exact, PAIR_BYTES_MAX};
pub use loads::{Loads, PeriodicTask};
pub(crate) use rescue::{Outlook, rescued};
use serde::{Deserialize, Serialize};

use crate::grid::Share;
use crate::levels::Levels;
use crate::pool::{PerCore, Pool};
use crate::programs::Programs;
use crate::running::RunningJob;

punctual_units::named! {
    /// Policy that splits a machine.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum Policy by name {
        /// Every core the same, once.
        Equal = "equal",
        /// The static split with the least largest utilisation, by exhaustion.
        StaticBest = "static-best",
        /// The static split of the least total overload, by exhaustion.
        StaticOverload = "static-overload",
        /// The static split that overloads the fewest cores, by exhaustion.
        StaticFewest = "static-fewest",
        /// [`dna`]: one partition at a time to the largest average gain.
        Dna = "dna",
        /// Jobs first that would otherwise be late, at the cost of jobs that can afford it: [`dadna`].
        Dadna = "dadna",
        /// The largest summed rate that there is: [`Exact`].
        Exact = "exact",
    }
}

impl Policy {
    /// The policy of this [`Policy::name`].
    pub fn named(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether the policy splits once and for all.
    pub fn is_static(self) -> bool {
        !matches!(self, Policy::Dna | Policy::Dadna | Policy::Exact)
    }
}

/// The jobs that run, apart from the cores that rest: what dynamic policies see.
#[derive(Clone, Debug)]
pub(crate) struct Busy<'a> {
    pub pool: Pool,
    /// Core and job of each busy core.
    pub jobs: PerCore<(usize, &'a RunningJob<'a>)>,
    /// Rates of each job's phase.
    pub levels: PerCore<&'a Levels>,
    cores: usize,
}

impl<'a> Busy<'a> {
    pub fn of(programs: &'a Programs, pool: Pool, cores: &'a [Option<RunningJob<'a>>]) -> Busy<'a> {
        let jobs: PerCore<_> = cores
            .iter()
            .enumerate()
            .filter_map(|(core, job)| job.as_ref().map(|job| (core, job)))
            .collect();
        let levels = jobs
            .iter()
            .map(|(_, job)| programs.levels(job.program, job.progress))
            .collect();
        Busy {
            pool,
            jobs,
            levels,
            cores: cores.len(),
        }
    }

    /// Resources left when every core has its least.
    pub fn spare(&self) -> crate::pool::Spare {
        self.pool.spare(self.jobs.len(), self.cores - self.jobs.len())
    }

    /// Every busy core's least.
    pub fn least(&self) -> PerCore<Share> {
        PerCore::from_elem(self.pool.least, self.jobs.len())
    }

    /// The shares of all cores, from those of the busy ones.
    pub fn spread(&self, shares: &[Share]) -> PerCore<Share> {
        let mut all = PerCore::from_elem(self.pool.idle, self.cores);
        for ((core, _), share) in self.jobs.iter().zip(shares) {
            all[*core] = *share;
        }
        all
    }
}

/// The summed level of the rates at `progress` with `shares`: what [`dna`] and [`Exact`] make large. Idle cores add
/// nothing. In units of [`crate::LEVELS`].
pub fn summed(programs: &Programs, cores: &[Option<RunningJob<'_>>], shares: &[Share]) -> i64 {
    let level = |(job, share): (&Option<RunningJob<'_>>, &Share)| {
        job.as_ref().map_or(0, |job| {
            i64::from(programs.levels(job.program, job.progress).at(*share))
        })
    };
    cores.iter().zip(shares).map(level).sum()
}
