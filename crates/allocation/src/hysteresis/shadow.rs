//! How far each core is ahead of where it would be under a split that never changes.
//!
//! **Problem.** Refilling a way costs now and may gain later. Whether a job can afford it depends on how much earlier it is than it
//! would have been had nothing ever changed.
//!
//! **Method.** The base split is replayed beside the real run, core by core: the same jobs, earliest deadline first, each as long as its
//! profile says under the core's base share. The work that is due by d is, in seconds under the base share,
//!
//! ```text
//! W(d) = sum over jobs with deadline <= d of time left
//! ahead = min over the deadlines d of jobs that are there of W_replayed(d) - W_real(d)
//! ```
//!
//! As long as `ahead` is not negative, no job on the core ends later than under the base split: by the time at which the replayed core has
//! no work left that is due by d, neither has the real one, and both run what is due first.

use punctual_units::Time;

use crate::grid::Share;
use crate::programs::Programs;
use crate::running::Running;

/// The jobs of one core under its base share.
#[derive(Clone, Debug)]
pub struct Shadow {
    share: Share,
    at: Time,
    /// Deadline and seconds left, the latest deadline first.
    jobs: Vec<(Time, f64)>,
    /// Deadline and program of the jobs that were there when it was last asked.
    known: Vec<(Time, usize)>,
    /// A sum over them that changes when they do.
    digest: u64,
}

impl Shadow {
    /// A core that has `share` all along, without jobs.
    pub fn new(share: Share) -> Shadow {
        Shadow {
            share,
            at: Time::ZERO,
            jobs: Vec::new(),
            known: Vec::new(),
            digest: 0,
        }
    }

    /// Lets time pass until `now`, and takes in the jobs that are there now and were not before.
    pub fn follow(&mut self, programs: &Programs, running: Option<&Running<'_>>, now: Time) {
        self.pass(now);
        let digest = jobs(running)
            .map(|(due, program)| mixed(due, program))
            .fold(0, u64::wrapping_add);
        if digest == self.digest {
            return;
        }
        self.digest = digest;
        let mut there: Vec<(Time, usize)> = jobs(running).collect();
        there.sort_unstable();
        let mut known = std::mem::replace(&mut self.known, there.clone()).into_iter().peekable();
        for job in there {
            while known.next_if(|other| *other < job).is_some() {}
            if known.next_if(|other| *other == job).is_none() {
                self.released(programs, job.1, job.0, now);
            }
        }
    }

    /// A job of `program` was released at `at`, not before what the shadow has heard of.
    fn released(&mut self, programs: &Programs, program: usize, deadline: Time, at: Time) {
        self.pass(at);
        let place = self.jobs.partition_point(|(other, _)| *other > deadline);
        self.jobs
            .insert(place, (deadline, programs.duration(program, self.share)));
    }

    /// Lets time pass until `now`.
    fn pass(&mut self, now: Time) {
        let mut seconds = now.since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        while let Some((_, left)) = self.jobs.last_mut() {
            if *left > seconds {
                *left -= seconds;
                return;
            }
            seconds -= *left;
            self.jobs.pop();
        }
    }

    /// Seconds by which the real core is ahead, if `running` runs there, others wait, and it stands still for `owed`
    /// seconds first. Negative if a job may end later than here.
    pub fn ahead(&self, programs: &Programs, running: &Running<'_>, owed: f64) -> f64 {
        let left = |program, progress| programs.time_left(program, progress, self.share);
        let mut real: Vec<(Time, f64)> = running
            .waiting
            .iter()
            .map(|job| (job.deadline, left(job.program, job.progress)))
            .collect();
        real.push((running.deadline, left(running.program, running.progress) + owed));
        real.sort_unstable_by_key(|(deadline, _)| *deadline);
        let mut replayed = self.jobs.iter().rev().peekable();
        let (mut ahead, mut least) = (0.0, f64::INFINITY);
        for (number, (deadline, left)) in real.iter().enumerate() {
            while let Some((_, other)) = replayed.next_if(|(due, _)| due <= deadline) {
                ahead += other;
            }
            ahead -= left;
            // Only where all that is due by then has been counted.
            if real.get(number + 1).is_none_or(|(next, _)| next > deadline) {
                least = least.min(ahead);
            }
        }
        least
    }
}

/// Deadline and program of what runs and of what waits.
fn jobs<'j>(running: Option<&'j Running<'_>>) -> impl Iterator<Item = (Time, usize)> + 'j {
    let waiting = running
        .into_iter()
        .flat_map(|job| job.waiting)
        .map(|job| (job.deadline, job.program));
    running
        .map(|job| (job.deadline, job.program))
        .into_iter()
        .chain(waiting)
}

/// Both in one number; never 0 for a job, so that a sum tells one from none.
fn mixed(due: Time, program: usize) -> u64 {
    (due.0 ^ (program as u64) << 56)
        .wrapping_add(1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
