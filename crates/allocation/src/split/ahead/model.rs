//! The machine in small: periodic tasks on cores that share ways and bandwidth, by priority or, among equals, by
//! deadline.
//!
//! **Method.** Event by event: a release, the end of a phase or of a job, or the time at which a decision is due. A
//! core with cold ways and a job fills them first, at its own bandwidth, and then runs the job at the rate of its
//! phase. The rules are those of `punctual_sim::split`, which a test of `punctual_machine` holds against this, job by
//! job.
//!
//! **Late** is a job whose deadline has passed, whether it has ended or not. A task without deadlines has one job at a
//! time: a release that finds one counts as a response of a period, so that slower work is never the better one.

use punctual_units::{Nanos, Time};

use super::AHEAD_JOBS_MAX;
use crate::allocator::CoreShares;
use crate::grid::Share;
use crate::hysteresis::Refill;
use crate::masks::WayMask;
use crate::policy::PeriodicTask;
use crate::programs::Programs;
use crate::running::{RunningJob, WaitingJob};

/// Part of a phase below which rounding to nanoseconds makes its end.
const ENDED: f64 = 1e-12;

/// A task, and its next release.
#[derive(Clone, Copy, Debug)]
struct Releases {
    task: PeriodicTask,
    next: Time,
}

/// A job and what is counted of it.
#[derive(Clone, Copy, Debug)]
struct JobRecord {
    released: Time,
    weight: f64,
    /// Priority and deadline: the least runs.
    order: (u32, Time),
}

impl JobRecord {
    /// Record of a job of `task`, if that is still known.
    fn of(task: Option<&PeriodicTask>, released: Time, deadline: Time) -> JobRecord {
        let rank = task.map_or(u32::MAX, |task| task.rank.unwrap_or_default());
        JobRecord {
            released,
            weight: task.map_or(0.0, |task| task.weight),
            order: (rank, deadline),
        }
    }
}

/// Counts of one core's jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobCounts {
    /// Jobs that have ended or whose deadline has passed, of tasks with a weight.
    pub due: u64,
    /// Of these, those that were late.
    pub late: u64,
    /// Sum of the weights of the late ones.
    pub late_weight: f64,
    /// Sum over all jobs of the seconds from release to end, or to now.
    pub response: f64,
}

/// Jobs of a core, and the ways and bandwidth that it has.
#[derive(Clone, Debug)]
struct ModelCore {
    /// Jobs by priority and deadline, the running one at `head`; those before it have ended.
    jobs: Vec<WaitingJob>,
    about: Vec<JobRecord>,
    head: usize,
    share: Share,
    mask: WayMask,
    /// Bytes of its ways that are not filled.
    cold: f64,
    counts: JobCounts,
}

/// The machine at an instant.
#[derive(Clone, Debug)]
pub(super) struct Model {
    tasks: Vec<Releases>,
    cores: Vec<ModelCore>,
    refill: Refill,
    gap: Nanos,
    now: Time,
    decided: Option<Time>,
    /// Whether a job has come, ended or changed its phase since the last decision.
    changed: bool,
}

