//! Thread ids, and the scheduling of threads.

use serde::{Deserialize, Serialize};

/// Id of a thread in its operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tid(pub i32);

impl std::fmt::Display for Tid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Scheduling policy of a thread; the names are Linux's (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// `SCHED_OTHER`: a fair share; nice -20 (most) to 19 (least).
    Other { nice: i32 },
    /// `SCHED_BATCH`: a fair share without a claim to wake early.
    Batch { nice: i32 },
    /// `SCHED_IDLE`: only time that no other thread wants.
    Idle,
    /// `SCHED_FIFO`: real time, 1 (low) to 99 (high), until it blocks or yields.
    Fifo(u8),
    /// `SCHED_RR`: real time, 1 to 99, in turns among equals.
    RoundRobin(u8),
}

/// Priorities of `SCHED_FIFO` and `SCHED_RR` on Linux (sched_get_priority_min(2), _max(2)).
pub const REAL_TIME_PRIORITIES: std::ops::RangeInclusive<u8> = 1..=99;

impl std::fmt::Display for Scheduling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scheduling::Other { nice: 0 } => f.write_str("ordinary"),
            Scheduling::Other { nice } => write!(f, "ordinary, nice {nice}"),
            Scheduling::Batch { .. } => f.write_str("SCHED_BATCH"),
            Scheduling::Idle => f.write_str("SCHED_IDLE"),
            Scheduling::Fifo(priority) => write!(f, "SCHED_FIFO {priority}"),
            Scheduling::RoundRobin(priority) => write!(f, "SCHED_RR {priority}"),
        }
    }
}

impl Scheduling {
    /// Real-time priority, 1 to 99; 0 under the fair scheduler, whose shares are not inherited.
    pub fn rank(self) -> u8 {
        match self {
            Scheduling::Fifo(priority) | Scheduling::RoundRobin(priority) => priority,
            Scheduling::Other { .. } | Scheduling::Batch { .. } | Scheduling::Idle => 0,
        }
    }
}

/// A thread to be started by [`Os::together`](crate::Os::together).
pub struct Thread<'t> {
    /// Name of the thread in messages.
    pub name: String,
    /// Function that the thread runs.
    pub body: Box<dyn FnOnce() + Send + 't>,
}

impl<'t> Thread<'t> {
    /// Makes a thread called `name` that runs `body`; does not start it.
    pub fn new(name: impl Into<String>, body: impl FnOnce() + Send + 't) -> Self {
        Thread {
            name: name.into(),
            body: Box::new(body),
        }
    }
}
