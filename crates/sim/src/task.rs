//! Tasks of a machine, the jobs that they release, and the steps of jobs.
//!
//! There is one kind of job, a list of [`Step`]s, and one kind of [`Task`]. The duration of a step emerges from where
//! it runs; [`Dispatch`] decides which job runs where.

use punctual_cores::Completion;
use punctual_units::{Nanos, Time};
use punctual_workload::{Active, Arrival, Op};

use crate::device::{Device, PageRequest};
use crate::shared::SharingRule;
use crate::split::{RunnableProfile, SplitModel};

/// A step of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Cycles to compute, or an access to the store with the lock that it needs.
    Op(Op),
    /// The instructions of this phase of the task's program, from 0.
    Phase(usize),
    /// A request to one of the devices, which must be complete before the next step.
    Io {
        /// Index of the device in [`TaskWorkload::devices`].
        device: usize,
        /// Pages to read or write.
        request: PageRequest,
    },
}

/// When jobs are released.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Release {
    /// As in a scenario.
    Arrival(Arrival),
    /// The first at `first`, each other a `period` after the release of its predecessor, or when that one ends if that
    /// is later: a late player goes on at once and does not catch up, so each job is judged from its own release.
    Paced {
        /// Instant of the first release.
        first: Time,
        /// Time between two releases.
        period: Nanos,
    },
    /// When the caller says ([`Simulation::call`](crate::Simulation::call)), one job after the other.
    Called,
}

/// Steps of a task's jobs, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Jobs {
    /// Every job has these steps.
    Alike(Vec<Step>),
    /// Every job has its own steps from this list; after the last, no more jobs are released.
    Once(Vec<Vec<Step>>),
    /// Jobs have the steps of this list in turn, from the beginning again after the last.
    Cycled(Vec<Vec<Step>>),
}

impl Jobs {
    /// The lists of steps, as given.
    pub fn lists(&self) -> &[Vec<Step>] {
        match self {
            Jobs::Alike(steps) => std::slice::from_ref(steps),
            Jobs::Once(lists) | Jobs::Cycled(lists) => lists,
        }
    }

    /// Number of jobs; `None`: no end.
    pub fn count(&self) -> Option<usize> {
        match self {
            Jobs::Once(lists) => Some(lists.len()),
            Jobs::Alike(_) | Jobs::Cycled(_) => None,
        }
    }
}

/// A task that releases jobs again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Name for messages and reports.
    pub name: String,
    /// From release to deadline; `None` for best-effort tasks.
    pub deadline: Option<Nanos>,
    /// When jobs are released.
    pub release: Release,
    /// Time in which the task is switched on.
    pub active: Active,
    /// The core to which the task is pinned, from 0; `None` for a task that cores share.
    pub core: Option<usize>,
    /// Steps of the jobs.
    pub jobs: Jobs,
    /// Index in [`TaskWorkload::split`] of the program whose phases the jobs run.
    pub program: Option<usize>,
    /// Bound on the jobs that wait behind the running one. A release beyond it is skipped.
    pub backlog_max: usize,
}

/// Rule by which each core chooses among the jobs that are pinned to it; both preempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Real-time jobs first, the shorter relative deadline before the longer; then the store's updates and group
    /// commits; then best-effort jobs in the order of their release.
    FixedPriority,
    /// The earliest absolute deadline first; of equal ones, the running job, or the one released first.
    EarliestDeadline,
}

/// Tasks without a store.
#[derive(Clone, Debug)]
pub struct TaskWorkload {
    /// Tasks in the order of their [`TaskId`](punctual_units::TaskId).
    pub tasks: Vec<Task>,
    /// Rule that assigns jobs to cores.
    pub scheduling: Dispatch,
    /// Cache and memory that the cores split, and the programs that run on them; `None`: not split.
    pub split: Option<(SplitModel, Vec<RunnableProfile>)>,
    /// Rule by which all cores share their jobs, in place of `scheduling`.
    pub rule: Option<Box<dyn SharingRule>>,
    /// Wait of a job that is pinned to its core, for each device; it blocks where there is none.
    pub waits: Vec<Completion>,
    /// Devices that serve the jobs' requests.
    pub devices: Vec<Box<dyn Device>>,
    /// Seed of the gaps between jobs.
    pub seed: u64,
}