impl Model {
    /// The machine at `now` with `plan`, with the jobs that are there on `cores`, and those that `tasks` release from
    /// then on.
    pub fn new(
        tasks: &[PeriodicTask],
        cores: &[Option<RunningJob<'_>>],
        plan: &CoreShares,
        (refill, gap): (Refill, Nanos),
        now: Time,
    ) -> Model {
        // The jobs that are released now are among those that are there.
        let from = if cores.iter().any(Option::is_some) {
            now + Nanos(1)
        } else {
            now
        };
        let releases = |task: &PeriodicTask| Releases {
            task: *task,
            next: task.release_from(from),
        };
        let core = |(number, job): (usize, &Option<RunningJob<'_>>)| {
            let mut core = ModelCore::new(plan.shares[number], plan.masks[number]);
            let Some(running) = job else { return core };
            let first = WaitingJob {
                program: running.program,
                progress: running.progress,
                deadline: running.deadline,
            };
            for job in std::iter::once(&first).chain(running.waiting) {
                let of = |task: &&PeriodicTask| task.core == number && task.program == job.program;
                let task = tasks.iter().find(of);
                let mut job = *job;
                if job.deadline < Time::MAX {
                    job.deadline = job.deadline - task.map_or(Nanos::ZERO, |task| task.data);
                }
                core.add(job, JobRecord::of(task, now, job.deadline));
            }
            core
        };
        Model {
            tasks: tasks.iter().map(releases).collect(),
            cores: cores.iter().enumerate().map(core).collect(),
            refill,
            gap,
            now,
            decided: None,
            changed: true,
        }
    }

    pub fn now(&self) -> Time {
        self.now
    }

    /// Counts of each core, with the jobs that are still there.
    pub fn counts(&self) -> impl Iterator<Item = JobCounts> + '_ {
        self.cores.iter().map(|core| core.counts_at(self.now))
    }

    /// Number of jobs on all cores.
    pub fn jobs(&self) -> usize {
        self.cores.iter().map(|core| core.jobs.len() - core.head).sum()
    }

    /// Gives each core what `plan` says, with all ways filled.
    pub fn begin_with(&mut self, plan: &CoreShares) {
        self.hand_out(plan);
        self.cores.iter_mut().for_each(|core| core.cold = 0.0);
    }

    /// Gives each core what `plan` says; ways that are new to a core are cold.
    pub fn hand_out(&mut self, plan: &CoreShares) {
        for ((core, share), mask) in self.cores.iter_mut().zip(&plan.shares).zip(&plan.masks) {
            core.cold += f64::from(mask.gained(core.mask)) * self.refill.way_bytes;
            core.cold = core.cold.min(f64::from(mask.count()) * self.refill.way_bytes);
            (core.share, core.mask) = (*share, *mask);
        }
    }

    /// Whether a decision is due now; then the next is due a gap later at the earliest.
    pub fn is_due(&mut self) -> bool {
        let due = self.decided.map_or(Time::ZERO, |decided| decided + self.gap);
        if !self.changed || self.now < due {
            return false;
        }
        (self.changed, self.decided) = (false, Some(self.now));
        true
    }

    /// The job of each core, with those that wait for it.
    pub fn running(&self) -> impl Iterator<Item = Option<RunningJob<'_>>> {
        self.cores.iter().map(ModelCore::running)
    }

    /// Goes on to the next event, at most to `end`.
    pub fn pass(&mut self, programs: &Programs, end: Time) {
        let due = self.decided.map_or(Time::ZERO, |decided| decided + self.gap);
        let mut next = if self.changed { end.min(due.max(self.now)) } else { end };
        for releases in &self.tasks {
            next = next.min(releases.next);
        }
        for core in &self.cores {
            if let Some(seconds) = core.until_event(programs, self.refill) {
                next = next.min(self.now + Nanos::from_secs_f64(seconds).max(Nanos(1)));
            }
        }
        let seconds = next.since(self.now).as_secs_f64();
        for core in &mut self.cores {
            self.changed |= core.pass(programs, self.refill, seconds, next);
        }
        self.now = next;
        if next >= end {
            return;
        }
        let full = self.jobs() >= AHEAD_JOBS_MAX;
        for Releases { task, next } in &mut self.tasks {
            while *next <= self.now {
                let released = *next;
                *next = task.release_from(released + Nanos(1));
                let core = &mut self.cores[task.core];
                let job = WaitingJob {
                    program: task.program,
                    progress: 0.0,
                    deadline: task.due(released),
                };
                if core.has_one_of(job) {
                    core.counts.response += task.period.as_secs_f64();
                    continue;
                }
                // Beyond the bound a job is late without being run.
                if full {
                    core.counts.add(task.weight, true);
                } else {
                    core.add(job, JobRecord::of(Some(&*task), released, job.deadline));
                }
                self.changed = true;
            }
        }
    }
}

