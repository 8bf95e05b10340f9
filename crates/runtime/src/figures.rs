//! Figures of each real-time task, gathered in memory that does not grow with the run.
//!
//! A run has a start-up ([`crate::report::RunHeader::settle_s`]) and a span after it. Every figure describes the span;
//! for the start-up, only jobs and late jobs are counted. A job belongs to the part of the run in which it ended, a
//! skipped release to the part in which it was skipped, and one that is overdue to the part in which it is counted.
//!
//! **Definitions.** Releases are counted, each once: see [`crate::under_way`]. Response times, causes and splits
//! describe jobs that ended. A job that *failed* (its closure returned an error) has no response time; it is counted
//! separately, and the goal is judged as if it were late.

use hdrhistogram::Histogram;
use punctual_units::{Nanos, Share, Time};
use punctual_workload::{Cause, JobOutcome, Part, SplitSum, TaskGoal};

use crate::causes::{Causes, Evidence, SkippedWhile};
use crate::report::{Bin, LateJob, OpenJob, ResponseTimes, StartUp, TaskReport, WhereTimeWent};
use crate::under_way::{OpenJobs, Overdue};

/// Upper limit of a task's histogram, which then takes 300 kB; longer response times are counted there. The maximum is
/// still exact.
const RESPONSE_MAX: Nanos = Nanos::from_secs(3600);

/// Bins of the reported histogram per factor of two in response time: a bin's width is about 3 % of its value.
const BINS_PER_OCTAVE: f64 = 24.0;

/// Properties of a task that are known before the run.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskInfo {
    /// Name of the task in the report.
    pub name: String,
    /// Relative deadline; `None`: a best-effort task, which has no figures of its own.
    pub deadline: Option<Nanos>,
    /// Goal of the task; ignored without a deadline.
    pub goal: TaskGoal,
}

/// Collects the figures of one real-time task.
#[derive(Clone, Debug)]
pub struct TaskFigures {
    watched: TaskInfo,
    deadline: Nanos,
    responses: Histogram<u64>,
    max: Nanos,
    tardiness_sum: f64,
    late: SplitSum,
    on_time: SplitSum,
    failed: u64,
    skipped: u64,
    merged: u64,
    put_off: u64,
    excused: u64,
    causes: Causes,
    start_up: StartUp,
    /// Releases whose jobs have not ended.
    open: OpenJobs,
    /// Whether the start-up was over at the last count of open jobs.
    settled: bool,
    /// Last report of a task that has ended.
    closed: Option<Box<TaskReport>>,
    /// Error message of the first failed job.
    first_failure: Option<String>,
    /// How the task ended, if it ended before the run.
    ended: Option<String>,
}

impl TaskFigures {
    /// Begins with empty figures, in a run with a start-up of `start_up_s` seconds; `None` for a task without a
    /// deadline. Allocates all memory that it will ever use.
    pub fn new(watched: TaskInfo, start_up_s: f64) -> Option<TaskFigures> {
        let deadline = watched.deadline?;
        Some(TaskFigures {
            deadline,
            watched,
            open: OpenJobs::new(deadline),
            settled: false,
            responses: three_digits(RESPONSE_MAX.0),
            max: Nanos::ZERO,
            tardiness_sum: 0.0,
            late: SplitSum::default(),
            on_time: SplitSum::default(),
            failed: 0,
            skipped: 0,
            merged: 0,
            put_off: 0,
            excused: 0,
            causes: Causes::default(),
            start_up: StartUp {
                seconds: start_up_s,
                ..StartUp::default()
            },
            closed: None,
            first_failure: None,
            ended: None,
        })
    }

    /// Name of the task in the report.
    pub fn name(&self) -> &str {
        &self.watched.name
    }

    /// Goal of the task.
    pub(crate) fn goal(&self) -> TaskGoal {
        self.watched.goal
    }

    /// Changes the goal, and returns the one before; `None` if the report is final. The figures go on.
    pub(crate) fn change_goal(&mut self, goal: TaskGoal) -> Option<TaskGoal> {
        let is_open = self.closed.is_none();
        is_open.then(|| std::mem::replace(&mut self.watched.goal, goal))
    }

    /// Releases whose jobs have not ended.
    pub(crate) fn open(&mut self) -> &mut OpenJobs {
        &mut self.open
    }

    /// Counts open jobs at `now`; `settled`: the start-up is over.
    pub(crate) fn count_open(&mut self, now: Time, settled: bool) {
        if self.closed.is_none() {
            self.open.advance(now);
            self.settled = settled;
        }
    }

