//! A simulated machine that splits its last-level cache and memory bandwidth, under tasks with execution profiles.
//!
//! **Problem.** What an allocator of cache ways and bandwidth is worth shows only when tasks run under it: phases come and go, jobs
//! wait for each other, and ways that change hands must be filled again.
//!
//! **Terms.** A [`Program`] is a profile ready to run. A [`Task`] releases a job of its program every period, pinned to one core; a
//! core runs the job with the earliest deadline (partitioned EDF). A [`Slice`] is what one core has: a contiguous range of
//! ways and a number of bandwidth partitions. *Cold* bytes are those of ways that a core gained and has not filled yet.
//!
//! **Method.** Event-driven: between releases, completions and phase boundaries every rate is constant, so time jumps from one to
//! the next. A running job retires rate(phase, share) instructions per second. Phases are joint for all shares and located by
//! *progress*, so that a job which changes its share in mid-run is still at the same point of its program: an instruction count
//! of one allocation's profile used with another's would let it skip work. As a check, no job may be faster than its
//! program's *envelope*, every phase at the best rate that any share gives it; jobs that are get counted.
//!
//! After events, at most once per [`Machine::decision_gap`], an allocator (any closure) sees every core and may hand out new
//! slices, which are checked: nothing is handed out twice.
//!
//! **Refill.** With [`Refill::Charged`], a core that gained ways stands still until it has fetched them whole at its own bandwidth: gained
//! ways x way size / (partitions x bandwidth of one). That is more than a real program loses, which goes on meanwhile at the
//! rate of its old ways and may never touch all of the new ones. Bandwidth changes hands for nothing. What is not charged, alike for every allocator: the cache that a job finds after another ran on its core.
//!
//! Late jobs run to their end.

mod core;
mod error;
mod instant;
#[cfg(test)]
mod kept_tests;
mod machine;
mod outcome;
mod program;
mod run;
#[cfg(test)]
mod tests;

pub use self::core::{Core, Job};
pub use error::PartitionedError;
pub use instant::{Instant, slices};
pub use machine::{Machine, Refill, Slice};
pub use outcome::{Done, Finished};
pub use program::Program;
pub use run::{Moment, Task, simulate};
