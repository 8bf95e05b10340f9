//! How a job waits for its medium.

use punctual_units::Nanos;

/// Way in which a job waits for its medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Poll until the service ends, keeping the core.
    Poll,
    /// Poll for this long, then block if the service has not ended.
    SpinThenBlock(Nanos),
    /// Block at once.
    Block,
}
