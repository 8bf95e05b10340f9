//! Paces jobs from within: which clock the jobs under way need, and which one a job has had on average.
//!
//! ```text
//! checkpoint ─► work since the release ─► pacer of its task ─► the clock that this job needs ─► the highest of all
//! ```
//!
//! The clock is one for all tasks, so the job that needs the highest sets it. A job that was preempted, or that waits
//! for another's lock, has had less done for its time, and so asks for more.
//!
//! A job is paced to its own goal as if it had the core for itself. Where several tasks share the core a job may
//! therefore ask for more than the law did, and not for less: one that took all the time it has would starve the
//! others, and only the law knows how late they are.
//!
//! The loop at every job goes on above the pacer: it receives the mean clock that its job has had, and takes that for
//! its own setting ([`punctual_control::LqrPi::follow`]). So the next job begins at the clock that was found within the
//! last one, and the other knob does what a full clock cannot.

use std::collections::VecDeque;

use punctual_control::{PARTS_MAX, Pacer};
use punctual_platform::ClockOffer;
use punctual_units::{Nanos, TaskId, Time};
use punctual_workload::{CHECKPOINTS_MAX, JobOutcome, JobProgress};

use crate::idle::JobRelease;

/// Tasks that are paced at most; jobs of further ones run at the clock that the others need.
const TASKS_MAX: usize = 64;
/// Changes of the clock that are remembered: those of two jobs that change it at each of their checkpoints.
const CHANGES_MAX: usize = 2 * CHECKPOINTS_MAX;

/// All jobs under way.
#[derive(Clone, Debug)]
pub(crate) struct Pacing {
    /// Steps of the clock, as shares of its top.
    steps: Vec<f64>,
    clock: ClockOverTime,
    /// By [`punctual_units::TaskId`]; `None` for tasks without a checkpoint so far.
    tasks: Vec<Option<TaskPace>>,
    /// Integral of the clock over the jobs of this window, in share times seconds, and the seconds that they took.
    window: (f64, f64),
}

/// Pacing of one task's jobs.
#[derive(Clone, Debug)]
struct TaskPace {
    pacer: Pacer,
    /// The job that is under way.
    job: Option<u64>,
    /// Clock that the job needs, as a share of the top.
    wanted: Option<f64>,
    /// Deadline of the task's jobs.
    deadline: Nanos,
    /// The job behind the latest of which a checkpoint was taken.
    next: u64,
}

impl TaskPace {
    /// Begins job `job`, unless it is under way.
    fn begin(&mut self, job: u64) {
        if self.job != Some(job) {
            self.pacer.begin();
            self.job = Some(job);
        }
    }
}

/// When the checkpoints of a job may come without a change of the clock. One that comes then need not be reported:
/// waking the loop costs more than deciding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The first job, and whether the forecast is for all behind it, too.
    job: u64,
    and_later: bool,
    /// Since when the clock has stood: for jobs that begin, which were released no earlier.
    since: Time,
    /// The first checkpoint, from 1, and the last: the job's end.
    first: usize,
    last: usize,
    /// Earliest and latest time since the release, by checkpoint from 1.
    stays: [(Nanos, Nanos); PARTS_MAX],
}

impl Forecast {
    /// A forecast for the checkpoints behind `done`, with times in deadlines.
    fn new(done: usize, stays: impl Iterator<Item = (f64, f64)>, deadline: Nanos) -> Forecast {
        let mut forecast = Forecast {
            job: 0,
            and_later: false,
            since: Time::ZERO,
            first: done + 1,
            last: done,
            stays: [(Nanos::ZERO, Nanos::ZERO); PARTS_MAX],
        };
        for (earliest, latest) in stays {
            forecast.stays[forecast.last] = (deadline.scaled(earliest), deadline.scaled(latest));
            forecast.last += 1;
        }
        forecast
    }

