//! From what the machine shows to what an allocator is asked, and back: so that a run's own instants can be kept, and
//! decided again by another policy that is to be compared or timed.

use punctual_allocation::{CoreJobs, Plan, Running, Share, Waiting, WayMask};
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
        self.settle();
        let mut cores = vec![CoreJobs::default(); self.cores.len()];
        for (number, runner) in self.runners.iter().enumerate() {
            let Some(first) = self.first_job(number) else { continue };
            let Some(seen) = self.seen(&first) else { continue };
            let jobs = &mut cores[first.core];
            if first.runs {
                jobs.runs = Some(seen);
            }
            // Those behind the first one have not begun.
            let behind = runner.backlog.iter().map(|(_, released)| Waiting {
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

/// Both in the order of their deadlines, as each is by itself: in overload thousands of jobs wait, and are looked at
/// often.
fn merged(some: &[Waiting], others: impl Iterator<Item = Waiting>) -> Vec<Waiting> {
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

/// What each core gets by `plan`.
pub fn slices(plan: &Plan) -> Vec<Option<Slice>> {
    let slice = |(share, mask): (&Share, &WayMask)| Some(Slice::of(*mask, share.partitions));
    plan.shares.iter().zip(&plan.masks).map(slice).collect()
}
