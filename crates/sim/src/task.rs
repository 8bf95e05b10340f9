//! What a machine has to do: tasks, the jobs that they release, and the steps of those.
//!
//! There is one kind of job, a list of [`Step`]s, and one kind of [`Task`]. How long a step takes emerges from where it
//! runs; who runs where is [`Scheduling`].

use punctual_units::Nanos;
use punctual_workload::{Active, Arrival, Op};

use crate::split::{Program, SplitModel};

/// A step of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Cycles to compute, or an access to the store with the lock that it needs.
    Op(Op),
    /// The instructions of this phase of the task's program, from 0.
    Phase(usize),
}

/// What is released again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// For people.
    pub name: String,
    /// From release to deadline; none for best-effort tasks.
    pub deadline: Option<Nanos>,
    /// When its jobs are released.
    pub arrival: Arrival,
    /// When it is switched on.
    pub active: Active,
    /// The core that it is pinned to, from 0.
    pub core: usize,
    /// What each job does; not empty.
    pub steps: Vec<Step>,
    /// The program whose phases it runs, by its place in [`Work::split`].
    pub program: Option<usize>,
    /// Jobs that may wait behind the running one. A release beyond that is skipped.
    pub backlog_max: usize,
}

/// By which rule a core chooses among the jobs that are pinned to it. Both preempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// Real-time jobs first, the shorter relative deadline before the longer; then the store's updates and group commits;
    /// then best-effort jobs in the order of their release.
    FixedPriority,
    /// The earliest absolute deadline first; of equal ones, the job that runs, or that was released first.
    EarliestDeadline,
}

/// Tasks without a store.
#[derive(Clone, Debug)]
pub struct Work {
    /// The tasks, by [`TaskId`](punctual_units::TaskId).
    pub tasks: Vec<Task>,
    /// Who runs where.
    pub scheduling: Scheduling,
    /// What the cores split, and the programs that run under it.
    pub split: Option<(SplitModel, Vec<Program>)>,
    /// Seeds what is drawn: gaps between jobs.
    pub seed: u64,
}
