//! A copy of a task on a core: the releases of its jobs, and the backlog.

use std::collections::VecDeque;

use punctual_units::{Nanos, TaskId, Time};
use punctual_workload::{Active, Arrival};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::job::ReleasedJob;
use crate::task::{Release, Step, Task};
use crate::waits::Waits;

/// Bound on the jobs of a scenario's task that wait behind the running one. A release beyond it is skipped: the task is
/// overloaded for good, and ever older jobs would be of no use.
pub const BACKLOG_MAX: usize = 8;

/// A copy of a task with its jobs.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    pub task: TaskId,
    pub deadline: Option<Nanos>,
    /// The core to which the copy is pinned, the lent core that has its job, or else the core on which it ran last.
    pub core: usize,
    /// The core to which the copy is pinned.
    pub home: usize,
    pub pinned: bool,
    jobs: Box<[Box<[Step]>]>,
    /// Index in `jobs` of the running job's steps.
    at: usize,
    /// Number of jobs that are still to be released.
    remaining: usize,
    /// Index of the split program whose phases its jobs run.
    pub program: Option<usize>,
    /// The running job, or the next to run.
    pub job: Option<ReleasedJob>,
    /// Causes that kept the job from progressing.
    pub waits: Waits,
    /// When the next job is released; `Time::MAX` while a job must end first.
    pub next_release: Time,
    /// Until when the job, though ready, may not take a core.
    pub held: Option<Time>,
    /// Time worked, up to the begin of the core's present activity.
    pub worked: Nanos,
    /// End of its last slice beside called work; best-effort jobs take turns by it.
    pub turn: Time,
    /// Whether it is called work that preempts best-effort jobs.
    pub urgent: bool,
    /// Released jobs that wait behind the present one: number and instant of release.
    pub backlog: VecDeque<(u64, Time)>,
    backlog_max: usize,
    release: Release,
    active: Active,
    /// Generator of gaps and pauses.
    gaps: ChaCha8Rng,
    /// Generator of the objects read: separate, so that reads never move a release.
    pub reads: ChaCha8Rng,
}

/// The two generators of a runner; streams of one key are independent.
fn generators(seed: u64, runner: usize) -> [ChaCha8Rng; 2] {
    [0, 1].map(|purpose| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(2 * runner as u64 + purpose);
        rng
    })
}

/// Returns `release`, or `Time::MAX` where the task is switched off by then.
fn within(active: Active, release: Time) -> Time {
    active.admit(Time::ZERO, release).unwrap_or(Time::MAX)
}

impl Runner {
    /// Makes the `index`-th runner of a machine.
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
            worked: Nanos::ZERO,
            turn: Time::ZERO,
            urgent: false,
            backlog: VecDeque::with_capacity(task.backlog_max.min(BACKLOG_MAX)),
            backlog_max: task.backlog_max,
            release: task.release,
            active: task.active,
            gaps,
            reads,
        }
    }

    /// Releases job `number` now; returns false if it is skipped because the backlog is full.
    pub fn release(&mut self, number: u64, now: Time) -> bool {
        self.remaining = self.remaining.saturating_sub(1);
        self.next_release = match self.release {
            Release::Called | Release::Paced { .. } | Release::Arrival(Arrival::AfterCompletion { .. }) => Time::MAX,
            // At least a nanosecond later, so that an instant has finitely many releases.
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

    /// Removes the job that has ended, and makes the next waiting job the present one.
    pub fn retire(&mut self, now: Time) -> Option<ReleasedJob> {
        let ended = self.job.take()?;
        let next = match self.release {
            Release::Arrival(arrival @ Arrival::AfterCompletion { .. }) => arrival.next(now, now, &mut self.gaps),
            Release::Paced { period, .. } => (ended.released + period).max(now),
            Release::Arrival(_) | Release::Called => self.next_release,
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

    /// Makes a job the present one, which runs next.
    fn up(&mut self, number: u64, released: Time, now: Time) {
        self.waits.begin(released, now);
        self.at = number as usize % self.jobs.len().max(1);
        self.job = Some(ReleasedJob::new(number, released));
    }

    /// Steps of the present job.
    pub fn steps(&self) -> &[Step] {
        &self.jobs[self.at]
    }

    /// Whether the caller releases its jobs.
    pub fn is_called(&self) -> bool {
        self.release == Release::Called
    }

    /// Whether no job is left, and none follows.
    pub fn is_finished(&self) -> bool {
        self.job.is_none() && self.next_release == Time::MAX
    }

    /// Next instant of an event of this runner: a release, the end of a request, or the end of a wait.
    pub fn wakes(&self) -> Time {
        let blocked = self.job.as_ref().and_then(ReleasedJob::blocked_until);
        let first = self.next_release.min(self.held.unwrap_or(Time::MAX));
        first.min(blocked.unwrap_or(Time::MAX))
    }
}

fn first_release(task: &Task, gaps: &mut ChaCha8Rng) -> Time {
    let first = match task.release {
        Release::Arrival(arrival) => Time::ZERO + task.active.from + arrival.first(gaps),
        Release::Paced { first, .. } => first,
        Release::Called => Time::MAX,
    };
    match task.jobs.lists().is_empty() {
        true => Time::MAX,
        false => within(task.active, first),
    }
}
