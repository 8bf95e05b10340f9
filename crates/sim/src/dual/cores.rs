//! What a core is doing.

use punctual_units::{Nanos, Time};

use super::report::CoreTimes;

/// What a core is doing, and until when unless something comes in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Nothing,
    /// Changing from whom it was lent to, so that its own tasks find it ready.
    TakingBack {
        until: Time,
    },
    /// Changing to this task.
    Switching {
        task: usize,
        until: Time,
    },
    /// To the end of a step or of the slice.
    Running {
        task: usize,
        until: Time,
    },
    /// For an I/O that will be complete at `done`; no longer than `until`.
    Polling {
        task: usize,
        until: Time,
        done: Time,
    },
}

/// A core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Core {
    pub doing: Doing,
    /// Whether it is a real-time task's alone.
    pub exclusive: bool,
    /// The end of the running job's slice.
    pub slice_end: Time,
    /// The end of the lease, where it is lent.
    pub lease_end: Time,
    /// Whether it was taken back since anybody ran: its own task need not be switched to.
    pub taken_back: bool,
    pub times: CoreTimes,
}

impl Core {
    pub fn new(exclusive: bool) -> Core {
        Core {
            doing: Doing::Nothing,
            exclusive,
            slice_end: Time::MAX,
            lease_end: Time::MAX,
            taken_back: false,
            times: CoreTimes::default(),
        }
    }

    /// Whose it is.
    pub fn task(&self) -> Option<usize> {
        match self.doing {
            Doing::Nothing | Doing::TakingBack { .. } => None,
            Doing::Switching { task, .. } | Doing::Running { task, .. } | Doing::Polling { task, .. } => Some(task),
        }
    }

    pub fn is_idle(&self) -> bool {
        self.doing == Doing::Nothing
    }

    /// When something happens here.
    pub fn until(&self) -> Option<Time> {
        match self.doing {
            Doing::Nothing => None,
            Doing::TakingBack { until }
            | Doing::Switching { until, .. }
            | Doing::Running { until, .. }
            | Doing::Polling { until, .. } => Some(until),
        }
    }

    /// Counts `span` for what it is doing.
    pub fn pass(&mut self, span: Nanos) {
        let counter = match self.doing {
            Doing::Nothing => &mut self.times.idle,
            Doing::TakingBack { .. } | Doing::Switching { .. } => &mut self.times.switching,
            Doing::Running { .. } => &mut self.times.computing,
            Doing::Polling { .. } => &mut self.times.polling,
        };
        *counter += span;
    }
}