    /// Jobs, and late ones among them, over the whole run so far.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let Overdue { jobs, dropped, .. } = self.open.overdue();
        let late = self.late.jobs + self.skipped + jobs + dropped;
        (self.start_up.jobs + late + self.on_time.jobs, self.start_up.late + late)
    }

    /// Adds a job of a run that began at `start`; `settled`: the job ended after the start-up. Returns one that counts
    /// as late.
    pub fn job(&mut self, job: &JobOutcome, evidence: &Evidence, settled: bool, start: Time) -> Option<LateJob> {
        self.open.ended(job.job, job.released, job.finished);
        let counted = self.causes.job(job, evidence, settled, start);
        let late = job.overrun().is_some();
        if !settled {
            self.start_up.jobs += 1;
            self.start_up.late += u64::from(late);
            return None;
        }
        let response = job.response();
        self.responses.saturating_record(response.0.max(1));
        self.max = self.max.max(response);
        self.tardiness_sum += response.ratio(self.deadline);
        let splits = if late { &mut self.late } else { &mut self.on_time };
        splits.add(&job.split);
        counted
    }

    /// Adds `releases` that were skipped by `at`; returns how many of them the loop did not know as late.
    pub fn skipped(&mut self, releases: u64, at: Time, why: SkippedWhile, settled: bool) -> u64 {
        let news = self.open.skipped(releases, at);
        self.count_skipped(releases, why, settled);
        news
    }

    fn count_skipped(&mut self, releases: u64, why: SkippedWhile, settled: bool) {
        if settled {
            self.skipped += releases;
            self.causes.skipped(releases, why);
        } else {
            self.start_up.jobs += releases;
            self.start_up.late += releases;
        }
    }

    /// Adds `merged` events that shared the job of another event, and events that were `put_off`.
    pub fn events(&mut self, merged: u64, put_off: u64) {
        self.merged += merged;
        self.put_off += put_off;
    }

    /// Counts a job that ended with an error at `at`.
    pub fn failed(&mut self, at: Time, settled: bool) {
        self.open.failed(at);
        self.failed += u64::from(settled);
    }

    /// Counts a late job that a gap of the probe explains.
    pub fn excused(&mut self) {
        self.excused += 1;
    }

    /// Records facts that only the task's thread knows: the error message of the first failed job, and how the task
    /// ended if it ended before the run.
    pub fn said(&mut self, first_failure: Option<String>, ended: Option<String>) {
        (self.first_failure, self.ended) = (first_failure, ended);
    }

    /// Makes the report final: accepts no more jobs, and frees the histogram. Late releases without a job will never
    /// have one.
    pub fn close(&mut self, start: Time) {
        let Overdue { jobs, dropped, .. } = self.open.overdue();
        let why = match self.open.waits_behind() {
            true => SkippedWhile::Behind,
            false => SkippedWhile::NotRun,
        };
        self.open = OpenJobs::new(self.deadline);
        self.count_skipped(jobs + dropped, why, self.settled);
        self.closed = Some(Box::new(self.report(start)));
        if let Ok(small) = Histogram::new_with_bounds(1, 2, 1) {
            self.responses = small;
        }
    }

    /// Reports on the task so far, in a run that began at `start`. Takes some microseconds, because the histogram has
    /// thousands of bins.
    pub fn report(&self, start: Time) -> TaskReport {
        if let Some(closed) = &self.closed {
            return TaskReport {
                excused: self.excused,
                first_failure: self.first_failure.clone(),
                ended: self.ended.clone(),
                ..(**closed).clone()
            };
        }
        let open = self.open.overdue();
        let (open_settled, open_before) = match self.settled {
            true => (open, Overdue::default()),
            false => (Overdue::default(), open),
        };
        let finished = self.late.jobs + self.on_time.jobs;
        let skipped = self.skipped + open_settled.dropped;
        let late = self.late.jobs + skipped + open_settled.jobs;
        let jobs = late + self.on_time.jobs;
        let unfinished = self.unfinished(&open, start);
        let unfinished_cause = unfinished.as_ref().map(|job| {
            let cause = match job.has_begun {
                Some(false) => Cause::NotRun,
                Some(true) | None => Cause::Unfinished,
            };
            (cause, open_settled.jobs + open_settled.dropped, job.for_us)
        });
        let before = open_before.jobs + open_before.dropped;
        let all = SplitSum {
            sum: self.late.sum + self.on_time.sum,
            jobs: finished,
        };
        TaskReport {
            name: self.watched.name.clone(),
            goal_late: self.watched.goal.late().map(Share::get),
            goal_tardiness: match self.watched.goal {
                TaskGoal::Late(_) => None,
                TaskGoal::Tardiness(mean) => Some(mean),
            },
            deadline_us: self.deadline.as_micros_f64(),
            jobs,
            late,
            late_share: (jobs > 0).then(|| late as f64 / jobs as f64),
            failed: self.failed,
            skipped,
            overdue: open_settled.jobs,
            unfinished,
            merged: self.merged,
            put_off: self.put_off,
            excused: self.excused,
            response_us: (finished > 0).then(|| self.response_us()),
            tardiness_mean: (finished > 0).then(|| self.tardiness_sum / finished as f64),
            where_us: where_us(&all),
            where_late_us: where_us(&self.late),
            where_on_time_us: where_us(&self.on_time),
            causes: self.causes.report(unfinished_cause),
            late_jobs: self.causes.worst(),
            start_up: StartUp {
                jobs: self.start_up.jobs + before,
                late: self.start_up.late + before,
                ..self.start_up
            },
            histogram: self.bins(),
            first_failure: self.first_failure.clone(),
            ended: self.ended.clone(),
        }
    }

    /// The oldest open job, if the task has late releases without an end.
    fn unfinished(&self, open: &Overdue, start: Time) -> Option<OpenJob> {
        let (released, has_begun) = open.oldest.filter(|_| open.jobs + open.dropped > 0)?;
        Some(OpenJob {
            released_s: released.since(start).as_secs_f64(),
            for_us: self.open.now().since(released).as_micros_f64(),
            has_begun,
        })
    }

    fn response_us(&self) -> ResponseTimes {
        let quantile = |share| {
            Nanos(self.responses.value_at_quantile(share))
                .min(self.max)
                .as_micros_f64()
        };
        ResponseTimes {
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: self.max.as_micros_f64(),
        }
    }

    /// Bins of equal width on a logarithmic axis, with an edge at the deadline; empty ones are omitted.
    fn bins(&self) -> Vec<Bin> {
        let mut bins: Vec<(i32, u64)> = Vec::new();
        for recorded in self.responses.iter_recorded() {
            let response = Nanos(self.responses.median_equivalent(recorded.value_iterated_to()));
            let number = (response.ratio(self.deadline).log2() * BINS_PER_OCTAVE).floor() as i32;
            match bins.last_mut() {
                Some((last, jobs)) if *last == number => *jobs += recorded.count_at_value(),
                _ => bins.push((number, recorded.count_at_value())),
            }
        }
        let deadline_us = self.deadline.as_micros_f64();
        let edge = |number: i32| (f64::from(number) / BINS_PER_OCTAVE).exp2() * deadline_us;
        let bin = |(number, jobs): (i32, u64)| Bin {
            from_us: edge(number),
            to_us: edge(number + 1),
            jobs,
        };
        bins.into_iter().map(bin).collect()
    }
}

