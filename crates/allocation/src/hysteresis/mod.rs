//! Whether a change is worth what it costs.
//!
//! **Problem.** A way that changes hands is cold: its new owner misses until it is filled again. A policy that looks at
//! rates alone changes hundreds of times a second and may lose more than it gains.
//!
//! **Method.** Both sides are counted in seconds of undisturbed work. A change brings the rise of the summed speed for as
//! long as it is known to last: until the first of the running jobs leaves its phase. It costs each core that gains ways
//! the time to fill them over its bandwidth, at the speed that it would have run at. A change is made if it brings more
//! than it costs. Without refill, or where only bandwidth moves, the cost is 0 and any gain will do.

mod bandwidth;
mod keeper;
mod shadow;
mod ways;

pub use keeper::Keeper;
pub use shadow::Shadow;

use punctual_units::Time;

use crate::allocator::Plan;
use crate::policy::slack_seconds;
use crate::programs::Programs;
use crate::running::Running;

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
        f64::from(ways) * self.way_bytes / (f64::from(partitions) * self.partition_bytes_per_second)
    }
}

/// A change that could be made.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// What can run.
    pub programs: &'a Programs,
    /// What runs, core by core.
    pub cores: &'a [Option<Running<'a>>],
    /// What is in force.
    pub current: &'a Plan,
    /// What a policy wants instead.
    pub proposed: &'a Plan,
    /// When.
    pub now: Time,
    /// Whether the policy knows deadlines, so that a job kept from being late is worth the time that it was late by.
    pub by_deadline: bool,
}

/// Whether `change` brings more than it costs.
pub fn pays(change: &Change<'_>, refill: Option<Refill>) -> bool {
    let cost = refill.map_or(0.0, |refill| refilling(change, refill));
    let gain = faster(change) * lasts(change);
    if gain > cost {
        return true;
    }
    change.by_deadline && earlier(change) > cost
}

/// The rise of the summed speed, in seconds of undisturbed work per second.
fn faster(change: &Change<'_>) -> f64 {
    let rise = |(core, job): (usize, &Running<'_>)| {
        let speed = |plan: &Plan| change.programs.speed(job.program, job.progress, plan.shares[core]);
        speed(change.proposed) - speed(change.current)
    };
    jobs(change).map(rise).sum()
}

/// Seconds until the first job leaves its phase under the proposed plan.
fn lasts(change: &Change<'_>) -> f64 {
    let left = |(core, job): (usize, &Running<'_>)| {
        let share = change.proposed.shares[core];
        change.programs.phase_left(job.program, job.progress, share)
    };
    jobs(change).map(left).fold(f64::INFINITY, f64::min)
}

/// Undisturbed work that is not done while gained ways are filled, in seconds.
fn refilling(change: &Change<'_>, refill: Refill) -> f64 {
    let lost = |(core, job): (usize, &Running<'_>)| {
        let share = change.proposed.shares[core];
        let gained = change.proposed.masks[core].gained(change.current.masks[core]);
        refill.seconds(gained, share.partitions) * change.programs.speed(job.program, job.progress, share)
    };
    jobs(change).map(lost).sum()
}

/// How much less late the running jobs would be in sum, in seconds.
fn earlier(change: &Change<'_>) -> f64 {
    let sooner = |(core, job): (usize, &Running<'_>)| {
        let slack = slack_seconds(change.programs, job, change.now);
        let late = |plan: &Plan| {
            let left = change.programs.time_left(job.program, job.progress, plan.shares[core]);
            (left - slack).max(0.0)
        };
        late(change.current) - late(change.proposed)
    };
    jobs(change).map(sooner).sum()
}

fn jobs<'a>(change: &'a Change<'a>) -> impl Iterator<Item = (usize, &'a Running<'a>)> {
    let cores = change.cores.iter().enumerate();
    cores.filter_map(|(core, job)| job.as_ref().map(|job| (core, job)))
}
