//! Utilisation of each core by a task set, under each share.

use punctual_units::{Nanos, Time};
use serde::{Deserialize, Serialize};

use crate::grid::{Grid, Share};
use crate::programs::Programs;

/// A periodic task on its core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeriodicTask {
    /// Which program, by its place in [`Programs`].
    pub program: usize,
    /// Time between releases; more than 0.
    pub period: Nanos,
    /// From a release to its deadline; `None`: the period, [`Nanos::MAX`]: no deadline, and one job at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Nanos>,
    /// Time of each job beside its program; looking ahead takes it from the deadline, static splits do not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub data: Nanos,
    /// Which core runs it, from 0.
    pub core: usize,
    /// Priority on its core, 0 before all others; `None`: each core runs the earliest deadline first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// How much a late job of it counts against those of others, at least 0; 0: it has no deadline to keep.
    #[serde(default = "one")]
    pub weight: f64,
    /// Time of its first release.
    #[serde(default)]
    pub from: Time,
    /// Time from which on it releases none; [`Time::MAX`]: it stays.
    #[serde(default = "never")]
    pub until: Time,
}

fn is_zero(time: &Nanos) -> bool {
    *time == Nanos::ZERO
}

fn one() -> f64 {
    1.0
}

fn never() -> Time {
    Time::MAX
}

impl PeriodicTask {
    /// A task that is there from the start and stays, and counts as much as any other.
    pub const fn new(program: usize, period: Nanos, core: usize) -> PeriodicTask {
        PeriodicTask {
            program,
            period,
            deadline: None,
            data: Nanos::ZERO,
            core,
            rank: None,
            weight: 1.0,
            from: Time::ZERO,
            until: Time::MAX,
        }
    }

    /// Time in which a job must end: until its deadline, or the next release if that is earlier.
    pub fn window(&self) -> Nanos {
        self.deadline.unwrap_or(self.period).min(self.period)
    }

    /// Deadline of the program of a job that is released at `released`.
    pub(crate) fn due(&self, released: Time) -> Time {
        match self.deadline.unwrap_or(self.period) {
            Nanos::MAX => Time::MAX,
            deadline => released + (deadline - self.data).max(Nanos(1)),
        }
    }

    /// Whether it releases jobs at `now`.
    pub fn is_active(&self, now: Time) -> bool {
        (self.from..self.until).contains(&now)
    }

    /// Whether it comes or goes after `since` and until `now`.
    pub(crate) fn changes_within(&self, since: Time, now: Time) -> bool {
        [self.from, self.until].iter().any(|at| since < *at && *at <= now)
    }

    /// Time of the first release from `now` on; [`Time::MAX`]: none.
    pub(crate) fn release_from(&self, now: Time) -> Time {
        let periods = now.since(self.from).0.div_ceil(self.period.0);
        let next = self.from.0.saturating_add(periods.saturating_mul(self.period.0));
        if next < self.until.0 { Time(next) } else { Time::MAX }
    }
}

/// The tasks by which static splits are found: those with a weight, or all where none has one.
pub(crate) fn counted(tasks: &[PeriodicTask]) -> impl Iterator<Item = &PeriodicTask> {
    let weighed = tasks.iter().any(|task| task.weight > 0.0);
    tasks.iter().filter(move |task| !weighed || task.weight > 0.0)
}

/// The utilisation of each core under each share: the sum over its tasks of WCET(share) / window. A core keeps all
/// deadlines under EDF if this is at most 1; exactly then, where deadlines are periods.
#[derive(Clone, Debug, PartialEq)]
pub struct Loads {
    grid: Grid,
    /// For each core, by [`Grid::index`].
    cores: Vec<Vec<f64>>,
}

impl Loads {
    /// The loads of `tasks` on `cores` cores; tasks without weight count only where no other task is.
    ///
    /// # Panics
    /// If a task is on a core, or of a program, that does not exist.
    pub fn new(programs: &Programs, tasks: &[PeriodicTask], cores: usize) -> Loads {
        let mut loads = Loads::none(programs.grid(), cores);
        counted(tasks).for_each(|task| loads.add(programs, task));
        loads
    }

    /// The loads of no task.
    pub(crate) fn none(grid: Grid, cores: usize) -> Loads {
        let cores = vec![vec![0.0; grid.len()]; cores];
        Loads { grid, cores }
    }

    /// Adds the load of `task`.
    pub(crate) fn add(&mut self, programs: &Programs, task: &PeriodicTask) {
        let window = task.window().as_secs_f64();
        for (load, share) in self.cores[task.core].iter_mut().zip(self.grid.shares()) {
            *load += programs.duration(task.program, share) / window;
        }
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// The utilisation of `core` with `share`, 0 without tasks.
    pub fn at(&self, core: usize, share: Share) -> f64 {
        self.cores[core][self.grid.index(share)]
    }

    /// The largest utilisation of any core under `shares`.
    pub fn largest(&self, shares: &[Share]) -> f64 {
        self.each(shares).fold(0.0, f64::max)
    }

    /// The utilisation of each core under `shares`.
    pub fn each<'a>(&'a self, shares: &'a [Share]) -> impl Iterator<Item = f64> + 'a {
        shares.iter().enumerate().map(|(core, share)| self.at(core, *share))
    }
}