    /// Whether the clock stays where it is at this checkpoint.
    pub fn holds(&self, at: &JobProgress) -> bool {
        let (done, of) = (at.done as usize, at.of as usize);
        let is_meant = at.job == self.job || self.and_later && at.job > self.job;
        let is_known = of == self.last && (self.first..=of).contains(&done);
        if !is_meant || !is_known || at.released < self.since {
            return false;
        }
        let (earliest, latest) = self.stays[done - 1];
        (earliest..=latest).contains(&at.at.since(at.released))
    }
}

/// The clock's integral over time.
#[derive(Clone, Debug)]
struct ClockOverTime {
    /// The latest changes, oldest first, at least one.
    changes: VecDeque<Change>,
}

/// The clock has been at `share` of its top since `since`.
#[derive(Clone, Copy, Debug)]
struct Change {
    since: Time,
    share: f64,
    /// The integral until then, in share times seconds.
    integral: f64,
}

impl ClockOverTime {
    fn new(share: f64, since: Time) -> ClockOverTime {
        let mut changes = VecDeque::with_capacity(CHANGES_MAX);
        changes.push_back(Change {
            since,
            share,
            integral: 0.0,
        });
        ClockOverTime { changes }
    }

    fn now(&self) -> f64 {
        self.changes.back().map_or(1.0, |change| change.share)
    }

    fn turned(&mut self, share: f64, since: Time) {
        if share == self.now() {
            return;
        }
        let integral = self.at(since);
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(Change { since, share, integral });
    }

    /// The integral from the start to `at`; before the oldest change that is known, the clock is taken to have stood
    /// where it was set then.
    fn at(&self, at: Time) -> f64 {
        let known = self.changes.iter().rev().find(|change| change.since <= at);
        match (known, self.changes.front()) {
            (Some(change), _) => change.integral + change.share * at.since(change.since).as_secs_f64(),
            (None, Some(oldest)) => oldest.integral - oldest.share * oldest.since.since(at).as_secs_f64(),
            (None, None) => 0.0,
        }
    }

    fn between(&self, from: Time, until: Time) -> f64 {
        (self.at(until) - self.at(from)).max(0.0)
    }
}

impl Pacing {
    /// Creates the pacing for a machine with this clock, of which `share` of the top is in force at `start`.
    pub(crate) fn new(offer: &ClockOffer, share: f64, start: Time) -> Pacing {
        Pacing {
            steps: offer.steps.iter().map(|step| step.ratio(offer.top())).collect(),
            clock: ClockOverTime::new(share, start),
            tasks: Vec::new(),
            window: (0.0, 0.0),
        }
    }

    /// The clock is at this share of its top from `at` on.
    pub(crate) fn turned(&mut self, share: f64, at: Time) {
        self.clock.turned(share, at);
    }

    /// Takes a checkpoint of a job that is to end at `goal`, in deadlines. Returns the clock that the jobs under way
    /// need, each for its own goal, if that is known.
    pub(crate) fn progressed(&mut self, job: &JobProgress, goal: f64) -> Option<f64> {
        let deadline = job.deadline.as_secs_f64();
        let (clock, work) = (self.clock.now(), self.clock.between(job.released, job.at));
        let task = self.task(job)?;
        task.begin(job.job);
        task.next = job.job + 1;
        task.pacer.reach(job.done as usize, work / deadline);
        let elapsed = job.at.since(job.released).as_secs_f64() / deadline;
        task.wanted = task.pacer.clock(elapsed, goal, clock);
        self.wanted()
    }

    /// The forecast for a job that is to end at `goal`, in deadlines, after its checkpoint was taken. `None` before a
    /// whole job has been measured.
    pub(crate) fn forecast(&self, job: &JobProgress, goal: f64) -> Option<Forecast> {
        let task = self.tasks.get(job.task.index())?.as_ref()?;
        let (clock, wanted) = (self.clock.now(), task.wanted?);
        let is_current = task.job == Some(job.job) && task.pacer.done() == job.done as usize;
        // A job that needs less than the clock in force says so until it needs that: others may let it fall.
        if !is_current || wanted != clock {
            return None;
        }
        let deadline = job.deadline.as_secs_f64();
        let elapsed = job.at.since(job.released).as_secs_f64() / deadline;
        let stays = task.pacer.stays(Some(elapsed), goal, clock);
        let forecast = Forecast::new(task.pacer.done(), stays, job.deadline);
        Some(Forecast {
            job: job.job,
            ..forecast
        })
    }

