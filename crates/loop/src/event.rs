//! What the loop sees and what it answers: plain values, so that a log of them replays.

use punctual_platform::{Applied, Plan, Readings};
use punctual_units::{Hertz, Nanos, Share, TaskId, Time};
use punctual_workload::{JobOutcome, JobProgress, TaskGoal};
use serde::{Deserialize, Serialize};

use crate::goals::Lead;
use crate::mode::ModeName;
use crate::split::CoreJobs;

/// One thing that happened, as told to [`crate::Regulator::step`].
#[expect(
    clippy::large_enum_variant,
    reason = "an event lives for one step, in which nothing is allocated"
)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A real-time job has come to a checkpoint.
    Progressed(JobProgress),
    /// A job is complete.
    Completed(JobOutcome),
    /// A job of a real-time task still runs past its deadline: told once, before a decision.
    Overdue {
        /// Whose.
        task: TaskId,
        /// Counts up from 0 within the task.
        job: u64,
        /// When the job was released.
        released: Time,
        /// Relative deadline.
        deadline: Nanos,
    },
    /// A task was added to the run, before its first job.
    Added {
        /// Which.
        task: TaskId,
        /// What it asks for; nothing if it has no deadline.
        goal: Option<TaskGoal>,
    },
    /// Releases of a real-time task were skipped, because too many of its jobs waited: each counts as a late job.
    Skipped {
        /// Whose.
        task: TaskId,
        /// How many.
        jobs: u32,
    },
    /// What runs on a core that splits cache and memory with others has changed (updates that take it from a job are a
    /// change, too), or the clock has, or [`crate::Regulator::split_due`] has come.
    Jobs {
        /// The clock in force.
        clock: Hertz,
        /// The jobs of each core, in the order of the cores.
        cores: Vec<CoreJobs>,
    },
    /// It is time to decide: the sampling period is over, or a job ended where the loop steps at every job, or should
    /// have.
    Period(Vitals),
    /// What came of the last plan.
    Applied(Applied),
}

/// All that is read when it is time to decide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vitals {
    /// The machine's meters.
    pub machine: Readings,
    /// Share of temporal objects that are fresh now.
    pub fresh: Share,
    /// Sensor updates that arrived since the start of the run.
    pub updates_offered: u64,
    /// Of those, admitted.
    pub updates_admitted: u64,
    /// Of those, admitted above the knob because the freshness minimum needed them.
    pub updates_for_minimum: u64,
}

/// What the loop answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// To [`Event::Period`].
    Step(Step),
    /// To [`Event::Progressed`], where the clock is to be another one for the rest of the job, and to [`Event::Jobs`],
    /// where ways and bandwidth are: a plan of those knobs alone.
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
    /// What was measured in the window that ends here, over the jobs of all real-time tasks.
    pub window: Window,
    /// The task that the law followed: the furthest from its goal. `None` where that one was not measured in this
    /// window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<Lead>,
    /// Where the knobs are to be.
    pub plan: Plan,
    /// What the loop is doing.
    pub mode: ModeName,
    /// Why the loop is in fallback.
    pub fallback: Option<String>,
}

/// Means over the real-time jobs of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Mean tardiness; `None` where no job finished.
    pub tardiness: Option<f64>,
    /// Mean data response ratio of the same jobs.
    pub drr: Option<f64>,
    /// Jobs that finished.
    pub jobs: u32,
    /// Of those, late.
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
