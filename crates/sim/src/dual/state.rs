//! Where a task is: its job, its step, and whether it runs.

use punctual_units::{Nanos, Time};

use super::{Release, Step, Task};

/// Whether a task runs, and if not, what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Until its next release.
    Sleeping(Time),
    /// Until its I/O is complete.
    Blocked(Time),
    /// In the ready queue, and not to be taken from it before.
    Held(Time),
    /// In the ready queue.
    Ready,
    /// On this core.
    On(usize),
    /// All its jobs have ended.
    Finished,
}

/// An I/O that is polled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Poll {
    /// When the job blocks instead, whether it had its core all the time or not.
    pub until: Time,
    /// When the I/O is complete.
    pub done: Time,
}

/// A task at work.
#[derive(Clone, Debug)]
pub(super) struct Progress<'t> {
    pub task: &'t Task,
    /// Its exclusive core, if it has one.
    pub place: Option<usize>,
    /// The core on which it ran last.
    pub last: Option<usize>,
    pub state: State,
    pub job: usize,
    pub step: usize,
    /// Of a computation that has begun.
    pub left: Nanos,
    /// An I/O that it was polling for when it lost its core.
    pub polled: Option<Poll>,
    /// What it ran in the fair class, in nanoseconds; see `engine`.
    pub virtual_runtime: u64,
    pub begun: Time,
    pub waited: Nanos,
    pub io: Nanos,
    pub job_computed: Nanos,
    pub switching: Nanos,
    pub requests: u32,
    /// In all its jobs.
    pub computed: Nanos,
    pub ended_jobs: u64,
}

impl<'t> Progress<'t> {
    pub fn new(task: &'t Task, place: Option<usize>) -> Progress<'t> {
        let state = match task.release {
            _ if task.jobs.is_empty() => State::Finished,
            Release::Periodic { first, .. } => State::Sleeping(first),
            Release::Forever => State::Sleeping(Time::ZERO),
        };
        Progress {
            task,
            place,
            last: None,
            state,
            job: 0,
            step: 0,
            left: Nanos::ZERO,
            polled: None,
            virtual_runtime: 0,
            begun: Time::ZERO,
            waited: Nanos::ZERO,
            io: Nanos::ZERO,
            job_computed: Nanos::ZERO,
            switching: Nanos::ZERO,
            requests: 0,
            computed: Nanos::ZERO,
            ended_jobs: 0,
        }
    }

    pub fn is_real_time(&self) -> bool {
        matches!(self.task.release, Release::Periodic { .. })
    }

    /// When its job must end; never for interactive ones.
    pub fn deadline(&self) -> Time {
        match self.task.release {
            Release::Periodic { deadline, .. } => self.begun + deadline,
            Release::Forever => Time::MAX,
        }
    }

    /// The step that it is at; none at the end of the job.
    pub fn current(&self) -> Option<Step> {
        self.task.jobs.get(self.job)?.get(self.step).copied()
    }

    /// Begins its job at `now`.
    pub fn begin(&mut self, now: Time) {
        (self.begun, self.step, self.requests) = (now, 0, 0);
        (self.waited, self.io) = (Nanos::ZERO, Nanos::ZERO);
        (self.job_computed, self.switching) = (Nanos::ZERO, Nanos::ZERO);
    }

    /// Counts `span` of its step as done.
    pub fn compute(&mut self, span: Nanos) {
        self.left = self.left - span;
        self.job_computed += span;
        self.computed += span;
        self.virtual_runtime += span.0;
    }

    /// When it will be ready of itself, if it will.
    pub fn wakes(&self) -> Option<Time> {
        match self.state {
            State::Sleeping(at) | State::Blocked(at) | State::Held(at) => Some(at),
            State::Ready | State::On(_) | State::Finished => None,
        }
    }
}
