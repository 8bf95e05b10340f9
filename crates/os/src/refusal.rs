//! Refusals by the machine, with reason and remedy.

use serde::{Deserialize, Serialize};

/// A knob that was not set, or a permission that was not granted, with reason and remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct Refusal {
    /// The refused action, e.g. "real-time scheduling (SCHED_FIFO 80)".
    pub what: String,
    /// The machine's reason, e.g. "operation not permitted".
    pub why: String,
    /// Remedy that the user can apply.
    pub remedy: String,
}
