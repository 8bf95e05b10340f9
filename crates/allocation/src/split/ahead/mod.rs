//! Which split to start from, and whether to lend at all: the task set is run ahead under each candidate.
//!
//! **Problem.** What lending keeps to is a split that never changes, its *base*. No formula over utilisations finds the
//! best one: the split that overloads the fewest cores is best for some task sets and tens of points behind for others,
//! and for some any lending is worse than the best split as it stands.
//!
//! **Method.** Candidates are the static splits ([`SPLITS`]), each as it is and each as the base of the rule that lends
//! ([`super::hysteresis`]). The set is run under all of them in a model of the machine, for the longer of
//! [`HORIZON`] and [`PERIODS`] of its longest period. Taken is the candidate with the fewest late jobs by weight; among
//! equals the one of the least sum of response times; among those the first, so that nothing is lent in vain.
//!
//! **Bound.** A unit of work is one event of the model; a decision of the rule counts as `DECISION` units, and finding
//! the splits is counted likewise. Candidates advance in `STEPS` steps, the one that is behind first. At [`WORK_MAX`]
//! units of the model the looking ahead ends, and the last step counts that all have done. Pieces of any size
//! ([`Ahead::advance`]) have one result, so that a replay needs none.
//!
//! **Not foreseen**: jobs that come later than their period says, or compute less than their profile; tasks without a
//! profile; the store's updates and locks. The clock is the full one at the start of a run, and later that at the
//! begin of the look.

mod candidates;
mod model;

use std::fmt;

use punctual_units::{Nanos, Time};

use candidates::Candidates;
pub use model::JobCounts;
use model::Model;

use crate::allocator::{CoreShares, aim};
use crate::hysteresis::{Keeper, Refill};
use crate::policy::{PeriodicTask, equal};
use crate::pool::PerCore;
use crate::programs::Programs;
use crate::running::RunningJob;
use crate::settings::{AllocatorSettings, Base};

/// Least model time to run ahead.
pub const HORIZON: Nanos = Nanos::from_secs(30);
/// Periods of the rarest task to run ahead, at least.
pub const PERIODS: u64 = 3;
/// Most units of work of one look ahead: some seconds of a core. Beginning a candidate and finding the splits are not
/// among them.
pub const WORK_MAX: u64 = 5_000_000;
/// Units of work of a decision, beside one for each job that waits.
const DECISION: u64 = 16;
/// Units of work of beginning a candidate, and jobs beside which a count of one takes a unit.
const BEGIN: u64 = 32;
/// Most jobs that a model keeps; further ones count as late at once.
const AHEAD_JOBS_MAX: usize = 4096;
/// Steps in which the candidates advance side by side.
const STEPS: u64 = 128;

/// The static splits, in the order in which equals are taken.
pub const SPLITS: [Base; 4] = [Base::StaticFewest, Base::StaticOverload, Base::StaticBest, Base::Even];

/// Result of a look ahead.
#[derive(Clone, Debug, PartialEq)]
pub struct Foresight {
    /// Split to start from.
    pub base: Base,
    /// Shares and ways of that split.
    pub plan: CoreShares,
    /// Whether bandwidth and ways are lent from there.
    pub lends: bool,
    /// Jobs of each core, as foreseen.
    pub cores: PerCore<JobCounts>,
    /// Time from which on the set was run.
    pub begun: Time,
    /// Model time that all candidates were run for; 0: the bound came first, and nothing is foreseen.
    pub seen: Nanos,
    /// Work that the look took, in units.
    pub work: u64,
}

