//! The report of a run that could not go on.

use std::any::Any;
use std::fmt;

use punctual_units::Time;

use super::kernel::CALLS_PER_INSTANT_MAX;

/// A run that could not go on: why, when, and what each thread was waiting for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} at {at:?}:{}", self.lines())]
pub struct Deadlock {
    /// Why the run was stopped.
    pub cause: DeadlockReason,
    /// The instant at which time stood still.
    pub at: Time,
    /// Each thread that had not ended: its name, and what it waited for.
    pub threads: Vec<(String, String)>,
}

/// Why a run could not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlockReason {
    /// All threads wait, and none until an instant.
    AllWait,
    /// [`CALLS_PER_INSTANT_MAX`] calls were made, and no thread slept.
    TimeStands,
}

impl fmt::Display for DeadlockReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeadlockReason::AllWait => f.write_str("deadlock: all threads wait, and none until an instant,"),
            DeadlockReason::TimeStands => write!(
                f,
                "livelock: {CALLS_PER_INSTANT_MAX} calls without a sleep: let a thread that waits sleep or park,"
            ),
        }
    }
}

impl Deadlock {
    fn lines(&self) -> String {
        let line = |(name, waits): &(String, String)| format!("\n  {name}: {waits}");
        self.threads.iter().map(line).collect()
    }
}

/// What a panic says.
pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(deadlock) = panic.downcast_ref::<Deadlock>() {
        return deadlock.to_string();
    }
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
