//! Paces jobs from within: which clock the jobs under way need, and which one a job has had on average.
//!
//! ```text
//! checkpoint ─► work since the release ─► pacer of its task ─► the clock that this job needs ─► the highest of all jobs
//! ```
//!
//! The clock is one for all tasks, so the job that needs the highest sets it. A job that was preempted, or that waits for
//! another's lock, has had less done for its time, and so asks for more.
//!
//! The loop at every job goes on above it: it is told the mean clock that its job has had, and takes that for its own
//! setting ([`punctual_control::LqrPi::follow`]). So what was found within a job is where the next one begins, and what a
//! full clock cannot do is left to the other knob.

use punctual_control::Pacer;
use punctual_platform::ClockOffer;
use punctual_units::{Nanos, Time};
use punctual_workload::{JobOutcome, JobProgress};

/// Tasks that are paced at most; jobs of further ones run at the clock that the others need.
const TASKS_MAX: usize = 64;

/// All jobs under way.
#[derive(Clone, Debug)]
pub(crate) struct Pacing {
    /// Steps of the clock, as shares of its top.
    steps: Vec<f64>,
    clock: ClockOverTime,
    /// By [`punctual_units::TaskId`]; none for tasks that have told nothing.
    tasks: Vec<Option<TaskPace>>,
    /// Over the jobs of this window: what the clock did for them, and how long they took.
    window: (f64, f64),
}

/// A task's jobs.
#[derive(Clone, Debug)]
struct TaskPace {
    pacer: Pacer,
    /// The job that is under way.
    job: Option<u64>,
    /// What it needs.
    wanted: Option<f64>,
}

/// The clock's integral over time, as far as it is asked for: since before its last change.
#[derive(Clone, Copy, Debug)]
struct ClockOverTime {
    /// Until `since`, in share times seconds.
    integral: f64,
    since: Time,
    /// In force since then, and before.
    now: f64,
    before: f64,
}

impl ClockOverTime {
    fn turned(&mut self, share: f64, at: Time) {
        if share != self.now {
            self.integral = self.at(at);
            (self.before, self.now, self.since) = (self.now, share, self.since.max(at));
        }
    }

    /// The integral from the start to `at`. Before the last change the clock is taken to have stood where it was then: further back,
    /// only a job is asked for that was released while another one ran.
    fn at(&self, at: Time) -> f64 {
        if at >= self.since {
            self.integral + self.now * at.since(self.since).as_secs_f64()
        } else {
            self.integral - self.before * self.since.since(at).as_secs_f64()
        }
    }

    fn between(&self, from: Time, until: Time) -> f64 {
        (self.at(until) - self.at(from)).max(0.0)
    }
}

impl Pacing {
    /// For a machine with this clock, of which `share` of the top is in force at `start`.
    pub(crate) fn new(offer: &ClockOffer, share: f64, start: Time) -> Pacing {
        Pacing {
            steps: offer.steps.iter().map(|step| step.ratio(offer.top())).collect(),
            clock: ClockOverTime {
                integral: 0.0,
                since: start,
                now: share,
                before: share,
            },
            tasks: Vec::new(),
            window: (0.0, 0.0),
        }
    }

    /// The clock is at this share of its top from `at` on.
    pub(crate) fn turned(&mut self, share: f64, at: Time) {
        self.clock.turned(share, at);
    }

    /// A job has come to a checkpoint; the clock that the jobs under way need to end at `goal`, if that is known.
    pub(crate) fn progressed(&mut self, job: &JobProgress, goal: f64) -> Option<f64> {
        let deadline = job.deadline.as_secs_f64();
        let (clock, work) = (self.clock.now, self.clock.between(job.released, job.at));
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

    /// What the jobs under way need: the most that one of them does.
    pub(crate) fn wanted(&self) -> Option<f64> {
        let wanted = self.tasks.iter().flatten().filter_map(|task| task.wanted);
        wanted.reduce(f64::max)
    }

    /// Closes the window: the mean clock over its jobs, weighted by time.
    pub(crate) fn mean_clock(&mut self) -> Option<f64> {
        let (done, took) = std::mem::take(&mut self.window);
        (took > 0.0).then(|| done / took)
    }

    /// The task of a job, which is made at its first checkpoint. None for one too many, or for senseless checkpoints.
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
