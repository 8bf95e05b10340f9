//! From what the machine shows to what an allocator is asked, and back: so that a run's own instants can be kept, and decided
//! again by whoever is to be compared or timed.

use punctual_allocation::{Plan, Running, Share, Waiting, WayMask};
use punctual_units::Time;

use super::core::{Core, Job};
use super::machine::Slice;
use super::program::Program;
use super::run::Moment;

/// One moment of a run as an allocator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Instant {
    /// When.
    pub now: Time,
    cores: Vec<Jobs>,
}

/// What a core runs, and what waits for it, the earliest deadline first.
#[derive(Clone, Debug, PartialEq)]
struct Jobs {
    runs: Option<Waiting>,
    wait: Vec<Waiting>,
}

impl Instant {
    /// Keeps what an allocator sees of `moment`.
    pub fn of(moment: &Moment) -> Instant {
        let jobs = |core: &Core| Jobs {
            runs: core.running().map(|job| seen(job, moment.programs)),
            wait: core
                .waiting()
                .iter()
                .rev()
                .map(|job| seen(job, moment.programs))
                .collect(),
        };
        Instant {
            now: time(moment.now),
            cores: moment.cores.iter().map(jobs).collect(),
        }
    }

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

fn seen(job: &Job, programs: &[Program]) -> Waiting {
    Waiting {
        program: job.program,
        progress: job.progress(&programs[job.program]),
        deadline: time(job.deadline),
    }
}

fn time(seconds: f64) -> Time {
    Time((seconds * 1e9).round() as u64)
}
