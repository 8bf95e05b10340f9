//! Input and output of the loop: plain values, so that a log of them replays.

use punctual_platform::{Applied, Plan, Readings};
use punctual_units::{Hertz, Nanos, Share, TaskId, Time};
use punctual_workload::{JobOutcome, JobProgress, TaskGoal};
use serde::{Deserialize, Serialize};

use crate::give_back::SheddingReview;
use crate::goals::Lead;
use crate::idle::JobRelease;
use crate::mode::ModeName;
use crate::split::CoreJobs;

/// Event that [`crate::Regulator::step`] takes.
#[expect(
    clippy::large_enum_variant,
    reason = "an event lives for one step, in which nothing is allocated"
)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A real-time job was released, and has begun or waits.
    Begun(JobRelease),
    /// A real-time job has come to a checkpoint.
    Progressed(JobProgress),
    /// Checkpoints of a job, which is complete, came as forecast and were not reported.
    Spared {
        task: TaskId,
        /// Counts up from 0 within the task.
        job: u64,
    },
    /// A job is complete.
    Completed(JobOutcome),
    /// A stage with a goal has taken a frame.
    Frame {
        /// Index of its goal into [`crate::RegulatorOptions::stages`].
        stage: usize,
        /// Response time over the time that the frame had.
        tardiness: f64,
    },
    /// Frames that are late and that a stage with a goal has not taken. Reported before a decision, and before the
    /// frames that it has taken: at first, which counts none, and while there are any under way, or more or fewer than
    /// at the last report.
    Missing {
        /// Index of its goal into [`crate::RegulatorOptions::stages`].
        stage: usize,
        /// Dropped frames since the start, and those past their due time that are under way.
        frames: u64,
        /// Tardiness so far of the oldest one under way; 0 for none.
        tardiness: f64,
    },
    /// A job of a real-time task has not ended by its deadline: it runs, waits, or was never begun. Reported once,
    /// before a decision, in the order of the releases.
    Overdue {
        task: TaskId,
        /// Counts up from 0 within the task.
        job: u64,
        /// When the job was released.
        released: Time,
        /// Deadline, relative to the release.
        deadline: Nanos,
    },
    /// A task was added to the run, before its first job; or a user has changed its goal.
    Added {
        task: TaskId,
        /// Goal of the task; `None` if it has no deadline.
        goal: Option<TaskGoal>,
    },
    /// Releases of a real-time task were skipped, because too many of its jobs waited: each counts as a late job.
    Skipped {
        task: TaskId,
        /// Number of skipped releases.
        jobs: u32,
    },
    /// The jobs of a core that splits cache and memory with others have changed (updates that take the core from a job
    /// are a change, too), or the clock has, or [`crate::Regulator::look`] asks for it.
    Jobs {
        /// The clock in force.
        clock: Hertz,
        /// The jobs of each core, in the order of the cores; empty where nothing follows them. Deadlines count from the
        /// start of the run.
        cores: Vec<CoreJobs>,
        /// Whether the result of a look ahead is taken up ([`crate::Regulator::look`]).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        foreseen: bool,
    },
    /// A task has ended while the run goes on. Nothing sends it yet.
    Ended { task: TaskId },
    /// Time to decide: the sampling period is over, or a job ended where the loop steps at every job, or should have
    /// ended.
    Period(Vitals),
    /// The machine's answer to the last plan.
    Applied(Applied),
}

/// Readings for one decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vitals {
    /// Readings of the machine's meters.
    pub machine: Readings,
    /// Share of temporal objects that are fresh now.
    pub fresh: Share,
    /// Sensor updates that arrived since the start of the run.
    pub updates_offered: u64,
    /// Updates among them that were admitted.
    pub updates_admitted: u64,
    /// Updates among them that were admitted above the knob because the freshness minimum needed them.
    pub updates_for_minimum: u64,
    /// The admitted share below which no fewer updates are admitted, as admission knows it now.
    pub updates_least: Share,
}

/// Answer of the loop to an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// Answer to [`Event::Period`]: a decision.
    Step(Step),
    /// Answer to [`Event::Begun`] and [`Event::Progressed`], where the job needs another clock, and to [`Event::Jobs`],
    /// where ways and bandwidth change: a plan of those knobs alone.
    Turn(Plan),
}

impl Answer {
    /// The step, if it is one.
    pub fn step(self) -> Option<Step> {
        match self {
            Answer::Step(step) => Some(step),
            Answer::Turn(_) => None,
        }
    }
}

/// The loop's answer to [`Event::Period`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Means over the window that ends here, over the jobs of all real-time tasks.
    pub window: Window,
    /// The task that the law followed: the furthest from its goal. `None` where that task was not measured in this
    /// window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<Lead>,
    /// Pressure of the stage that the knobs are turned for, 1 at its goal: the furthest beyond it in this window, or
    /// else the furthest of those measured not long ago. `None` without a frame for some time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_pressure: Option<f64>,
    /// Positions of the knobs for the next window.
    pub plan: Plan,
    /// Mode of the loop after this window.
    pub mode: ModeName,
    /// Why the loop is in fallback; `None` if it is not.
    pub fallback: Option<String>,
    /// Whether shedding helped, where an experiment on it ends with this window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shedding: Option<SheddingReview>,
}

/// Means over the real-time jobs of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Mean tardiness; `None` where no job finished.
    pub tardiness: Option<f64>,
    /// Mean data response ratio of the same jobs.
    pub drr: Option<f64>,
    /// Jobs that finished in the window.
    pub jobs: u32,
    /// Late jobs among them.
    pub misses: u32,
    /// Share of the offered updates that was admitted; `None` where none was offered.
    pub admitted: Option<f64>,
    /// Share of the offered updates that was admitted above the knob because the freshness minimum needed them.
    pub forced: f64,
    /// Fresh share at the window's end.
    pub fresh: f64,
    /// Mean clock over the jobs of the window, weighted by time, as a share of the top clock: only where jobs are paced
    /// from within, for there the clock is not what the plan said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<f64>,
}
