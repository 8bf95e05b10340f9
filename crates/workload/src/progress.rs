//! Progress of a job, reported at boundaries between its ops while it runs.
//!
//! A *checkpoint* is a boundary at which progress is reported. A job has at most [`CHECKPOINTS_MAX`] of them, evenly
//! spread over its ops, so that reporting costs next to nothing and the receiver needs a fixed amount of room.

use punctual_units::{Nanos, TaskId, Time};
use serde::{Deserialize, Serialize};

/// Checkpoints of one job at most, its end included. A job that reads in sixteen rounds has one after each read and
/// each computation; finer than that, the clock could hardly follow (a change takes 140 us on the Exynos 5422).
pub const CHECKPOINTS_MAX: usize = 32;

/// A job under way, at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProgress {
    pub task: TaskId,
    /// Counts up from 0 within the task.
    pub job: u64,
    /// When the job was released.
    pub released: Time,
    /// Deadline, relative to the release: only real-time jobs report their progress.
    pub deadline: Nanos,
    /// When the job reached this checkpoint.
    pub at: Time,
    /// The checkpoint, from 1.
    pub done: u32,
    /// Checkpoints in all: the last one is the job's end, which its outcome reports.
    pub of: u32,
}

/// The checkpoint (from 1) that a program of `ops` ops reaches with the end of its `done`-th op, and how many there
/// are; `None` if that is no checkpoint. The program's end is the last checkpoint, and is never returned.
///
/// ```
/// use punctual_workload::checkpoint;
/// assert_eq!(checkpoint(1, 4), Some((1, 4)));
/// assert_eq!(checkpoint(4, 4), None);
/// // 65 ops: every third boundary.
/// assert_eq!((checkpoint(2, 65), checkpoint(3, 65)), (None, Some((1, 22))));
/// ```
pub fn checkpoint(done: usize, ops: usize) -> Option<(u32, u32)> {
    let every = ops.div_ceil(CHECKPOINTS_MAX).max(1);
    let is_one = done > 0 && done < ops && done.is_multiple_of(every);
    is_one.then(|| ((done / every) as u32, ops.div_ceil(every) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn checkpoints_count_up_without_gaps_and_are_few(ops in 1usize..5000) {
            let told: Vec<(u32, u32)> = (0..=ops).filter_map(|done| checkpoint(done, ops)).collect();
            for (i, (done, of)) in told.iter().enumerate() {
                prop_assert_eq!((*done, *of as usize), (i as u32 + 1, told.len() + 1));
            }
            prop_assert!(told.len() < CHECKPOINTS_MAX);
            prop_assert!(ops < 2 || !told.is_empty());
        }
    }
}
