//! A job on its way through its program, and the account of its time.

use punctual_units::{Nanos, TaskId, Time};
use punctual_workload::{JobOutcome, Op, Split};

use crate::cores::Segment;
use crate::model::{Effort, StoreModel};

/// Where a job is. While the job is served, its stage's time goes to one part of the [`Split`]; while it is ready and
/// the scheduler serves others, to `preempted`.
///
/// ```text
///              ┌────────────────────────── next op ───────────────────────────┐
///              ▼                                                              │
/// Waiting ─► Between ─┬─► Compute ────────────────────────────────────────────┤
///                     ├─► Fill ◄─► Compute (a phase) ─────────────────────────┤
///                     ├─► Polling ─┬─► Blocked (a request) ───────────────────┤
///                     │            └──────────────────────────────────────────┤
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
    /// Standing still until its core has filled ways that it gained.
    Fill,
    /// Waiting for the write lock, or finishing the work of the job that holds it.
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
    /// Without a core until its request is complete.
    Blocked {
        /// When that is.
        done: Time,
    },
    /// Polling for the end of its request, with a core or not.
    Polling {
        /// When it blocks instead, whether it had its core all the time or not.
        until: Time,
        /// When the request is complete.
        done: Time,
    },
}

impl Stage {
    /// Whether the job is inside a call to the store.
    fn in_store(self) -> bool {
        matches!(
            self,
            Stage::Lock { .. } | Stage::Help { .. } | Stage::Access | Stage::Commit
        )
    }
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
    /// The scheduler serves this job: it runs, or waits for a lock that another core holds, or the holder or the
    /// installer runs in its place.
    served: bool,
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
            served: false,
            split: Split::default(),
        }
    }

    /// Goes to another stage; the time since the last change is charged to the one that ends.
    pub fn enter(&mut self, stage: Stage, now: Time) {
        self.charge(now);
        self.stage = stage;
    }

    /// From `now` on the scheduler serves this job, or does not.
    pub fn serve(&mut self, served: bool, now: Time) {
        if served != self.served {
            self.charge(now);
            self.served = served;
        }
    }

    /// Books the time since the last change.
    fn charge(&mut self, now: Time) {
        let span = now.since(self.since);
        self.since = now;
        if !self.served && !matches!(self.stage, Stage::Waiting | Stage::Blocked { .. }) {
            self.split.preempted += span;
            if self.stage.in_store() {
                self.split.preempted_in_store += span;
            }
            return;
        }
        *match self.stage {
            Stage::Waiting => &mut self.split.released_late,
            Stage::Between | Stage::Compute => &mut self.split.computation,
            Stage::Lock { .. } => &mut self.split.lock,
            Stage::Fill | Stage::Help { .. } | Stage::Access | Stage::Blocked { .. } | Stage::Polling { .. } => {
                &mut self.split.data
            }
            Stage::Commit => &mut self.split.commit,
        } += span;
    }

    /// Goes to a stage with work of its own.
    pub fn work(&mut self, stage: Stage, effort: Effort, now: Time) {
        self.enter(stage, now);
        self.segment = Segment::new(effort);
    }

    /// The part of its op that is still to do, 1 down to 0, while it has no core.
    pub fn left(&self) -> f64 {
        match self.stage {
            Stage::Compute | Stage::Fill | Stage::Access => self.segment.left,
            _ => 1.0,
        }
    }

    /// When its request is complete, if it waits for one without a core.
    pub fn blocked_until(&self) -> Option<Time> {
        match self.stage {
            Stage::Blocked { done } => Some(done),
            _ => None,
        }
    }

    /// Whether it waits for a request.
    pub fn waits_for_io(&self) -> bool {
        matches!(self.stage, Stage::Blocked { .. } | Stage::Polling { .. })
    }

    /// Its request is complete.
    pub fn io_ended(&mut self, now: Time) {
        self.enter(Stage::Between, now);
        self.op += 1;
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
