//! Why a run on this machine did not take place, or was broken off.

use punctual_cores::PlaceError;
use punctual_loop::Mismatch;
use punctual_platform::Refusal;
use punctual_store::StoreError;

/// Why a [`Runtime`](crate::linux::Runtime) did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The controller does not fit.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// What tasks name contradicts each other or the machine.
    #[error("{name}: {error}")]
    Place {
        /// The task that the error is about.
        name: String,
        /// What is wrong.
        error: PlaceError,
    },
    /// The store failed; what it acknowledged is kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run failed, and part of the machine could not be put back.
    #[error("{error}; and not put back: {left}")]
    NotPutBack {
        /// Why the run failed.
        error: Box<RuntimeError>,
        /// What is not as it was found.
        left: Refusal,
    },
    /// The machine has no room for one more thread.
    #[error("no thread for `{role}`: {why}; use fewer tasks, or raise the limit on threads (ulimit -u)")]
    Thread {
        /// What it was to do.
        role: String,
        /// In the system's words.
        why: std::io::Error,
    },
    /// A task cannot be added as it is.
    #[error("{name}: {why}")]
    Task {
        /// Its name.
        name: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// No model can be learnt so.
    #[error("learning: {why}")]
    Learning {
        /// What is wrong, and what to do.
        why: String,
    },
    /// The machine could not be opened.
    #[error(transparent)]
    Machine(#[from] Refusal),
    /// A log was asked for that would not replay.
    #[error("a log that replays needs a run without learning: another regulator takes over within it")]
    Unreplayed,
    /// A thread of the runtime asked for its own end.
    #[error(
        "a thread of the runtime cannot wait for its end: stop it here with ask_to_stop, and wait for the report in another thread"
    )]
    Within,
    /// The runtime has ended.
    #[error("the runtime has ended: start another one (the report is given to the first handle that waits for it)")]
    Stopped,
}
