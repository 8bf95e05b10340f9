//! What cannot be simulated.

use thiserror::Error;

/// Why a task set did not run to its end.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PartitionedError {
    /// A task that cannot be.
    #[error("task {task}: {what}")]
    Task {
        /// Its number, from 0.
        task: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A machine that cannot be.
    #[error("the machine: {0}")]
    Machine(String),
    /// A duration that cannot be.
    #[error("a duration of {0} s: give a finite one, not less than 0")]
    Duration(f64),
    /// More jobs than are kept.
    #[error("{jobs:.0} jobs in all, at most {most:.0} are simulated: give a shorter duration, or longer periods")]
    Jobs {
        /// How many the tasks release.
        jobs: f64,
        /// How many there may be.
        most: f64,
    },
    /// More was handed out than there is, or a way twice.
    #[error("at {now} s more was handed out than there is: {slices}")]
    Overdrawn {
        /// When (s).
        now: f64,
        /// What was handed out.
        slices: String,
    },
    /// Jobs that get nothing, or that are so slow that they do not end.
    #[error(
        "task {task} does not end: its job released at {released} s is not done at {now} s; \
         give its core a share, or its program a faster profile"
    )]
    NeverEnds {
        /// The task, from 0.
        task: usize,
        /// When the job was released (s).
        released: f64,
        /// When it was given up (s).
        now: f64,
    },
}
