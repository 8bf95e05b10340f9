//! How far each core is ahead of where it would be under a split that never changes.
//!
//! **Method.** The base split is replayed beside the real run, core by core: the same jobs, earliest deadline first,
//! each as long as its profile says under the core's base share. The work that is due by d is, in seconds under the
//! base share,
//!
//! ```text
//! W(d) = sum over jobs with deadline <= d of time left
//! lead = min over the deadlines d of jobs that are there of W_replayed(d) - W_real(d)
//! ```
//!
//! A job that is not done though the replay is done with it is *overdue*: then the lead is negative infinity, whatever
//! else the core is ahead with, because W_replayed(d) no longer falls and would not show what it loses from there on.
//!
//! Both are at the clock in force: when it changes, what the replay has left is what the same work takes at the new
//! one.

use punctual_units::Time;

use crate::grid::Share;
use crate::programs::Programs;
use crate::running::RunningJob;

/// Jobs of one core that there is room for from the beginning; a core with more takes more memory once.
const JOBS_EXPECTED: usize = 16;

/// The jobs of one core under its base share.
#[derive(Clone, Debug)]
pub struct Shadow {
    share: Share,
    at: Time,
    /// The latest deadline first.
    jobs: Vec<ReplayJob>,
    /// [`Programs::slowdown`] at which their time left is counted.
    slowdown: f64,
    /// Deadline and program of each job that was present at the last call.
    known: Vec<(Time, usize)>,
    /// Buffer for the jobs that are present now.
    there: Vec<(Time, usize)>,
    /// Buffer for the time left of each present job.
    real: Vec<(Time, f64)>,
    /// Sum over the present jobs that changes when they do.
    digest: u64,
}

/// A job in the replay.
#[derive(Clone, Copy, Debug)]
struct ReplayJob {
    due: Time,
    program: usize,
    /// Seconds of work left.
    left: f64,
}

impl Shadow {
    /// A core that has `share` all along, without jobs.
    pub fn new(share: Share) -> Shadow {
        Shadow {
            share,
            at: Time::ZERO,
            jobs: Vec::with_capacity(JOBS_EXPECTED),
            slowdown: 1.0,
            known: Vec::with_capacity(JOBS_EXPECTED),
            there: Vec::with_capacity(JOBS_EXPECTED),
            real: Vec::with_capacity(JOBS_EXPECTED),
            digest: 0,
        }
    }

    /// Takes the jobs of `running` as they are at `now`: the core is neither ahead nor behind.
    pub fn begin_with(&mut self, programs: &Programs, running: Option<&RunningJob<'_>>, now: Time) {
        (self.at, self.slowdown) = (now, programs.slowdown());
        self.take_in(programs, running);
        self.jobs.clear();
        let first = running.map(|job| (job.deadline, job.program, job.progress));
        let waiting = running.into_iter().flat_map(|job| job.waiting);
        let all = first
            .into_iter()
            .chain(waiting.map(|job| (job.deadline, job.program, job.progress)));
        self.jobs.extend(all.map(|(due, program, progress)| ReplayJob {
            due,
            program,
            left: programs.time_left(program, progress, self.share),
        }));
        self.jobs.sort_by_key(|job| std::cmp::Reverse(job.due));
    }

    /// Advances to `now` and adds the jobs that were not present at the last call. They count from `released`, which
    /// lies between the last call and `now`; so does a change of the clock.
    pub fn follow(&mut self, programs: &Programs, running: Option<&RunningJob<'_>>, released: Time, now: Time) {
        self.pass(released);
        self.retime(programs);
        self.take_in(programs, running);
        self.pass(now);
    }

    fn retime(&mut self, programs: &Programs) {
        let slowdown = std::mem::replace(&mut self.slowdown, programs.slowdown());
        if slowdown != self.slowdown {
            for job in &mut self.jobs {
                job.left = programs.retimed(job.program, self.share, job.left, slowdown);
            }
        }
    }

    fn take_in(&mut self, programs: &Programs, running: Option<&RunningJob<'_>>) {
        let digest = jobs(running)
            .map(|(due, program)| mixed(due, program))
            .fold(0, u64::wrapping_add);
        if digest == self.digest {
            return;
        }
        self.digest = digest;
        self.there.clear();
        self.there.extend(jobs(running));
        self.there.sort_unstable();
        let mut known = self.known.iter().peekable();
        for &job in &self.there {
            while known.next_if(|other| **other < job).is_some() {}
            if known.next_if(|other| **other == job).is_none() {
                let (due, program) = job;
                let left = programs.duration(program, self.share);
                let place = self.jobs.partition_point(|other| other.due > due);
                self.jobs.insert(place, ReplayJob { due, program, left });
            }
        }
        std::mem::swap(&mut self.known, &mut self.there);
    }

    /// Runs the replayed jobs until `now`.
    fn pass(&mut self, now: Time) {
        let mut seconds = now.since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        while let Some(job) = self.jobs.last_mut() {
            if job.left > seconds {
                job.left -= seconds;
                return;
            }
            seconds -= job.left;
            self.jobs.pop();
        }
    }

    /// Seconds under the base share by which the real core, which runs `running`, is ahead of the replay; jobs due at
    /// the same time count together. Negative if a job may end later than in the replay, negative infinity if one is
    /// overdue.
    pub fn lead(&mut self, programs: &Programs, running: &RunningJob<'_>) -> f64 {
        let share = self.share;
        let left = |program, progress| programs.time_left(program, progress, share);
        let waiting = running.waiting.iter();
        let real = &mut self.real;
        real.clear();
        real.extend(waiting.map(|job| (job.deadline, left(job.program, job.progress))));
        real.push((running.deadline, left(running.program, running.progress)));
        real.sort_unstable_by_key(|(deadline, _)| *deadline);
        let mut replayed = self.jobs.iter().rev().peekable();
        let (mut lead, mut least, mut latest) = (0.0, f64::INFINITY, None);
        for (number, (deadline, left)) in real.iter().enumerate() {
            while let Some(job) = replayed.next_if(|job| job.due <= *deadline) {
                (lead, latest) = (lead + job.left, Some(&job.due));
            }
            if latest != Some(deadline) {
                return f64::NEG_INFINITY;
            }
            lead -= left;
            // Only where all that is due by then has been counted.
            if real.get(number + 1).is_none_or(|(next, _)| next > deadline) {
                least = least.min(lead);
            }
        }
        least
    }
}

/// Deadline and program of the running and of each waiting job.
fn jobs<'j>(running: Option<&'j RunningJob<'_>>) -> impl Iterator<Item = (Time, usize)> + 'j {
    let waiting = running
        .into_iter()
        .flat_map(|job| job.waiting)
        .map(|job| (job.deadline, job.program));
    running
        .map(|job| (job.deadline, job.program))
        .into_iter()
        .chain(waiting)
}

/// Deadline and program in one number; never 0, so that a sum over one job differs from that over none.
fn mixed(due: Time, program: usize) -> u64 {
    (due.0 ^ (program as u64) << 56)
        .wrapping_add(1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