    /// The forecast for the jobs of `task` of which no checkpoint was taken, if they begin at the clock in force.
    pub(crate) fn forecast_next(&self, task: TaskId, goal: f64) -> Option<Forecast> {
        let task = self.tasks.get(task.index())?.as_ref()?;
        let stays = task.pacer.stays(None, goal, self.clock.now());
        Some(Forecast {
            job: task.next,
            and_later: true,
            since: self.clock.changes.back()?.since,
            ..Forecast::new(0, stays, task.deadline)
        })
    }

    /// The forecast for a job that has begun, of which no checkpoint was taken: it was released at the clock between
    /// jobs, and has the one in force since that was last changed.
    pub(crate) fn forecast_begun(&self, begun: &JobRelease, goal: f64) -> Option<Forecast> {
        let task = self.tasks.get(begun.task.index())?.as_ref()?;
        let (clock, since) = (self.clock.now(), self.clock.changes.back()?.since.max(begun.released));
        // With that clock from its release on, the job would be as far if it was released later by `lost`.
        let before = since.since(begun.released).as_secs_f64();
        let lost = (before - self.clock.between(begun.released, since) / clock).max(0.0) / begun.deadline.as_secs_f64();
        let stays = task.pacer.stays(None, goal - lost, clock);
        let stays = stays.map(|(earliest, latest)| (earliest + lost, latest + lost));
        Some(Forecast {
            job: begun.job,
            since: begun.released,
            ..Forecast::new(0, stays, begun.deadline)
        })
    }

    /// Checkpoints of a job came as forecast, and were not reported: its end teaches, as that of a job that did.
    pub(crate) fn spared(&mut self, task: TaskId, job: u64) {
        if let Some(task) = self.tasks.get_mut(task.index()).and_then(Option::as_mut) {
            task.begin(job);
        }
    }

    /// A job is complete.
    pub(crate) fn completed(&mut self, job: &JobOutcome) {
        let Some(deadline) = job.deadline else { return };
        let work = self.clock.between(job.released, job.finished);
        let (done, took) = &mut self.window;
        (*done, *took) = (*done + work, *took + job.response().as_secs_f64());
        let Some(task) = self.tasks.get_mut(job.task.index()).and_then(Option::as_mut) else {
            return;
        };
        if task.job.take() == Some(job.job) {
            task.pacer.reach(task.pacer.parts(), work / deadline.as_secs_f64());
        }
        task.wanted = None;
    }

    /// Highest clock that a job under way needs.
    pub(crate) fn wanted(&self) -> Option<f64> {
        let wanted = self.tasks.iter().flatten().filter_map(|task| task.wanted);
        wanted.reduce(f64::max)
    }

    /// Closes the window: the mean clock over its jobs, weighted by time.
    pub(crate) fn mean_clock(&mut self) -> Option<f64> {
        let (done, took) = std::mem::take(&mut self.window);
        (took > 0.0).then(|| done / took)
    }

