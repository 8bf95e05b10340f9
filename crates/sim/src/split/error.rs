//! What cannot be simulated.

use punctual_units::Time;
use thiserror::Error;

use crate::load::SimulationError;

/// Why a task set did not run to its end.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SplitError {
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
    /// A load that cannot be.
    #[error(transparent)]
    Load(#[from] SimulationError),
    /// More jobs than are kept.
    #[error("{jobs} jobs in all, at most {most} are simulated: give a shorter duration, or longer periods")]
    Jobs {
        /// How many the tasks release.
        jobs: u64,
        /// How many there may be.
        most: u64,
    },
    /// More was handed out than there is, or a way twice.
    #[error("at {} s more was handed out than there is: {slices}", now.as_secs_f64())]
    Overdrawn {
        /// When.
        now: Time,
        /// What was handed out.
        slices: String,
    },
    /// Jobs that get nothing, or that are so slow that they do not end.
    #[error(
        "task {task} does not end: its job released at {} s is not done at {} s; \
         give its core a share, or its program a faster profile",
        released.as_secs_f64(),
        now.as_secs_f64()
    )]
    NeverEnds {
        /// The task, from 0.
        task: usize,
        /// When the job was released.
        released: Time,
        /// When the job was given up.
        now: Time,
    },
}
