//! One core: its jobs by deadline, what it has, and how far it gets.

use super::machine::{Machine, Slice};
use super::program::Program;

/// Work shorter than this (s) is done: below it, floating-point time no longer tells before from after.
const RESOLUTION: f64 = 1e-9;

/// One release of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// The task's number.
    pub task: usize,
    /// Its program's number.
    pub program: usize,
    /// When it was released (s).
    pub released: f64,
    /// When it is due (s).
    pub deadline: f64,
    /// The phase that it is in.
    pub phase: usize,
    /// Instructions left in that phase.
    pub left: f64,
    /// Seconds that it has executed, refilling and waiting apart.
    pub executed: f64,
}

impl Job {
    /// The share of its run that is done: from where its phase begins up to, but not at, where it ends, so that rounding names no other
    /// phase.
    pub fn progress(&self, program: &Program) -> f64 {
        let profile = program.profile();
        let begins = self
            .phase
            .checked_sub(1)
            .map_or(0.0, |before| profile.phases[before].ends);
        let ends = profile.phases[self.phase].ends;
        (ends - self.left / profile.instructions).clamp(begins, ends.next_down())
    }
}

/// A core and its jobs.
#[derive(Clone, Debug, Default)]
pub struct Core {
    /// The latest deadline first: the last one runs.
    jobs: Vec<Job>,
    slice: Option<Slice>,
    cold: f64,
    /// Instructions per second of the running job.
    rate: f64,
    /// Bytes per second.
    bandwidth: f64,
}

/// What a core arrived at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reached {
    Nothing,
    Phase,
    End(Job),
}

impl Core {
    /// The job with the earliest deadline, which runs.
    pub fn running(&self) -> Option<&Job> {
        self.jobs.last()
    }

    /// The jobs that wait, the latest deadline first.
    pub fn waiting(&self) -> &[Job] {
        &self.jobs[..self.jobs.len().saturating_sub(1)]
    }

    /// What it has.
    pub fn slice(&self) -> Option<Slice> {
        self.slice
    }

    /// Bytes of its ways that are not filled yet.
    pub fn cold(&self) -> f64 {
        self.cold
    }

    /// Seconds until it arrives at something: filled ways, a phase boundary, an end.
    pub(super) fn until_event(&self) -> f64 {
        match self.running() {
            None => f64::INFINITY,
            Some(_) if self.slice.is_none() => f64::INFINITY,
            Some(_) if self.cold > 0.0 => self.cold / self.bandwidth,
            Some(job) => job.left / self.rate,
        }
    }

    /// Whether a job runs here and makes no progress for want of filled ways.
    pub(super) fn is_refilling(&self) -> bool {
        self.cold > 0.0 && self.slice.is_some() && !self.jobs.is_empty()
    }

    /// Lets `seconds` pass, in which nothing happens but at their end.
    pub(super) fn pass(&mut self, seconds: f64, programs: &[Program]) -> Reached {
        if self.slice.is_none() {
            return Reached::Nothing;
        }
        let Some(job) = self.jobs.last_mut() else {
            return Reached::Nothing;
        };
        if self.cold > 0.0 {
            self.cold -= self.bandwidth * seconds;
            if self.cold <= RESOLUTION * self.bandwidth {
                self.cold = 0.0;
            }
            return Reached::Nothing;
        }
        job.left -= self.rate * seconds;
        job.executed += seconds;
        if job.left > RESOLUTION * self.rate {
            return Reached::Nothing;
        }
        job.phase += 1;
        if job.phase == programs[job.program].phases() {
            let ended = *job;
            self.jobs.pop();
            self.retime(programs);
            return Reached::End(ended);
        }
        job.left = programs[job.program].length(job.phase);
        self.retime(programs);
        Reached::Phase
    }

    /// Takes in a job. Of two that are due at once, the one that came first runs first.
    pub(super) fn release(&mut self, job: Job, programs: &[Program]) {
        let at = self.jobs.partition_point(|other| other.deadline > job.deadline);
        self.jobs.insert(at, job);
        self.retime(programs);
    }

    /// Gives it another slice, whose new ways are cold if `charged`; how many ways are new.
    pub(super) fn give(&mut self, slice: Option<Slice>, charged: bool, machine: &Machine, programs: &[Program]) -> u32 {
        let old = self.slice.map_or(0, Slice::mask);
        let new = slice.map_or(0, Slice::mask);
        let gained = (new & !old).count_ones();
        if charged {
            self.cold += f64::from(gained) * machine.way_bytes;
        }
        self.cold = self.cold.min(f64::from(new.count_ones()) * machine.way_bytes);
        self.slice = slice;
        self.bandwidth = slice.map_or(0.0, |slice| machine.bandwidth(slice.share.partitions));
        self.retime(programs);
        gained
    }

    fn retime(&mut self, programs: &[Program]) {
        self.rate = match (self.running(), self.slice) {
            (Some(job), Some(slice)) => programs[job.program].rate(job.phase, slice.share),
            _ => 0.0,
        };
    }
}
