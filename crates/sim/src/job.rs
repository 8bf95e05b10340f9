//! Progress of a job through its program, and the split of its time.

use punctual_units::{Nanos, TaskId, Time};
use punctual_workload::{JobOutcome, Op, Split};

use crate::cores::Segment;
use crate::model::{Effort, StoreModel};

/// Stage of a job. While the job is served, its stage's time goes to one part of the [`Split`]; while it is ready and
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
pub(crate) enum JobStage {
    /// Released, but not started yet.
    Waiting,
    /// After one op and before the next.
    Between,
    Compute,
    /// Standing still until the job's core has filled ways that it gained.
    Fill,
    /// Waiting for the write lock, or finishing the work of the job that holds it.
    Lock {
        /// Position in the update queue up to which this op sees updates; see [`JobStage::Help`].
        through: u64,
    },
    /// Installing the updates that were admitted before this op began.
    Help {
        /// Queue position, counted from the start of the run, up to which updates must be installed first.
        through: u64,
    },
    /// In a call of the store.
    Access,
    Commit,
    /// Without a core until the job's request is complete.
    Blocked {
        done: Time,
    },
    /// Polling for the end of the job's request, with a core or not.
    Polling {
        /// When the job blocks instead, whether it had its core all the time or not.
        until: Time,
        /// When the request is complete.
        done: Time,
    },
}

impl JobStage {
    /// Whether the job is inside a call to the store.
    fn in_store(self) -> bool {
        matches!(
            self,
            JobStage::Lock { .. } | JobStage::Help { .. } | JobStage::Access | JobStage::Commit
        )
    }
}

/// A released job: stage, work left, and time so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleasedJob {
    pub number: u64,
    pub released: Time,
    /// Index in the program of the present, or of the next, op.
    pub op: usize,
    pub stage: JobStage,
    /// Work left in the stage; meaningless in stages without work of their own.
    pub segment: Segment,
    since: Time,
    /// Whether the scheduler serves this job: it runs, or waits for a lock that another core holds, or the holder or
    /// the installer runs in its place.
    served: bool,
    split: Split,
}

impl ReleasedJob {
    pub fn new(number: u64, released: Time) -> ReleasedJob {
        ReleasedJob {
            number,
            released,
            op: 0,
            stage: JobStage::Waiting,
            segment: Segment::new(Effort::default()),
            since: released,
            served: false,
            split: Split::default(),
        }
    }

    /// Enters another stage; the time since the last change is charged to the stage that ends.
    pub fn enter(&mut self, stage: JobStage, now: Time) {
        self.charge(now);
        self.stage = stage;
    }

    /// Notes whether the scheduler serves this job from `now` on.
    pub fn serve(&mut self, served: bool, now: Time) {
        if served != self.served {
            self.charge(now);
            self.served = served;
        }
    }

    /// Charges the time since the last change.
    fn charge(&mut self, now: Time) {
        let span = now.since(self.since);
        self.since = now;
        if !self.served && !matches!(self.stage, JobStage::Waiting | JobStage::Blocked { .. }) {
            self.split.preempted += span;
            if self.stage.in_store() {
                self.split.preempted_in_store += span;
            }
            return;
        }
        *match self.stage {
            JobStage::Waiting => &mut self.split.released_late,
            JobStage::Between | JobStage::Compute => &mut self.split.computation,
            JobStage::Lock { .. } => &mut self.split.lock,
            JobStage::Fill
            | JobStage::Help { .. }
            | JobStage::Access
            | JobStage::Blocked { .. }
            | JobStage::Polling { .. } => &mut self.split.data,
            JobStage::Commit => &mut self.split.commit,
        } += span;
    }

    /// Enters a stage with work of its own.
    pub fn work(&mut self, stage: JobStage, effort: Effort, now: Time) {
        self.enter(stage, now);
        self.segment = Segment::new(effort);
    }

    /// Fraction of the present op still to do, 1 down to 0, while the job has no core.
    pub fn left(&self) -> f64 {
        match self.stage {
            JobStage::Compute | JobStage::Fill | JobStage::Access => self.segment.left,
            _ => 1.0,
        }
    }

    /// When the job's request is complete, if the job waits for it without a core.
    pub fn blocked_until(&self) -> Option<Time> {
        match self.stage {
            JobStage::Blocked { done } => Some(done),
            _ => None,
        }
    }

    /// Whether the job waits for a request.
    pub fn waits_for_io(&self) -> bool {
        matches!(self.stage, JobStage::Blocked { .. } | JobStage::Polling { .. })
    }

    /// Goes on to the next op: the job's request is complete.
    pub fn io_ended(&mut self, now: Time) {
        self.enter(JobStage::Between, now);
        self.op += 1;
    }

    /// Outcome of the job, which ended at the instant it entered its present stage.
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

/// Work of an op before its commit, if it has one.
pub(crate) fn effort_of(op: Op, store: &StoreModel) -> Effort {
    match op {
        Op::Compute { cycles } => Effort::new(cycles as f64, 0.0),
        Op::Get { count, .. } => store.read_txn + store.get * f64::from(count),
        Op::Put { count, .. } => store.write_begin + store.put * f64::from(count),
    }
}
