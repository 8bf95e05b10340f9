//! Programs: what one job does, in units that do not depend on the machine.

use serde::{Deserialize, Serialize};

/// Which objects of a store a program touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectSet {
    /// The temporal objects that sensors update.
    Sensors,
    /// Ordinary objects, which are not temporal.
    Objects,
}

/// A step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Computes for `cycles` cycles of the core's clock and touches no memory outside of its own cache.
    Compute { cycles: u64 },
    /// A read transaction that gets `count` objects, drawn uniformly from `table` with the job's seed.
    Get {
        table: ObjectSet,
        /// Number of objects to get.
        count: u32,
    },
    /// A write transaction that puts `count` objects of `bytes` bytes into the ordinary objects.
    Put {
        /// Number of objects to put.
        count: u32,
        /// Value size in bytes.
        bytes: u32,
    },
}

/// Steps of one job of a task, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub ops: Vec<Op>,
}
