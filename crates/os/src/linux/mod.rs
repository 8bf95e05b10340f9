//! Linux: `CLOCK_MONOTONIC`, futexes, and threads of the kernel.

pub mod clock;
mod stamp;
pub mod sync;
pub mod thread;

use crate::Refusal;

/// A refusal of `what` for the reason that the kernel gave.
fn refused(what: impl Into<String>, why: impl std::fmt::Display, remedy: impl Into<String>) -> Refusal {
    Refusal {
        what: what.into(),
        why: why.to_string(),
        remedy: remedy.into(),
    }
}

/// What the last failed call of this thread into the C library said.
fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}
