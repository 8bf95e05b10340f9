//! What the runs amount to: values in, values out.

use punctual_platform::Refusal;
use punctual_platform::linux::probe::Oversleep;
use punctual_runtime::linux::tenancy::LendingMeasured;
use punctual_units::Nanos;
use serde::Serialize;

use super::{LoopPlan, Seen, Way};
use crate::beside::{Counted, Interactive, LendingSummary, Medium, Quantiles};
use crate::stats::median;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct LoopReport {
    /// What ran.
    pub plan: LoopPlan,
    /// How many cores the machine has for us.
    pub cores: usize,
    /// What the busy disk is.
    pub medium: Medium,
    /// Each way, over all repetitions.
    pub ways: Vec<WaySummary>,
    /// What lending was measured to cost, over all runs; `None` where no core was lent.
    pub lending: Option<LendingSummary>,
    /// How late the probe woke: the no-op control of all latencies.
    pub probe: Option<Oversleep>,
    /// The runs, in order.
    pub runs: Vec<Run>,
}

/// What became of jobs. `jobs` is the sum of the next three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Releases.
    pub jobs: u64,
    /// Done before the next release.
    pub in_time: u64,
    /// Done after it.
    pub late: u64,
    /// Not begun, because the next release came first.
    pub dropped: u64,
    /// Late or dropped, and no gap of the probe explains it.
    pub unexplained: u64,
}

impl Tally {
    /// The share of jobs that missed their deadline, 0 to 1.
    pub fn missed(&self) -> f64 {
        (self.late + self.dropped) as f64 / self.jobs.max(1) as f64
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Tally>>(all: I) -> Tally {
        all.fold(Tally::default(), |sum, one| Tally {
            jobs: sum.jobs + one.jobs,
            in_time: sum.in_time + one.in_time,
            late: sum.late + one.late,
            dropped: sum.dropped + one.dropped,
            unexplained: sum.unexplained + one.unexplained,
        })
    }
}

/// One run of one way.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Which way.
    pub way: Way,
    /// Why it did not take place; all figures are zero then.
    pub refused: Option<String>,
    /// What became of the jobs.
    #[serde(flatten)]
    pub tally: Tally,
    /// From a release until the loop ran, of every job.
    #[serde(skip)]
    pub wake: Vec<Nanos>,
    /// From a release until the job was done, of every job that was not dropped.
    #[serde(skip)]
    pub done: Vec<Nanos>,
    /// CPU time of the loop's thread, lending included.
    pub loop_cpu: Nanos,
    /// For how long the core was lent.
    pub lent: Nanos,
    /// The part of the leases that was used, at least, 0 to 1.
    pub used_share: Option<f64>,
    /// What taking the core back took in the run, wake-up included.
    #[serde(skip)]
    pub take_back: Vec<Nanos>,
    /// What lending was measured to cost before the run.
    #[serde(skip)]
    pub lending: Option<LendingMeasured>,
    /// What the others got done meanwhile.
    #[serde(flatten)]
    pub counted: Counted,
    /// What was obtained, and what was not, for people.
    pub protection: Vec<String>,
}

impl Run {
    /// A run that did not take place.
    pub(super) fn refused(refusal: &Refusal) -> Run {
        let nothing = Run::of(&[], Nanos::ZERO, Counted::default(), |_, _| false);
        Run {
            refused: Some(refusal.to_string()),
            ..nothing
        }
    }

