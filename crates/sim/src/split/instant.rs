//! From what the machine shows to what an allocator is asked, and back: so that a run's own instants can be kept, and
//! decided again by another policy that is to be compared or timed.

use punctual_allocation::{Plan, Running, Share, Waiting, WayMask};
use punctual_units::Time;

use super::model::Slice;
use crate::engine::Simulation;

/// One moment of a run as an allocator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Instant {
    /// When.
    pub now: Time,
    cores: Vec<Jobs>,
}

/// What a core runs, and what waits for it, the earliest deadline first.
#[derive(Clone, Debug, Default, PartialEq)]
struct Jobs {
    runs: Option<Waiting>,
    wait: Vec<Waiting>,
}

impl Instant {
    /// What each core runs, with what waits for it; nothing where it rests.
    pub fn cores(&self) -> Vec<Option<Running<'_>>> {
        let mut cores = Vec::with_capacity(self.cores.len());
        for Jobs { runs, wait } in &self.cores {
            cores.push(runs.map(|job| Running {
                program: job.program,
                progress: job.progress,
                deadline: job.deadline,
                waiting: wait,
            }));
        }
        cores
    }
}

impl Simulation<'_> {
    /// What an allocator sees now: jobs of tasks with profiles.
    pub fn instant(&mut self) -> Instant {
        let mut cores = vec![Jobs::default(); self.cores.len()];
        for job in self.jobs() {
            let Some(seen) = self.seen(&job) else { continue };
            let jobs = &mut cores[job.core];
            match job.runs {
                true => jobs.runs = Some(seen),
                false => jobs.wait.push(seen),
            }
        }
        for jobs in &mut cores {
            jobs.wait.sort_by_key(|job| job.deadline);
        }
        Instant { now: self.now, cores }
    }
}

/// What each core gets by `plan`.
pub fn slices(plan: &Plan) -> Vec<Option<Slice>> {
    let slice = |(share, mask): (&Share, &WayMask)| {
        Some(Slice {
            first: mask.first(),
            share: *share,
        })
    };
    plan.shares.iter().zip(&plan.masks).map(slice).collect()
}
