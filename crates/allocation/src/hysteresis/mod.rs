//! Changing only what pays: bandwidth is lent at every event, ways seldom, and no job is made later than it would be had nothing
//! ever changed.
//!
//! **Problem.** A way that changes hands is cold: its new owner must fill it at its own bandwidth. A policy that follows the rates
//! alone moves hundreds of ways a second and loses to a split that never changes. To compare the rise in speed with the cost of
//! filling is not enough either: whoever refuses changes one by one gets stuck in splits that starve a core, because the change that
//! would free it no longer pays.
//!
//! **Terms.** The *base* is the best static split. A core is *ahead* by the seconds that its jobs could still lose without any of them
//! ending later than under the base ([`Shadow`] replays it).
//!
//! **Method** ([`Keeper`]), at each event:
//!
//! 1. *Ways stay, bandwidth is lent.* Bandwidth changes hands for nothing. Every core is given at least what keeps it as fast as its base
//!    share would, or, if it is ahead, slower as long as that loss is covered; the rest goes where the policy's aim wants
//!    it ([`Aim`]).
//! 2. *Ways move where it pays.* Among all contiguous placements, the one that saves most seconds over the phases at hand, filling
//!    counted, is found by dynamic programming; a core takes part only if it is ahead by what it would lose and by what having its
//!    own ways back would cost. Bandwidth is lent anew under it, and it is taken up only if both together save more than
//!    [`Keeper::SAVED_MIN`].
//! 3. A core that has lent ways and is no longer ahead by what their return costs gets the base's ways back at once.
//!
//! So under EDF every job ends no later than under the base, whatever refilling costs, up to what happens within the least time between
//! two decisions: a phase that begins in it runs with what the one before was given.

mod account;
mod bandwidth;
mod keeper;
mod shadow;
mod ways;

pub use keeper::{Aim, Keeper};
pub use shadow::Shadow;

/// What it takes to fill a way that was gained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refill {
    /// Bytes of one way, more than 0.
    pub way_bytes: f64,
    /// Bytes per second that one bandwidth partition allows, more than 0.
    pub partition_bytes_per_second: f64,
}

impl Refill {
    /// The fifth paper's machine: ways of 2 MiB, partitions of 72 MB/s (as in the published profiles).
    pub const PAPER: Refill = Refill {
        way_bytes: 2_097_152.0,
        partition_bytes_per_second: 72e6,
    };

    /// Seconds to fill `ways` with `partitions` of bandwidth: every line of them missed once.
    pub fn seconds(self, ways: u8, partitions: u8) -> f64 {
        f64::from(ways) * self.way_bytes / self.bandwidth(partitions)
    }

    /// Bytes per second of `partitions`.
    pub fn bandwidth(self, partitions: u8) -> f64 {
        f64::from(partitions) * self.partition_bytes_per_second
    }
}
