//! What kept each job of a task with a deadline from going on, for how long, and by which other work: the scheduler
//! knows it exactly.

use punctual_units::{Nanos, TaskId, Time};
use smallvec::SmallVec;

/// Work that keeps a job from going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// A job of this task.
    Task(TaskId),
    /// An update on its way into the store.
    Update,
    /// The group commit of memory-first updates.
    GroupCommit,
    /// The change of a lent core back to its owners.
    TakeBack,
}

/// What it does there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// It has the core.
    Core,
    /// It holds the write lock, and does not commit yet.
    Lock,
    /// It holds the write lock, and commits.
    Commit,
}

/// For how long a job was kept by one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// By which work.
    pub by: Other,
    /// By what it did.
    pub keeps: Keeps,
    /// For how long in sum.
    pub took: Nanos,
}

/// What kept a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waits {
    /// From its release until the job before was complete.
    pub behind: Nanos,
    /// From then on, in the order in which they first kept it.
    pub by: SmallVec<[Wait; 2]>,
    open: Option<(Other, Keeps)>,
    since: Time,
}

impl Waits {
    /// Of a job released at `released` that comes next at `now`.
    pub(crate) fn begin(&mut self, released: Time, now: Time) {
        self.behind = now.since(released);
        self.by.clear();
        (self.open, self.since) = (None, now);
    }

    /// From `now` on it is kept so.
    pub(crate) fn kept(&mut self, open: Option<(Other, Keeps)>, now: Time) {
        if open == self.open {
            return;
        }
        if let Some((by, keeps)) = std::mem::replace(&mut self.open, open) {
            let took = now.since(self.since);
            match self.by.iter_mut().find(|wait| (wait.by, wait.keeps) == (by, keeps)) {
                Some(wait) => wait.took += took,
                None if took > Nanos::ZERO => self.by.push(Wait { by, keeps, took }),
                None => {}
            }
        }
        self.since = now;
    }
}
