//! From what the machine shows to what an allocator is asked, and back: so that a run's own instants can be kept, and
//! decided again by another policy that is to be compared or timed.

use punctual_allocation::{CoreJobs, Plan, Running, Share, WayMask};
use punctual_units::Time;

use super::model::Slice;
use crate::engine::Simulation;

/// One moment of a run as an allocator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Instant {
    /// When.
    pub now: Time,
    /// The jobs of each core; those that wait, the earliest deadline first.
    pub jobs: Vec<CoreJobs>,
}

impl Instant {
    /// What each core runs, with what waits for it; nothing where it rests.
    pub fn cores(&self) -> Vec<Option<Running<'_>>> {
        self.jobs.iter().map(CoreJobs::running).collect()
    }
}

impl Simulation<'_> {
    /// What an allocator sees now: jobs of tasks with profiles.
    pub fn instant(&mut self) -> Instant {
        let mut cores = vec![CoreJobs::default(); self.cores.len()];
        for job in self.jobs() {
            let Some(seen) = self.seen(&job) else { continue };
            let jobs = &mut cores[job.core];
            match job.runs {
                true => jobs.runs = Some(seen),
                false => jobs.waits.push(seen),
            }
        }
        for jobs in &mut cores {
            jobs.waits.sort_by_key(|job| job.deadline);
        }
        Instant {
            now: self.now,
            jobs: cores,
        }
    }
}

/// What each core gets by `plan`.
pub fn slices(plan: &Plan) -> Vec<Option<Slice>> {
    let slice = |(share, mask): (&Share, &WayMask)| Some(Slice::of(*mask, share.partitions));
    plan.shares.iter().zip(&plan.masks).map(slice).collect()
}
