//! Converts the machine's state to an allocator's input, and plans to slices. A run's instants can thus be recorded,
//! and decided again by another policy to compare or time it.

use punctual_allocation::{CoreJobs, CoreShares, RunningJob, Share, WaitingJob, WayMask};
use punctual_units::Time;

use super::model::Slice;
use crate::engine::Simulation;

/// A moment of a run as an allocator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Instant {
    pub now: Time,
    /// Jobs of each core; the waiting ones in order of their deadlines.
    pub jobs: Vec<CoreJobs>,
}

impl Instant {
    /// The running job of each core, with the jobs that wait for it; `None` where the core rests.
    pub fn cores(&self) -> Vec<Option<RunningJob<'_>>> {
        self.jobs.iter().map(CoreJobs::running).collect()
    }
}

impl Simulation {
    /// The present instant for an allocator: jobs of tasks with profiles.
    pub fn instant(&mut self) -> Instant {
        self.settle();
        let mut cores = vec![CoreJobs::default(); self.cores.len()];
        for (number, runner) in self.runners.iter().enumerate() {
            let Some(first) = self.first_job(number) else { continue };
            let Some(seen) = self.seen(&first) else { continue };
            let jobs = &mut cores[first.core];
            if first.runs {
                jobs.runs = Some(seen);
            }
            // Jobs in the backlog have not begun.
            let behind = runner.backlog.iter().map(|(_, released)| WaitingJob {
                progress: 0.0,
                deadline: runner.deadline.map_or(Time::MAX, |deadline| *released + deadline),
                ..seen
            });
            let waits = (!first.runs).then_some(seen);
            jobs.waits = merged(&jobs.waits, waits.into_iter().chain(behind));
        }
        Instant {
            now: self.now,
            jobs: cores,
        }
    }
}

/// Merges two lists that are each ordered by deadline. A merge, because in overload thousands of jobs wait, and this
/// runs often.
fn merged(some: &[WaitingJob], others: impl Iterator<Item = WaitingJob>) -> Vec<WaitingJob> {
    let (mut all, mut some) = (
        Vec::with_capacity(some.len() + others.size_hint().0),
        some.iter().copied().peekable(),
    );
    for other in others {
        while let Some(earlier) = some.next_if(|job| job.deadline <= other.deadline) {
            all.push(earlier);
        }
        all.push(other);
    }
    all.extend(some);
    all
}

/// Converts `plan` to the slice of each core.
pub fn slices(plan: &CoreShares) -> Vec<Option<Slice>> {
    let slice = |(share, mask): (&Share, &WayMask)| Some(Slice::of(*mask, share.partitions));
    plan.shares.iter().zip(&plan.masks).map(slice).collect()
}
