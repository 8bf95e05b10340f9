//! Errors of a split cache and memory.

use punctual_units::Time;
use thiserror::Error;

/// Slices that exceed the resources, or give a way to two cores.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("at {} s more was handed out than there is: {slices}", now.as_secs_f64())]
pub struct Overdrawn {
    pub now: Time,
    /// The slices as given.
    pub slices: String,
}