/// Histogram of values up to `max`, exact to three significant digits.
pub(crate) fn three_digits(max: u64) -> Histogram<u64> {
    Histogram::new_with_bounds(1, max, 3).expect("bounds and digits are constants in the histogram's range")
}

/// Mean of each part, in microseconds; `None` without a job.
fn where_us(splits: &SplitSum) -> Option<WhereTimeWent> {
    let mean = |part: Part| splits.mean_ns(part) * 1e-3;
    (splits.jobs > 0).then(|| WhereTimeWent {
        released_late: mean(Part::ReleasedLate),
        preempted: mean(Part::Preempted),
        lock: mean(Part::Lock),
        data: mean(Part::Data),
        computation: mean(Part::Computation),
        commit: mean(Part::Commit),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_units::{TaskId, percentile_of_rising};
    use punctual_workload::Split;

    use super::*;

    const DEADLINE: Nanos = Nanos::from_millis(10);

    fn figures() -> TaskFigures {
        let watched = TaskInfo {
            name: "steer".into(),
            deadline: Some(DEADLINE),
            goal: TaskGoal::Late(Share::clamped(0.01)),
        };
        TaskFigures::new(watched, 7.0).unwrap()
    }

    fn job(lock: Nanos, computation: Nanos) -> JobOutcome {
        let split = Split {
            lock,
            computation,
            ..Split::default()
        };
        JobOutcome {
            task: TaskId(0),
            job: 0,
            released: Time::ZERO,
            deadline: Some(DEADLINE),
            finished: Time::ZERO + split.response(),
            split,
        }
    }

    fn take(figures: &mut TaskFigures, job: &JobOutcome, settled: bool) {
        figures.job(job, &Evidence::default(), settled, Time::ZERO);
    }

    #[test]
    fn a_skipped_release_is_late_and_a_failed_job_is_neither() {
        let mut figures = figures();
        take(&mut figures, &job(Nanos::ZERO, DEADLINE), true);
        take(&mut figures, &job(Nanos::ZERO, DEADLINE), true);
        take(&mut figures, &job(Nanos::from_millis(5), DEADLINE), true);
        figures.skipped(1, Time::ZERO, SkippedWhile::NotRun, true);
        figures.failed(Time::ZERO, true);
        take(&mut figures, &job(Nanos::from_millis(5), DEADLINE), false);
        figures.skipped(2, Time::ZERO, SkippedWhile::NotRun, false);
        let report = figures.report(Time::ZERO);
        assert_eq!((report.jobs, report.late, report.failed, report.skipped), (4, 2, 1, 1));
        assert_eq!(report.late_share, Some(0.5));
        let causes: Vec<_> = report.causes.iter().map(|it| (it.cause, it.jobs)).collect();
        assert_eq!(causes, [(Cause::NotRun, 1), (Cause::Lock, 1)]);
        let start_up = StartUp {
            seconds: 7.0,
            jobs: 3,
            late: 3,
        };
        assert_eq!(report.start_up, start_up);
        assert!(
            report
                .tardiness_mean
                .is_some_and(|mean| (mean - 3.5 / 3.0).abs() < 1e-9)
        );
        assert_eq!(report.where_late_us.unwrap().lock, 5000.0);
        assert_eq!(report.response_us.unwrap().max, 15_000.0);
    }

    #[test]
    fn a_task_without_a_job_says_so() {
        let report = figures().report(Time::ZERO);
        assert_eq!(
            (report.late_share, report.response_us, report.where_us),
            (None, None, None)
        );
        assert_eq!((report.tardiness_mean, report.causes), (None, Vec::new()));
        assert!(report.histogram.is_empty());
    }

    #[test]
    fn a_billion_jobs_take_the_memory_of_one() {
        let mut figures = figures();
        let before = figures.responses.distinct_values();
        for k in 0..100_000u64 {
            take(&mut figures, &job(Nanos::ZERO, Nanos((k * 7_919) % 20_000_000)), true);
        }
        take(&mut figures, &job(Nanos::ZERO, Nanos::from_secs(100_000)), true);
        assert_eq!(
            figures.responses.distinct_values(),
            before,
            "the histogram does not grow"
        );
        assert!(before * std::mem::size_of::<u64>() < 400_000);
        assert_eq!(figures.report(Time::ZERO).response_us.unwrap().max, 1e11);
    }

    proptest! {
        /// Counts add up, the parts add up to the mean response time, and percentiles are in order and, to three
        /// digits, those of the sorted list.
        #[test]
        fn the_report_is_the_list_in_few_figures(
            responses in prop::collection::vec((0u64..1 << 24, 0u64..1 << 24), 1..200),
        ) {
            let mut figures = figures();
            responses.iter().for_each(|(lock, rest)| take(&mut figures, &job(Nanos(*lock), Nanos(*rest)), true));
            let report = figures.report(Time::ZERO);
            let mut sorted: Vec<u64> = responses.iter().map(|(lock, rest)| lock + rest).collect();
            sorted.sort_unstable();
            let late = sorted.iter().filter(|response| **response > DEADLINE.0).count() as u64;
            prop_assert_eq!((report.jobs, report.late), (sorted.len() as u64, late));
            prop_assert_eq!(report.histogram.iter().map(|bin| bin.jobs).sum::<u64>(), report.jobs);
            let told = report.response_us.unwrap();
            for (share, told) in [(0.5, told.p50), (0.99, told.p99), (0.999, told.p999), (1.0, told.max)] {
                let exact = percentile_of_rising(&sorted, share).unwrap().max(1) as f64 * 1e-3;
                prop_assert!(
                    (told / exact - 1.0).abs() < 2e-3 || (told - exact).abs() < 2e-3,
                    "{} for {}",
                    told,
                    exact
                );
            }
            let parts = report.where_us.unwrap();
            let mean = sorted.iter().sum::<u64>() as f64 * 1e-3 / sorted.len() as f64;
            prop_assert!((parts.lock + parts.computation - mean).abs() < 1e-6 * mean.max(1.0));
        }
    }
}
