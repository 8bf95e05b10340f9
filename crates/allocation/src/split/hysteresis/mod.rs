//! Changing only what pays: bandwidth is lent at every event, ways seldom, and no job ends much later than it would
//! have, had nothing ever changed.
//!
//! **Problem.** A way that changes hands is cold: its new owner must fill it at its own bandwidth. A policy that
//! follows the rates alone moves hundreds of ways a second and loses to a split that never changes. To compare the rise
//! in speed with the cost of filling is not enough either: a policy that refuses changes one by one gets stuck in
//! splits that starve a core, because the change that would free it no longer pays.
//!
//! **Terms.** The *base* is a split that never changes: of periodic tasks the one that overloads the fewest cores
//! ([`Base::StaticFewest`](crate::Base::StaticFewest)). Jobs run earliest deadline first on each core. W(d) is the work
//! on a core that is due by d, in seconds under the base share. The core's *lead* is how much less of this work is left
//! in the real run than in a replay of the base, at the deadline where the difference is least ([`Shadow`]); its *debt*
//! is the time to have the base's ways back and full, at the base's bandwidth: its cold bytes, and those of the base's
//! ways that it has not. The *gap* is the least time between two decisions: the keeper learns at its end what happened
//! within it.
//!
//! **Method** ([`Keeper`]), at each event:
//!
//! 1. *Ways stay, bandwidth is lent.* Bandwidth changes hands for nothing. Every core is given at least what it can
//!    afford to be given (below); the rest goes where the policy's aim wants it ([`Aim`]).
//! 2. *Ways move where it pays.* Among all contiguous placements that all cores can afford, the one that saves most
//!    seconds over the phases at hand, filling counted, is found by dynamic programming. Bandwidth is lent anew under
//!    it, and it is taken up only if both together save more than the gap.
//! 3. If a core cannot afford its ways with any bandwidth that is left for it, all have the base's ways back, and
//!    bandwidth is lent among them.
//!
//! **What a core can afford.** Let F = lead - debt.
//!
//! - Any mask and bandwidth with which F stays at least 0 until the job's phase ends, and the debt at most the gap.
//! - Any change that costs nothing in this phase (no less speed than under the base, no slower filling, no more debt),
//!   as long as F >= -gap and no job is overdue: one that the base is done with and the core is not.
//! - At least the base's ways and bandwidth, without more debt, always. A core at rest may owe up to the gap.
//!
//! **Bound.** F >= -2 gap at every deadline, at any time:
//!
//! - No rule ever takes F below -gap at a decision by itself, and the base's masks and bandwidth leave it as it is: the
//!   debt counts their return.
//! - Until the keeper learns of it, an event costs at most one second per second: at most one gap, from at least -gap
//!   on, or nothing if the core has the base's share.
//! - A job that is released begins with W(d) equal in both. The debt that it finds is at most one gap, and its loss
//!   until the keeper learns of it at most another. From then on F < -gap gives the core the base's share.
//!
//! When the base is done with a job, at most 2 gaps of work due as early are left of the real run, the debt included;
//! and while a job is overdue, the core has the base's share. So under EDF
//!
//! - a job ends at most two gaps later than under the base, and what jobs with earlier deadlines take that were
//!   released since, and
//! - it is late by at most two gaps more than the latest of the jobs that are due by its deadline on its core under the
//!   base,
//!
//! whatever refilling costs (jobs due at once count as one), at a clock that stays: a change of it
//! ([`crate::Programs::slow_down`]) values what is left in both anew, and a core that is ahead with waiting and behind
//! with computing may find itself behind. Nothing better is possible without knowing the next release: a job that is
//! released within the gap finds what the core was given for the one before. `punctual_sim::split` holds random task
//! sets against both, job by job.

use serde::{Deserialize, Serialize};

mod account;
mod bandwidth;
mod keeper;
mod shadow;
mod ways;

pub use keeper::{Aim, Keeper};
pub use shadow::Shadow;

/// Cost of filling a way that a core gains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
