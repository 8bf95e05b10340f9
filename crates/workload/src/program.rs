//! Programs: what one job does, in units that do not depend on the machine.

use serde::{Deserialize, Serialize};

/// Which objects of a store a program touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    /// The temporal objects that sensors update.
    Sensors,
    /// Ordinary, non-temporal objects.
    Objects,
}

/// One step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Computes for `cycles` cycles of the core's clock and touches no memory outside of its own cache.
    Compute {
        /// Clock cycles.
        cycles: u64,
    },
    /// One read transaction that gets `count` objects, drawn uniformly from `table` with the job's seed.
    Get {
        /// Where from.
        table: Table,
        /// How many objects.
        count: u32,
    },
    /// One write transaction that puts `count` objects of `bytes` bytes into the ordinary objects.
    Put {
        /// How many objects.
        count: u32,
        /// Value size in bytes.
        bytes: u32,
    },
}

/// What one job of a task does, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The steps.
    pub ops: Vec<Op>,
}
