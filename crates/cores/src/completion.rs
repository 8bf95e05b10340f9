//! How a job waits for its medium.

use punctual_units::Nanos;

/// How a job waits for its medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It polls until the end, and keeps its core.
    Poll,
    /// It polls for this long; where the service is not over then, it blocks.
    SpinThenBlock(Nanos),
    /// It blocks at once.
    Block,
}
