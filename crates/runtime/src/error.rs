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
    /// The run ended before it began.
    #[error("a thread of the run ended early: see the messages above")]
    Stopped,
}
