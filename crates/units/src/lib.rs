//! In which unit? Quantities that carry it, ids that cannot be mixed up, the one-method clock, and mean and percentile.
//!
//! All rooms of the workspace use these instead of bare numbers: a [`Time`] is an instant, a [`Nanos`] a span, and the
//! compiler keeps them apart. All arithmetic saturates: a late or lying meter must never make a policy panic.

mod hertz;
mod ids;
mod share;
mod statistics;
mod time;

pub use hertz::Hertz;
pub use ids::{CoreId, Made, ObjectId, Revision, SensorId, Seq, TaskId};
pub use share::{OutOfRange, Share};
pub use statistics::{mean, percentile, percentile_of_rising};
pub use time::{Clock, ManualClock, Nanos, Time};
