//! Cache ways and bandwidth as a decision of the loop, at instants of its own: whenever what runs on a core has
//! changed.
//!
//! The feature `allocation` brings the allocator along. Without it nothing can be split, and the types here have no
//! values: a machine that splits nothing is built without the tables that deciding takes.

#[cfg(feature = "allocation")]
mod allocating;
#[cfg(not(feature = "allocation"))]
mod nothing;

#[cfg(feature = "allocation")]
pub use allocating::{CoreJobs, SplitOptions};
#[cfg(not(feature = "allocation"))]
pub use nothing::{CoreJobs, SplitOptions};

#[cfg(feature = "allocation")]
pub(crate) use allocating::Splitting;
#[cfg(not(feature = "allocation"))]
pub(crate) use nothing::Splitting;
