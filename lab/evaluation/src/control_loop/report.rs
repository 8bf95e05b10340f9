//! Statistics of the runs. Pure: values in, values out.

use punctual_platform::Refusal;
use punctual_platform::linux::probe::Oversleep;
use punctual_runtime::linux::tenancy::LendingMeasured;
use punctual_units::Nanos;
use serde::Serialize;

use super::{Cycle, LoopPlan, Way};
use crate::beside::{Effort, Interactive, LendingSummary, Medium, Quantiles};
use crate::stats::median;

/// The report of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct LoopReport {
    pub plan: LoopPlan,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Medium of the busy disk's file.
    pub medium: Medium,
    /// Summaries of the ways, each over all repetitions.
    pub ways: Vec<WaySummary>,
    /// Measured costs of lending, over all runs; `None` where no core was lent.
    pub lending: Option<LendingSummary>,
    /// Lateness of the probe's wake-ups: the no-op control of all latencies.
    pub probe: Option<Oversleep>,
    /// All runs, in the order in which they ran.
    pub runs: Vec<Run>,
}

/// Counts of jobs by outcome. `jobs` is the sum of the next three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobCounts {
    pub jobs: u64,
    /// Jobs done before the next release.
    pub in_time: u64,
    /// Jobs done after the next release.
    pub late: u64,
    /// Jobs not begun, because the next release came first.
    pub dropped: u64,
    /// Jobs that were late or dropped without a gap of the probe that explains it.
    pub unexplained: u64,
}

impl JobCounts {
    /// Share of jobs that missed their deadline, 0 to 1.
    pub fn missed(&self) -> f64 {
        (self.late + self.dropped) as f64 / self.jobs.max(1) as f64
    }
}

impl std::iter::Sum for JobCounts {
    fn sum<I: Iterator<Item = JobCounts>>(all: I) -> JobCounts {
        all.fold(JobCounts::default(), |sum, one| JobCounts {
            jobs: sum.jobs + one.jobs,
            in_time: sum.in_time + one.in_time,
            late: sum.late + one.late,
            dropped: sum.dropped + one.dropped,
            unexplained: sum.unexplained + one.unexplained,
        })
    }
}

/// Measurements of one run of one way.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The repetition, from 0.
    pub repetition: u32,
    pub way: Way,
    /// The reason why the run did not take place; all figures are zero then.
    pub refused: Option<String>,
    /// Counts of the jobs by outcome.
    #[serde(flatten)]
    pub tally: JobCounts,
    /// Time from the release until the loop ran, of every job.
    #[serde(skip)]
    pub wake: Vec<Nanos>,
    /// Time from the release until the job was done, of every job that was not dropped.
    #[serde(skip)]
    pub done: Vec<Nanos>,
    /// CPU time of the loop's thread, lending included.
    pub loop_cpu: Nanos,
    /// Time for which the core was lent.
    pub lent: Nanos,
    /// Share of the lent time that borrowers used, at least, 0 to 1.
    pub used_share: Option<f64>,
    /// Times of taking the core back in the run, each with the wake-up.
    #[serde(skip)]
    pub take_back: Vec<Nanos>,
    /// Costs of lending, as measured before the run.
    #[serde(skip)]
    pub lending: Option<LendingMeasured>,
    /// Work of the background load during the run.
    #[serde(flatten)]
    pub counted: Effort,
    /// Messages about protection: what was obtained and what was refused.
    pub protection: Vec<String>,
}

impl Run {
    /// A run that was refused.
    pub(super) fn refused(refusal: &Refusal) -> Run {
        let nothing = Run::of(&[], Nanos::ZERO, Effort::default(), |_, _| false);
        Run {
            refused: Some(refusal.to_string()),
            ..nothing
        }
    }

    /// Counts `jobs`, each due a period after its release; `explained` says whether a gap of the probe explains an
    /// overrun of the given length.
    pub(super) fn of(jobs: &[Cycle], period: Nanos, counted: Effort, explained: impl Fn(&Cycle, Nanos) -> bool) -> Run {
        let mut tally = JobCounts::default();
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

/// Statistics of one way over the repetitions in which it took place.
#[derive(Clone, Debug, Serialize)]
pub struct WaySummary {
    pub way: Way,
    /// The reason why a run did not take place, from the first refused repetition.
    pub refused: Option<String>,
    /// Counts of the jobs by outcome.
    #[serde(flatten)]
    pub tally: JobCounts,
    /// Share of the jobs that missed their deadline, 0 to 1...
    pub missed: f64,
    /// ...and that share in each repetition.
    pub missed_by_repetition: Vec<f64>,
    /// Time from a release until the loop ran.
    pub wake: Quantiles,
    /// Time from a release until a job was done; dropped jobs are left out.
    pub done: Quantiles,
    /// CPU time of the loop's thread, as a share of one core.
    pub loop_share: f64,
    /// Share of the time for which the core was lent.
    pub lent_share: f64,
    /// Share of the lent time that borrowers used, at least: the median of the repetitions.
    pub used_share: Option<f64>,
    /// Work of the background load against its work alone.
    #[serde(flatten)]
    pub interactive: Interactive,
}

impl LoopReport {
    /// Computes the statistics of `runs` on a machine of `cores` cores.
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
        // Where no run took place, `window` is zero: dividing by at least 1 ns makes the share 0.
        let share = |part: fn(&Run) -> Nanos| took_place().map(part).sum::<Nanos>().ratio(window.max(Nanos(1)));
        let quantiles = |of: fn(&Run) -> &Vec<Nanos>| Quantiles::of(took_place().flat_map(of).copied().collect());
        let alone = |repetition| {
            let mut alone = runs.iter().filter(|run| run.way == Way::Alone);
            alone.find(|run| run.repetition == repetition)
        };
        let beside_alone =
            took_place().filter_map(|run| Some((&run.counted, run.loop_cpu, &alone(run.repetition)?.counted)));
        let tally: JobCounts = took_place().map(|run| run.tally).sum();
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