    /// The task of a job, created at its first checkpoint. `None` for tasks from `TASKS_MAX` on, or for senseless
    /// checkpoints.
    fn task(&mut self, job: &JobProgress) -> Option<&mut TaskPace> {
        let (index, parts) = (job.task.index(), job.of as usize);
        if index >= TASKS_MAX || job.deadline == Nanos::ZERO {
            return None;
        }
        if self.tasks.len() <= index {
            self.tasks.resize(index + 1, None);
        }
        let known = &mut self.tasks[index];
        if known.as_ref().is_none_or(|task| task.pacer.parts() != parts) {
            *known = Pacer::new(self.steps.clone(), parts).map(|pacer| TaskPace {
                pacer,
                job: None,
                wanted: None,
                deadline: job.deadline,
                next: 0,
            });
        }
        known.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_control::TOLERANCE;
    use punctual_platform::Provenance;
    use punctual_units::Hertz;
    use punctual_workload::Split;

    use super::*;

    proptest! {
        /// The integral against a sum over every change, as far back as changes are remembered.
        #[test]
        fn the_clock_s_integral_is_that_of_its_changes(
            changes in prop::collection::vec((1u64..1_000_000, 0.1..1.0f64), 1..40),
            from in 0.0..1.0f64,
        ) {
            let mut clock = ClockOverTime::new(0.5, Time(0));
            let (mut now, mut pieces) = (0, vec![(0, 0.5)]);
            for (after, share) in &changes {
                now += after;
                clock.turned(*share, Time(now));
                pieces.push((now, *share));
            }
            let (end, from) = (now + 1000, (from * now as f64) as u64);
            let ends = pieces.iter().skip(1).map(|(at, _)| *at).chain([end]);
            let summed: f64 = pieces.iter().zip(ends).map(|((at, share), until)| {
                share * until.max(from).saturating_sub((*at).max(from)) as f64 * 1e-9
            }).sum();
            prop_assert!((clock.between(Time(from), Time(end)) - summed).abs() < 1e-12 * now as f64, "{summed}");
        }

        /// Jobs that report only what the forecast does not hold end as those do that report each checkpoint, whatever
        /// slows them down, and however late the clock between jobs gives way to the law's.
        #[test]
        fn what_is_not_reported_changes_no_end(
            slow in prop::collection::vec((0..PARTS, 0.6..1.8f64), 1..6),
            goal in 0.6..1.0f64,
            turned_after in prop::option::of(0.0..0.02f64),
        ) {
            let mut disturbed = [1.0; PARTS];
            slow.iter().for_each(|(from, by)| disturbed[*from..].fill(*by));
            let (all, _) = last_end(&disturbed, goal, turned_after, false);
            let (few, reports) = last_end(&disturbed, goal, turned_after, true);
            prop_assert!((all - few).abs() <= 2.0 * TOLERANCE * goal, "{all} and {few} after {reports} reports");
        }
    }

    const PARTS: usize = 32;
    const DEADLINE: Nanos = Nanos::from_millis(100);

    /// Runs four jobs, the last with these slow-downs of its parts; returns its end, in deadlines, and how many of its
    /// checkpoints were reported. With `turned_after`, each job is released at a tenth of the top clock, and its clock
    /// is restored that many deadlines later.
    fn last_end(disturbed: &[f64; PARTS], goal: f64, turned_after: Option<f64>, spares: bool) -> (f64, usize) {
        let steps: Vec<Hertz> = (1..=10).map(|step| Hertz::from_mhz(200 * step)).collect();
        let offer = ClockOffer::new(steps, Provenance::Simulated);
        let mut pacing = Pacing::new(&offer, 1.0, Time::ZERO);
        let mut last = (0.0, 0);
        let usual = &[1.0; PARTS];
        for (job, slow) in [usual, usual, usual, disturbed].into_iter().enumerate() {
            let released = Time(job as u64 * 1_000_000_000);
            let (mut elapsed, mut reports) = (0.0, 0);
            let mut forecast = pacing.forecast_next(TaskId(0), goal);
            if let Some(after) = turned_after {
                let law = pacing.clock.now();
                pacing.turned(0.1, released);
                pacing.turned(law, released + DEADLINE.scaled(after));
                elapsed = after * (1.0 - 0.1 / law);
                let begun = JobRelease {
                    task: TaskId(0),
                    job: job as u64,
                    released,
                    deadline: DEADLINE,
                    pending: 0,
                };
                forecast = pacing.forecast_begun(&begun, goal);
            }
            for (part, slow) in slow.iter().enumerate() {
                // Work of half a deadline in all, in parts of two kinds.
                let work = 0.5 / PARTS as f64 * if part % 2 == 0 { 1.5 } else { 0.5 };
                elapsed += work * slow / pacing.clock.now();
                let spent = DEADLINE.scaled(elapsed);
                let done = part as u32 + 1;
                let at = JobProgress {
                    task: TaskId(0),
                    job: job as u64,
                    released,
                    deadline: DEADLINE,
                    at: released + spent,
                    done,
                    of: PARTS as u32,
                };
                if spares && forecast.is_some_and(|it| it.holds(&at)) {
                    continue;
                }
                reports += 1;
                if let Some(clock) = pacing.progressed(&at, goal) {
                    pacing.turned(clock, at.at);
                }
                forecast = pacing.forecast(&at, goal);
            }
            pacing.spared(TaskId(0), job as u64);
            pacing.completed(&outcome(job as u64, elapsed));
            last = (elapsed, reports);
        }
        last
    }

    /// Job `job`, which took this many deadlines.
    fn outcome(job: u64, elapsed: f64) -> JobOutcome {
        let released = Time(job * 1_000_000_000);
        JobOutcome {
            task: TaskId(0),
            job,
            released,
            deadline: Some(DEADLINE),
            finished: released + DEADLINE.scaled(elapsed),
            split: Split::default(),
        }
    }

    /// A job without a checkpoint, as where there was nothing to do, says nothing of how long the parts take.
    #[test]
    fn jobs_without_a_checkpoint_teach_nothing() {
        let offer = ClockOffer {
            steps: vec![Hertz::from_mhz(1000), Hertz::from_mhz(2000)],
            microwatts: Vec::new(),
            change: Nanos::ZERO,
            provenance: Provenance::Simulated,
        };
        let mut pacing = Pacing::new(&offer, 1.0, Time::ZERO);
        let at = JobProgress {
            task: TaskId(0),
            job: 0,
            released: Time::ZERO,
            deadline: DEADLINE,
            at: Time::ZERO + DEADLINE.scaled(0.2),
            done: 1,
            of: 2,
        };
        pacing.progressed(&at, 0.4);
        pacing.completed(&outcome(0, 0.4));
        let before = pacing.forecast_next(TaskId(0), 0.4);
        assert!(before.is_some_and(|it| it.holds(&JobProgress { job: 1, ..at })));
        pacing.completed(&outcome(1, 0.01));
        assert_eq!(pacing.forecast_next(TaskId(0), 0.4), before);
        pacing.spared(TaskId(0), 2);
        pacing.completed(&outcome(2, 0.3));
        assert_ne!(pacing.forecast_next(TaskId(0), 0.4), before);
    }

    #[test]
    fn a_job_as_usual_reports_few_checkpoints() {
        for turned_after in [None, Some(0.01)] {
            let (end, reports) = last_end(&[1.0; PARTS], 0.8, turned_after, true);
            assert!(
                (end - 0.8).abs() <= 2.0 * TOLERANCE && reports <= 2,
                "{end} after {reports} reports, {turned_after:?}"
            );
        }
    }

    #[test]
    fn a_forecast_is_for_its_jobs_and_the_checkpoints_that_are_left() {
        let deadline = Nanos(1000);
        let of = |job, and_later| Forecast {
            job,
            and_later,
            since: Time(10),
            ..Forecast::new(2, [(0.4, 0.6), (0.5, f64::INFINITY)].into_iter(), deadline)
        };
        let at = |job, done, elapsed: u64| JobProgress {
            task: TaskId(0),
            job,
            released: Time(10),
            deadline,
            at: Time(10_u64.saturating_add(elapsed)),
            done,
            of: 4,
        };
        let forecast = of(7, false);
        let holds = |done, elapsed| forecast.holds(&at(7, done, elapsed));
        assert!(holds(3, 400) && holds(3, 600) && holds(4, u64::MAX));
        assert!(!holds(3, 399) && !holds(3, 601));
        assert!(!holds(2, 500) && !holds(5, 500) && !holds(0, 500) && !holds(u32::MAX, 500));
        let (earlier, other) = (Time(9), 5);
        assert!(!forecast.holds(&JobProgress {
            released: earlier,
            ..at(7, 3, 500)
        }));
        assert!(!forecast.holds(&JobProgress {
            of: other,
            ..at(7, 3, 500)
        }));
        let holds = [6, 7, 8].map(|job| [false, true].map(|later| of(7, later).holds(&at(job, 3, 500))));
        assert_eq!(holds, [[false, false], [true, true], [false, true]]);
    }
}
