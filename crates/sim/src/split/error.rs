//! Errors of a run with a split cache and memory.

use punctual_units::Time;
use thiserror::Error;

use crate::load::SimulationError;

/// Reasons why a task set did not run to its end.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SplitError {
    /// A task does not fit the machine or the programs.
    #[error("task {task}: {what}")]
    Task {
        /// Index of the task, from 0.
        task: usize,
        /// The fault, in words.
        what: String,
    },
    /// The split model is out of range.
    #[error("the machine: {0}")]
    Machine(String),
    /// The load cannot be simulated.
    #[error(transparent)]
    Load(#[from] SimulationError),
    /// The tasks release more jobs than the run can record.
    #[error("{jobs} jobs in all, at most {most} are simulated: give a shorter duration, or longer periods")]
    Jobs {
        /// Number of jobs that the tasks release.
        jobs: u64,
        /// Bound on the jobs of a run.
        most: u64,
    },
    /// The allocator handed out what there is not.
    #[error(transparent)]
    Overdrawn(#[from] Overdrawn),
    /// A job does not end: it gets no share, or its program is too slow.
    #[error(
        "task {task} does not end: its job released at {} s is not done at {} s; \
         give its core a share, or its program a faster profile",
        released.as_secs_f64(),
        now.as_secs_f64()
    )]
    NeverEnds {
        /// Index of the task, from 0.
        task: usize,
        /// Release of the unfinished job.
        released: Time,
        /// When the run was stopped.
        now: Time,
    },
}

/// Slices that exceed the resources, or give a way to two cores.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("at {} s more was handed out than there is: {slices}", now.as_secs_f64())]
pub struct Overdrawn {
    pub now: Time,
    /// The slices as given.
    pub slices: String,
}
