//! What a machine has to do: tasks, the jobs that they release, and the steps of those.
//!
//! There is one kind of job, a list of [`Step`]s, and one kind of [`Task`]. How long a step takes emerges from where it
//! runs; [`Dispatch`] says which job runs where.

use punctual_units::{Nanos, Time};
use punctual_workload::{Active, Arrival, Op};

use crate::media::{Device, Request};
use crate::queue::{Lending, Queue};
use crate::split::{Program, SplitModel};

/// A step of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Cycles to compute, or an access to the store with the lock that it needs.
    Op(Op),
    /// The instructions of this phase of the task's program, from 0.
    Phase(usize),
    /// A request to one of the devices, which must be complete before the next step.
    Io {
        /// Which device, by its place in [`Work::devices`].
        device: usize,
        /// What is asked of it.
        request: Request,
    },
}

/// When jobs are released.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Release {
    /// As in a scenario.
    Arrival(Arrival),
    /// The first at `first`, each other a `period` after the one before was released, or when that one ends if that is
    /// later: a late player goes on at once and does not catch up, so each job is judged from its own release.
    Paced {
        /// The first release.
        first: Time,
        /// Between two releases.
        period: Nanos,
    },
}

/// What the jobs of a task do, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Jobs {
    /// All the same.
    Alike(Vec<Step>),
    /// What this list says; then there are no more.
    Once(Vec<Vec<Step>>),
    /// What this list says, again and again.
    Cycled(Vec<Vec<Step>>),
}

impl Jobs {
    /// The lists of steps.
    pub fn lists(&self) -> &[Vec<Step>] {
        match self {
            Jobs::Alike(steps) => std::slice::from_ref(steps),
            Jobs::Once(lists) | Jobs::Cycled(lists) => lists,
        }
    }

    /// How many jobs there are; no number where there is no end.
    pub fn count(&self) -> Option<usize> {
        match self {
            Jobs::Once(lists) => Some(lists.len()),
            Jobs::Alike(_) | Jobs::Cycled(_) => None,
        }
    }
}

/// What is released again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// For people.
    pub name: String,
    /// From release to deadline; none for best-effort tasks.
    pub deadline: Option<Nanos>,
    /// When its jobs are released.
    pub release: Release,
    /// When it is switched on.
    pub active: Active,
    /// The core that it is pinned to, from 0; none for a task of the queue that cores share.
    pub core: Option<usize>,
    /// What each job does.
    pub jobs: Jobs,
    /// The program whose phases it runs, by its place in [`Work::split`].
    pub program: Option<usize>,
    /// Jobs that may wait behind the running one. A release beyond that is skipped.
    pub backlog_max: usize,
}

/// Which job runs where. The first two are rules by which each core chooses among the jobs that are pinned to it; both
/// preempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Real-time jobs first, the shorter relative deadline before the longer; then the store's updates and group
    /// commits; then best-effort jobs in the order of their release.
    FixedPriority,
    /// The earliest absolute deadline first; of equal ones, the job that runs, or that was released first.
    EarliestDeadline,
    /// All cores take from one queue, but for those that are lent, on which the tasks that are pinned there come first,
    /// by earliest deadline.
    Queue(Queue),
}

/// Tasks without a store.
#[derive(Clone, Debug)]
pub struct Work {
    /// The tasks, by [`TaskId`](punctual_units::TaskId).
    pub tasks: Vec<Task>,
    /// Which job runs where.
    pub scheduling: Dispatch,
    /// What the cores split, and the programs that run under it.
    pub split: Option<(SplitModel, Vec<Program>)>,
    /// What is lent, where cores take from a queue: the cores that tasks are pinned to.
    pub lending: Option<Lending>,
    /// What tasks ask for data.
    pub devices: Vec<Device>,
    /// Seeds what is drawn: gaps between jobs.
    pub seed: u64,
}