impl fmt::Display for Foresight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lent = if self.lends {
            "lent from there"
        } else {
            "nothing is lent"
        };
        let base = self.base.name();
        write!(f, "ways and bandwidth split as {base}, {lent}; ")?;
        if self.seen == Nanos::ZERO {
            return f.write_str("late jobs are not foreseen");
        }
        let clock = if self.begun == Time::ZERO {
            "full clock"
        } else {
            "the clock then"
        };
        write!(f, "foreseen for {:.0} s at {clock}: ", self.seen.as_secs_f64())?;
        if self.cores.iter().all(|core| core.due == 0) {
            return f.write_str("none of the foreseen tasks has a deadline in that time");
        }
        let mut late = { self.cores.iter().enumerate() }
            .filter(|(_, core)| core.late > 0)
            .peekable();
        if late.peek().is_none() {
            return f.write_str("no job will be late");
        }
        for (number, (core, JobCounts { due, late, .. })) in late.enumerate() {
            let (comma, percent) = (if number > 0 { "; " } else { "" }, *late as f64 * 100.0 / *due as f64);
            let digits = usize::from(percent < 1.0);
            let (less, percent) = if percent < 0.1 { ("< ", 0.1) } else { ("", percent) };
            write!(
                f,
                "{comma}core {core}: {less}{percent:.digits$} % of its jobs will be late"
            )?;
        }
        Ok(())
    }
}

/// The tasks that release jobs at `now`.
pub(crate) fn active(tasks: &[PeriodicTask], now: Time) -> Vec<PeriodicTask> {
    tasks.iter().filter(|task| task.is_active(now)).copied().collect()
}

/// The task set under one candidate.
#[derive(Clone, Debug)]
struct Run {
    base: Base,
    plan: CoreShares,
    /// Decides, where the candidate lends.
    keeper: Option<Box<Keeper>>,
    model: Model,
    /// Counts of each core after each step.
    marks: Vec<Vec<JobCounts>>,
}

/// A look ahead, under way.
#[derive(Clone, Debug)]
pub struct Ahead {
    settings: AllocatorSettings,
    refill: Refill,
    /// The machine at the begin, and the split in force.
    model: Model,
    in_force: Option<CoreShares>,
    slowdown: f64,
    /// Finds the splits; `None`: they are found.
    candidates: Option<Candidates>,
    splits: Vec<(Base, CoreShares)>,
    runs: Vec<Run>,
    /// Index of the candidate that advances.
    at: usize,
    begun: Time,
    /// Length of a step.
    step: Nanos,
    work: u64,
    work_max: u64,
}

