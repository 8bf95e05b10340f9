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

use punctual_control::Pacer;
use punctual_platform::ClockOffer;
use punctual_units::{Nanos, Time};
use punctual_workload::{CHECKPOINTS_MAX, JobOutcome, JobProgress};

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
        if task.job != Some(job.job) {
            task.pacer.begin();
            task.job = Some(job.job);
        }
        task.pacer.reach(job.done as usize, work / deadline);
        let elapsed = job.at.since(job.released).as_secs_f64() / deadline;
        task.wanted = task.pacer.clock(elapsed, goal, clock);
        self.wanted()
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
            });
        }
        known.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    }
}
