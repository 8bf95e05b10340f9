//! Quantities that carry their unit, ids that cannot be mixed up, the one-method clock, mean and percentile, and stable
//! hashes.
//!
//! All crates of the workspace use these instead of bare numbers: a [`Time`] is an instant, a [`Nanos`] a span, and the
//! compiler keeps them apart. Arithmetic on instants and spans saturates: a late or wrong meter must never make a
//! policy panic.

mod hash;
mod hertz;
mod ids;
mod named;
mod share;
mod statistics;
mod time;

pub use hash::{GOLDEN_GAMMA, fnv1a, fnv1a_from, mix};
pub use hertz::Hertz;
pub use ids::{CoreId, ObjectId, ObjectName, Revision, SensorId, Seq, TaskId};
pub use share::{OutOfRange, Share};
pub use statistics::{mean, percentile, percentile_of_rising};
pub use time::{Clock, ManualClock, Nanos, Time};
