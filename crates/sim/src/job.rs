//! A job on its way through its program, and the account of its time.

use punctual_units::{Nanos, TaskId, Time};
use punctual_workload::{JobOutcome, Op, Split};

use crate::cores::Segment;
use crate::model::{Effort, StoreModel};

/// Where a job is. Each stage charges its time, preemption included, to one part of the [`Split`].
///
/// ```text
///              ┌────────────────────────── next op ───────────────────────────┐
///              ▼                                                              │
/// Waiting ─► Between ─┬─► Compute ────────────────────────────────────────────┤
///                     └─► Lock ─► Help ─► Access ─┬───────────────────────────┤
///                                                 └─► Commit (a put) ─────────┘
/// ```
///
/// Only real-time jobs pass through `Lock` and `Help`: best-effort jobs use other databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Released, not started.
    Waiting,
    /// One op is done, the next has not begun.
    Between,
    /// Computing.
    Compute,
    /// Waiting for the write lock, or finishing the work of who holds it.
    Lock {
        /// The place in the update queue up to which this op sees updates; see [`Stage::Help`].
        through: u64,
    },
    /// Installing the updates that were admitted before this op began.
    Help {
        /// Places of the queue, counted from the start of the run, that must be empty first.
        through: u64,
    },
    /// Inside the store.
    Access,
    /// Committing.
    Commit,
}

/// A job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub number: u64,
    pub released: Time,
    /// Index of the present, or of the next, op of the program.
    pub op: usize,
    pub stage: Stage,
    /// What the stage has to do; of no meaning in stages without work of their own.
    pub segment: Segment,
    since: Time,
    split: Split,
}

impl Job {
    pub fn new(number: u64, released: Time) -> Job {
        Job {
            number,
            released,
            op: 0,
            stage: Stage::Waiting,
            segment: Segment::new(Effort::default()),
            since: released,
            split: Split::default(),
        }
    }

    /// Goes to another stage; the time since the last change is charged to the one that ends.
    pub fn enter(&mut self, stage: Stage, now: Time) {
        let part = match self.stage {
            Stage::Waiting => &mut self.split.wait,
            Stage::Between | Stage::Compute => &mut self.split.computation,
            Stage::Lock { .. } => &mut self.split.lock,
            Stage::Help { .. } | Stage::Access => &mut self.split.data,
            Stage::Commit => &mut self.split.commit,
        };
        *part += now.since(self.since);
        self.since = now;
        self.stage = stage;
    }

    /// Goes to a stage with work of its own.
    pub fn work(&mut self, stage: Stage, effort: Effort, now: Time) {
        self.enter(stage, now);
        self.segment = Segment::new(effort);
    }

    /// The part of its op that is still to do, 1 down to 0, while it has no core.
    pub fn left(&self) -> f64 {
        match self.stage {
            Stage::Compute | Stage::Access => self.segment.left,
            _ => 1.0,
        }
    }

    /// What came of the job, which ended at the instant it entered its present stage.
    pub fn outcome(&self, task: TaskId, deadline: Option<Nanos>) -> JobOutcome {
        JobOutcome {
            task,
            job: self.number,
            released: self.released,
            deadline,
            finished: self.since,
            split: self.split,
        }
    }
}

/// What an op needs before its commit, if it has one.
pub(crate) fn effort_of(op: Op, store: &StoreModel) -> Effort {
    match op {
        Op::Compute { cycles } => Effort::new(cycles as f64, 0.0),
        Op::Get { count, .. } => store.read_txn + store.get * f64::from(count),
        Op::Put { count, .. } => store.write_begin + store.put * f64::from(count),
    }
}
