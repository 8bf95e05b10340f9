//! What was refused, why, and what would help.

use serde::{Deserialize, Serialize};

/// A knob that was not turned, or a permission that was not given: what, why, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct Refusal {
    /// What was refused, e.g. "real-time scheduling (SCHED_FIFO 80)".
    pub what: String,
    /// The machine's reason, e.g. "operation not permitted".
    pub why: String,
    /// What the user can do about it.
    pub remedy: String,
}