impl Ahead {
    /// Looks ahead from `now`, with the jobs that are on `cores` and the split `in_force` (`None`: the candidate's),
    /// for those of `tasks` that release jobs then. `settings` are checked; gained ways cost `refill`.
    pub fn new(
        programs: &Programs,
        tasks: &[PeriodicTask],
        (settings, refill): (&AllocatorSettings, Refill),
        in_force: Option<&CoreShares>,
        cores: &[Option<RunningJob<'_>>],
        now: Time,
    ) -> Ahead {
        let tasks = active(tasks, now);
        let longest = tasks.iter().map(|task| task.period).max().unwrap_or_default();
        let AllocatorSettings { pool, gap, .. } = *settings;
        let any = CoreShares::side_by_side(equal(pool, settings.cores));
        Ahead {
            candidates: Some(Candidates::new(&tasks, pool, settings.cores)),
            settings: *settings,
            refill,
            model: Model::new(&tasks, cores, in_force.unwrap_or(&any), (refill, gap), now),
            in_force: in_force.cloned(),
            slowdown: programs.slowdown(),
            splits: Vec::new(),
            runs: Vec::new(),
            at: 0,
            begun: now,
            step: Nanos(HORIZON.max(Nanos(longest.0.saturating_mul(PERIODS))).0 / STEPS),
            work: 0,
            work_max: WORK_MAX,
        }
    }

    /// Replaces [`WORK_MAX`] by `work_max`.
    #[must_use]
    pub fn within(self, work_max: u64) -> Ahead {
        Ahead { work_max, ..self }
    }

    /// [`Programs::slowdown`] at the begin, which holds for the whole look.
    pub fn slowdown(&self) -> f64 {
        self.slowdown
    }

    /// Does about `left` units of work, and returns the result once there is one. `programs` are as at the begin.
    pub fn advance(&mut self, programs: &Programs, mut left: u64) -> Option<Foresight> {
        while left > 0 {
            if let Some(candidates) = &mut self.candidates {
                self.splits = candidates.advance(programs, &mut left)?;
                self.candidates = None;
                continue;
            }
            let lends = usize::from(self.settings.base == Base::Ahead);
            if self.runs.len() < self.splits.len() * (1 + lends) {
                self.runs.push(self.begin(programs, self.runs.len()));
                left = left.saturating_sub(BEGIN);
                continue;
            }
            let run = &mut self.runs[self.at];
            let end = self.begun + self.step * (run.marks.len() as u64 + 1);
            if run.model.now() < end {
                if self.work >= self.work_max {
                    return Some(self.result());
                }
                let work = run.pass(programs, end);
                (self.work, left) = (self.work + work, left.saturating_sub(work));
                continue;
            }
            run.marks.push(run.model.counts().collect());
            left = left.saturating_sub(1 + run.model.jobs() as u64 / BEGIN);
            let behind = (0..self.runs.len()).min_by_key(|&run| self.runs[run].marks.len());
            self.at = behind.unwrap_or(0);
            if self.runs[self.at].marks.len() as u64 >= STEPS {
                return Some(self.result());
            }
        }
        None
    }

    /// Begins with a candidate: first the splits as they are, then each with lending.
    fn begin(&self, programs: &Programs, number: usize) -> Run {
        let AllocatorSettings { pool, gap, policy, .. } = self.settings;
        let (base, plan) = &self.splits[number % self.splits.len()];
        let lends = number >= self.splits.len();
        let cores: PerCore<Option<RunningJob<'_>>> = self.model.running().collect();
        let in_force = self.in_force.as_ref().unwrap_or(plan);
        let mut model = self.model.clone();
        match &self.in_force {
            None => model.begin_with(plan),
            Some(_) if !lends => model.hand_out(plan),
            Some(_) => {}
        }
        let keeper = || Keeper::new(plan.clone(), pool, self.refill, aim(policy), gap);
        Run {
            base: *base,
            plan: plan.clone(),
            keeper: lends.then(|| Box::new(keeper().going_on(in_force.clone(), programs, &cores, self.begun))),
            model,
            marks: Vec::new(),
        }
    }

    /// The candidate of the fewest late jobs after the last step that all have done.
    fn result(&self) -> Foresight {
        let steps = self.runs.iter().map(|run| run.marks.len()).min().unwrap_or(0);
        let counts = |run: &'_ Run| match steps.checked_sub(1) {
            Some(last) => run.marks[last].clone(),
            None => vec![JobCounts::default(); run.plan.shares.len()],
        };
        let key = |run: &Run| {
            let sum = |of: fn(&JobCounts) -> f64| counts(run).iter().map(of).sum::<f64>();
            (sum(|core| core.late_weight), sum(|core| core.response))
        };
        let less = |one: f64, other: f64| one < other - 1e-9 * other.abs();
        let fewer = |best: &'_ Run, other: &'_ Run| {
            let (best, other) = (key(best), key(other));
            less(other.0, best.0) || (!less(best.0, other.0) && less(other.1, best.1))
        };
        let mut best = &self.runs[0];
        for run in &self.runs[1..] {
            if fewer(best, run) {
                best = run;
            }
        }
        Foresight {
            base: best.base,
            plan: best.plan.clone(),
            lends: best.keeper.is_some(),
            cores: counts(best).into_iter().collect(),
            begun: self.begun,
            seen: self.step * steps as u64,
            work: self.work,
        }
    }
}

impl Run {
    /// Decides if that is due, and passes one event. Returns the units of work.
    fn pass(&mut self, programs: &Programs, end: Time) -> u64 {
        let (now, mut work) = (self.model.now(), 1);
        // Also asked where nothing is lent: else the model would wait for a decision.
        let is_due = self.model.is_due();
        if let Some(keeper) = self.keeper.as_mut().filter(|_| is_due) {
            work += DECISION + self.model.jobs() as u64;
            let plan = {
                let cores: PerCore<Option<RunningJob<'_>>> = self.model.running().collect();
                keeper.decide(programs, &cores, now).cloned()
            };
            if let Some(plan) = plan {
                self.model.hand_out(&plan);
            }
        }
        self.model.pass(programs, end);
        work
    }
}

#[cfg(test)]
mod tests;
