//! Quantities that carry their unit, ids that cannot be mixed up, the one-method clock, and mean and percentile.
//!
//! All crates of the workspace use these instead of bare numbers: a [`Time`] is an instant, a [`Nanos`] a span, and the
//! compiler keeps them apart. Arithmetic on instants and spans saturates: a late or wrong meter must never make a
//! policy panic.

mod hertz;
mod ids;
mod named;
mod share;
mod statistics;
mod time;

pub use hertz::Hertz;
pub use ids::{CoreId, ObjectId, ObjectName, Revision, SensorId, Seq, TaskId};
pub use share::{OutOfRange, Share};
pub use statistics::{mean, percentile, percentile_of_rising};
pub use time::{Clock, ManualClock, Nanos, Time};
