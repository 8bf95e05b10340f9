//! Cache ways and memory bandwidth that are split among cores, under tasks with execution profiles.
//!
//! **Problem.** The value of an allocator of ways and bandwidth shows only when tasks run under it: phases come and go,
//! jobs wait for each other, and ways that change their core must be filled again.
//!
//! **Terms.** A [`RunnableProfile`] is a profile ready to run. A [`Slice`] is the share of one core: a contiguous range
//! of ways and a number of bandwidth partitions. *Cold* bytes are those of ways that a core gained and has not filled
//! yet.
//!
//! **Method.** A phase of a program is one step of a job. With all ways and bandwidth a phase takes its instructions
//! over its best rate, at the machine's top clock: cycles, which scale with the clock. A smaller share adds time in
//! which the core waits, which does not scale. Phases are joint for all shares and located by *progress*, so a job
//! whose share changes in mid-run is still at the same point of its program: an instruction count of one allocation's
//! profile used with another's would let it skip work. An allocator decides on the running and waiting jobs of each
//! core ([`Instant`]).
//!
//! **Refill.** With [`Refill::Charged`], a core that gained ways stands still until it has fetched them whole at its
//! own bandwidth: gained ways x way size / (partitions x bandwidth of one). That is more than a real program loses,
//! which goes on meanwhile at the rate of its old ways and may never touch all of the new ones. Moving bandwidth costs
//! nothing. Not charged, alike for every allocator: the cache contents that another job left on the core.

mod error;
mod holding;
mod instant;
mod model;
mod program;
#[cfg(test)]
mod tests;

pub use error::Overdrawn;
pub(crate) use holding::{Holding, SplitResources};
pub use instant::{Instant, slices};
pub use model::{Refill, Slice, SplitModel};
pub use program::RunnableProfile;