impl ModelCore {
    fn new(share: Share, mask: WayMask) -> ModelCore {
        ModelCore {
            jobs: Vec::new(),
            about: Vec::new(),
            head: 0,
            share,
            mask,
            cold: 0.0,
            counts: JobCounts::default(),
        }
    }

    fn add(&mut self, job: WaitingJob, about: JobRecord) {
        // A job of the same order that was there first stays first.
        let at = self.head + self.about[self.head..].partition_point(|other| other.order <= about.order);
        self.jobs.insert(at, job);
        self.about.insert(at, about);
    }

    /// Whether it has another job of a task without deadlines that runs this program.
    fn has_one_of(&self, job: WaitingJob) -> bool {
        let same = |other: &WaitingJob| other.deadline == Time::MAX && other.program == job.program;
        job.deadline == Time::MAX && self.jobs[self.head..].iter().any(same)
    }

    fn running(&self) -> Option<RunningJob<'_>> {
        let (first, waiting) = self.jobs[self.head..].split_first()?;
        Some(RunningJob {
            program: first.program,
            progress: first.progress,
            deadline: first.deadline,
            waiting,
        })
    }

    /// Seconds until its job leaves its phase, filling counted; `None` at rest.
    fn until_event(&self, programs: &Programs, refill: Refill) -> Option<f64> {
        let job = self.jobs.get(self.head)?;
        let fill = self.cold / refill.bandwidth(self.share.partitions);
        Some(fill + programs.phase_left(job.program, job.progress, self.share))
    }

    /// Runs for `seconds`, until `now`. Returns whether its job has ended or left its phase.
    fn pass(&mut self, programs: &Programs, refill: Refill, mut seconds: f64, now: Time) -> bool {
        let Some(job) = self.jobs.get_mut(self.head) else {
            return false;
        };
        let bandwidth = refill.bandwidth(self.share.partitions);
        if self.cold > 0.0 {
            let fill = (self.cold / bandwidth).min(seconds);
            self.cold = (self.cold - fill * bandwidth).max(0.0);
            // A rest that is shorter than the clock's resolution takes no time.
            if self.cold < bandwidth * 1e-9 {
                self.cold = 0.0;
            }
            seconds -= fill;
        }
        let end = programs.phase_end(job.program, job.progress);
        let progress = job.progress + seconds * programs.progress_rate(job.program, job.progress, self.share);
        // The next event is a whole number of nanoseconds away.
        let close = 1e-9 * programs.progress_rate(job.program, job.progress, self.share) + ENDED;
        if progress + close < end {
            job.progress = progress;
            return false;
        }
        job.progress = end;
        if end >= 1.0 {
            let about = self.about[self.head];
            self.counts.add(about.weight, now > job.deadline);
            self.counts.response += now.since(about.released).as_secs_f64();
            self.head += 1;
            if self.head > 64 && self.head * 2 > self.jobs.len() {
                self.jobs.drain(..self.head);
                self.about.drain(..self.head);
                self.head = 0;
            }
        }
        true
    }

    fn counts_at(&self, now: Time) -> JobCounts {
        let mut counts = self.counts;
        for (job, about) in self.jobs.iter().zip(&self.about).skip(self.head) {
            if job.deadline < now {
                counts.add(about.weight, true);
            }
            counts.response += now.since(about.released).as_secs_f64();
        }
        counts
    }
}

impl JobCounts {
    /// Counts a job of this weight that has ended, or whose deadline has passed.
    fn add(&mut self, weight: f64, late: bool) {
        self.due += u64::from(weight > 0.0);
        self.late += u64::from(late && weight > 0.0);
        self.late_weight += if late { weight } else { 0.0 };
    }
}
