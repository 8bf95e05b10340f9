//! Errors that prevent a run on this machine, or end it early.

use punctual_cores::PlaceError;
use punctual_loop::Mismatch;
use punctual_platform::Refusal;
use punctual_store::StoreError;

/// Why a [`Runtime`](crate::linux::Runtime) did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The controller does not fit this machine or these tasks.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The cores that tasks name contradict each other or the machine.
    #[error("{name}: {error}")]
    Place {
        /// The task that the error is about.
        name: String,
        /// The contradiction, and its remedy.
        error: PlaceError,
    },
    /// The store failed; everything that it acknowledged is kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run failed, and part of the machine could not be restored.
    #[error("{error}; and not restored: {left}")]
    NotPutBack {
        /// Why the run failed.
        error: Box<RuntimeError>,
        /// The settings that could not be restored.
        left: Refusal,
    },
    /// The system refused one more thread.
    #[error("no thread for `{role}`: {why}; use fewer tasks, or raise the limit on threads (ulimit -u)")]
    Thread {
        /// Purpose of the refused thread.
        role: String,
        /// The system's error, with its error number.
        why: std::io::Error,
    },
    /// A task cannot be added with these options.
    #[error("{name}: {why}")]
    Task {
        /// Name of the rejected task.
        name: String,
        /// The problem and its remedy, for the user.
        why: String,
    },
    /// No model can be learnt from this run.
    #[error("learning: {why}")]
    Learning {
        /// The problem and its remedy, for the user.
        why: String,
    },
    /// The machine could not be opened.
    #[error(transparent)]
    Machine(#[from] Refusal),
    /// The requested log would not replay.
    #[error("a log that replays needs a run without learning: another regulator takes over within it")]
    Unreplayed,
    /// A thread of the runtime tried to wait for the runtime's end.
    #[error(
        "a thread of the runtime cannot wait for its end: stop it here with ask_to_stop, and wait for the report in another thread"
    )]
    Within,
    /// The runtime has ended and accepts no further calls.
    #[error("the runtime has ended: start another one (the report is given to the first handle that waits for it)")]
    Stopped,
}