    /// Of `jobs`, each due a period after its release; `explained` says whether something excuses so long an overrun.
    pub(super) fn of(jobs: &[Seen], period: Nanos, counted: Counted, explained: impl Fn(&Seen, Nanos) -> bool) -> Run {
        let mut tally = Tally::default();
        for job in jobs {
            let overrun = job
                .finished
                .unwrap_or(job.woken)
                .since(job.released)
                .saturating_sub(period);
            let missed = job.finished.is_none() || overrun > Nanos::ZERO;
            tally.jobs += 1;
            tally.in_time += u64::from(!missed);
            tally.dropped += u64::from(job.finished.is_none());
            tally.late += u64::from(missed && job.finished.is_some());
            tally.unexplained += u64::from(missed && !explained(job, overrun));
        }
        let done = jobs.iter().filter_map(|job| Some(job.finished?.since(job.released)));
        Run {
            repetition: 0,
            way: Way::Alone,
            refused: None,
            tally,
            wake: jobs.iter().map(|job| job.woken.since(job.released)).collect(),
            done: done.collect(),
            loop_cpu: Nanos::ZERO,
            lent: Nanos::ZERO,
            used_share: None,
            take_back: Vec::new(),
            lending: None,
            counted,
            protection: Vec::new(),
        }
    }
}

/// One way over all repetitions in which it took place.
#[derive(Clone, Debug, Serialize)]
pub struct WaySummary {
    /// Which.
    pub way: Way,
    /// Why it did not take place, in the first repetition in which it did not.
    pub refused: Option<String>,
    /// What became of the jobs.
    #[serde(flatten)]
    pub tally: Tally,
    /// The share of them that missed their deadline, 0 to 1...
    pub missed: f64,
    /// ...and that of each repetition.
    pub missed_by_repetition: Vec<f64>,
    /// From a release until the loop ran.
    pub wake: Quantiles,
    /// From a release until a job was done; dropped ones are left out.
    pub done: Quantiles,
    /// CPU time of the loop, as a share of one core.
    pub loop_share: f64,
    /// The share of the time for which the core was lent.
    pub lent_share: f64,
    /// The part of the leases that was used, at least: the median of the repetitions.
    pub used_share: Option<f64>,
    /// What hogs and the disk's writer got done.
    #[serde(flatten)]
    pub interactive: Interactive,
}

impl LoopReport {
    /// Sums up `runs` on a machine of so many cores.
    pub fn of(plan: &LoopPlan, cores: usize, medium: Medium, runs: Vec<Run>, probe: Option<Oversleep>) -> LoopReport {
        LoopReport {
            plan: plan.clone(),
            cores,
            medium,
            ways: plan.ways.iter().map(|way| WaySummary::of(*way, cores, &runs)).collect(),
            lending: LendingSummary::of(
                runs.iter().filter_map(|run| run.lending.as_ref()),
                runs.iter().flat_map(|run| run.take_back.iter().copied()).collect(),
            ),
            probe,
            runs,
        }
    }
}

impl WaySummary {
    fn of(way: Way, cores: usize, runs: &[Run]) -> WaySummary {
        let ours = || runs.iter().filter(move |run| run.way == way);
        let took_place = || ours().filter(|run| run.refused.is_none());
        let window: Nanos = took_place().map(|run| run.counted.window).sum();
        // Where no run took place, there is no time to have a share of.
        let share = |part: fn(&Run) -> Nanos| took_place().map(part).sum::<Nanos>().ratio(window.max(Nanos(1)));
        let quantiles = |of: fn(&Run) -> &Vec<Nanos>| Quantiles::of(took_place().flat_map(of).copied().collect());
        let alone = |repetition| {
            let mut alone = runs.iter().filter(|run| run.way == Way::Alone);
            alone.find(|run| run.repetition == repetition)
        };
        let beside_alone =
            took_place().filter_map(|run| Some((&run.counted, run.loop_cpu, &alone(run.repetition)?.counted)));
        let tally: Tally = took_place().map(|run| run.tally).sum();
        WaySummary {
            way,
            refused: ours().find_map(|run| run.refused.clone()),
            missed: tally.missed(),
            tally,
            missed_by_repetition: took_place().map(|run| run.tally.missed()).collect(),
            wake: quantiles(|run| &run.wake),
            done: quantiles(|run| &run.done),
            loop_share: share(|run| run.loop_cpu),
            lent_share: share(|run| run.lent),
            used_share: median(&took_place().filter_map(|run| run.used_share).collect::<Vec<_>>()),
            interactive: Interactive::of(beside_alone, cores),
        }
    }
}
