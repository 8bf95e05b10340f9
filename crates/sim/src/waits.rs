//! Causes that kept each job of a task with a deadline from progressing, with their times and the other work behind
//! them. The scheduler knows them exactly.

use punctual_units::{Nanos, TaskId, Time};
use smallvec::SmallVec;

/// Other work that keeps a job from progressing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// A job of this task.
    Task(TaskId),
    /// The installation of an update.
    Update,
    /// The group commit of memory-first updates.
    GroupCommit,
    /// The switch of a lent core back to its owners.
    TakeBack,
}

/// Resource that the other work keeps from the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// The core, on which the other work runs.
    Core,
    /// The write lock, whose holder does not commit yet.
    Lock,
    /// The write lock, whose holder commits.
    Commit,
}

/// Time that a job was kept by one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub by: Other,
    /// The resource that was kept.
    pub keeps: Blocker,
    /// Sum over all such waits of the job.
    pub took: Nanos,
}

/// Waits of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waits {
    /// From the job's release until its predecessor was complete.
    pub behind: Nanos,
    /// Waits from then on, in the order of their first occurrence.
    pub by: SmallVec<[Wait; 2]>,
    open: Option<(Other, Blocker)>,
    since: Time,
}

impl Waits {
    /// Starts the waits of a job released at `released` that becomes the next at `now`.
    pub(crate) fn begin(&mut self, released: Time, now: Time) {
        self.behind = now.since(released);
        self.by.clear();
        (self.open, self.since) = (None, now);
    }

    /// From `now` on the job is kept by `open`; `None`: by nothing.
    pub(crate) fn kept(&mut self, open: Option<(Other, Blocker)>, now: Time) {
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
