//! One copy of a task on one core: when its jobs are released, and which of them wait.

use std::collections::VecDeque;

use punctual_units::{Nanos, TaskId, Time};
use punctual_workload::{Active, Arrival};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::job::Job;
use crate::task::{Release, Step, Task};
use crate::waits::Waits;

/// Jobs of a scenario's task that wait behind the running one. A release beyond that is skipped: the task is overloaded
/// for good, and ever older jobs would be of no use.
pub const BACKLOG_MAX: usize = 8;

/// One copy of a task.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    pub task: TaskId,
    pub deadline: Option<Nanos>,
    /// The core that it is pinned to, the lent one that its job was put on, or else the one on which it ran last.
    pub core: usize,
    /// The core that it is pinned to.
    pub home: usize,
    pub pinned: bool,
    jobs: Box<[Box<[Step]>]>,
    /// Which of `jobs` is that of the running one.
    at: usize,
    /// Jobs that are still to be released.
    remaining: usize,
    /// The program whose phases it runs.
    pub program: Option<usize>,
    /// The running job, or the one that runs next.
    pub job: Option<Job>,
    /// What keeps it from going on.
    pub waits: Waits,
    /// When the next job is released; never while one must end first.
    pub next_release: Time,
    /// Until when its job, which is ready, may not take a core.
    pub held: Option<Time>,
    /// What it worked, or was credited with, in the fair class; up to when its core began to do what it does.
    pub virtual_runtime: Nanos,
    /// What it worked in all, up to then.
    pub worked: Nanos,
    /// Released jobs behind it: number and instant.
    pub backlog: VecDeque<(u64, Time)>,
    backlog_max: usize,
    release: Release,
    active: Active,
    /// Draws gaps and pauses.
    gaps: ChaCha8Rng,
    /// Draws the objects that are read: apart, so that what is read never moves a release.
    pub reads: ChaCha8Rng,
}

/// Seeds of the two generators of one runner; streams of one key are independent.
fn generators(seed: u64, runner: usize) -> [ChaCha8Rng; 2] {
    [0, 1].map(|purpose| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(2 * runner as u64 + purpose);
        rng
    })
}

/// `release`, or never where the task is switched off by then.
fn within(active: Active, release: Time) -> Time {
    active.admit(Time::ZERO, release).unwrap_or(Time::MAX)
}

impl Runner {
    /// The `index`-th runner of a machine.
    pub fn new(id: TaskId, task: &Task, seed: u64, index: usize) -> Runner {
        let [mut gaps, reads] = generators(seed, index);
        Runner {
            task: id,
            deadline: task.deadline,
            core: task.core.unwrap_or(0),
            home: task.core.unwrap_or(0),
            pinned: task.core.is_some(),
            jobs: task.jobs.lists().iter().map(|steps| steps.as_slice().into()).collect(),
            at: 0,
            remaining: task.jobs.count().unwrap_or(usize::MAX),
            program: task.program,
            job: None,
            waits: Waits::default(),
            next_release: first_release(task, &mut gaps),
            held: None,
            virtual_runtime: Nanos::ZERO,
            worked: Nanos::ZERO,
            backlog: VecDeque::with_capacity(task.backlog_max.min(BACKLOG_MAX)),
            backlog_max: task.backlog_max,
            release: task.release,
            active: task.active,
            gaps,
            reads,
        }
    }

    /// Releases job `number` now; false where it is skipped because the backlog is full.
    pub fn release(&mut self, number: u64, now: Time) -> bool {
        self.remaining = self.remaining.saturating_sub(1);
        self.next_release = match self.release {
            Release::Paced { .. } | Release::Arrival(Arrival::AfterCompletion { .. }) => Time::MAX,
            // At least a nanosecond on, so that releases come to an end.
            Release::Arrival(arrival) => {
                let next = arrival.next(now, now, &mut self.gaps).max(now + Nanos(1));
                within(self.active, next)
            }
        };
        if self.job.is_none() {
            self.up(number, now, now);
            return true;
        }
        let room = self.backlog.len() < self.backlog_max;
        if room {
            self.backlog.push_back((number, now));
        }
        room
    }

    /// Takes off the job that has ended; the next one that waits is up.
    pub fn retire(&mut self, now: Time) -> Option<Job> {
        let ended = self.job.take()?;
        let next = match self.release {
            Release::Arrival(arrival @ Arrival::AfterCompletion { .. }) => arrival.next(now, now, &mut self.gaps),
            Release::Paced { period, .. } => (ended.released + period).max(now),
            Release::Arrival(_) => self.next_release,
        };
        self.next_release = if self.remaining > 0 {
            within(self.active, next)
        } else {
            Time::MAX
        };
        if let Some((number, at)) = self.backlog.pop_front() {
            self.up(number, at, now);
        }
        Some(ended)
    }

    /// Lets a job be the one that runs next.
    fn up(&mut self, number: u64, released: Time, now: Time) {
        self.waits.begin(released, now);
        self.at = number as usize % self.jobs.len().max(1);
        self.job = Some(Job::new(number, released));
    }

    /// The steps of the job that is up.
    pub fn steps(&self) -> &[Step] {
        &self.jobs[self.at]
    }

    /// Whether no job is left, and none will come.
    pub fn is_finished(&self) -> bool {
        self.job.is_none() && self.next_release == Time::MAX
    }

    /// When something happens to it of itself: a release, the end of a request, the end of a wait.
    pub fn wakes(&self) -> Time {
        let blocked = self.job.as_ref().and_then(Job::blocked_until);
        let first = self.next_release.min(self.held.unwrap_or(Time::MAX));
        first.min(blocked.unwrap_or(Time::MAX))
    }
}

fn first_release(task: &Task, gaps: &mut ChaCha8Rng) -> Time {
    let first = match task.release {
        Release::Arrival(arrival) => Time::ZERO + task.active.from + arrival.first(gaps),
        Release::Paced { first, .. } => first,
    };
    match task.jobs.lists().is_empty() {
        true => Time::MAX,
        false => within(task.active, first),
    }
}
