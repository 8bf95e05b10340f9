//! One copy of a task on one core: when its jobs are released, and which of them wait.

use std::collections::VecDeque;

use punctual_units::{Nanos, TaskId, Time};
use punctual_workload::{Active, Arrival};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::job::Job;
use crate::task::{Step, Task};

/// Jobs of a scenario's task that wait behind the running one. A release beyond that is skipped: the task is overloaded for good, and ever
/// older jobs would help nobody.
pub const BACKLOG_MAX: usize = 8;

/// One copy of a task.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    pub task: TaskId,
    pub deadline: Option<Nanos>,
    pub core: usize,
    pub steps: Box<[Step]>,
    /// The program whose phases it runs.
    pub program: Option<usize>,
    /// Nanoseconds that its jobs wait with each cycle that they compute.
    pub stall: f64,
    /// The running job, or the one that runs next.
    pub job: Option<Job>,
    /// When the next job is released; never while one must end first.
    pub next_release: Time,
    /// Released jobs behind it: number and instant.
    pub backlog: VecDeque<(u64, Time)>,
    backlog_max: usize,
    arrival: Arrival,
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
            core: task.core,
            steps: task.steps.as_slice().into(),
            program: task.program,
            stall: 0.0,
            job: None,
            next_release: within(
                task.active,
                Time::ZERO + task.active.from + task.arrival.first(&mut gaps),
            ),
            backlog: VecDeque::with_capacity(task.backlog_max.min(BACKLOG_MAX)),
            backlog_max: task.backlog_max,
            arrival: task.arrival,
            active: task.active,
            gaps,
            reads,
        }
    }

    /// Releases job `number` now; false where it is skipped because the backlog is full.
    pub fn release(&mut self, number: u64, now: Time) -> bool {
        self.next_release = match self.arrival {
            Arrival::AfterCompletion { .. } => Time::MAX,
            // At least a nanosecond on, so that releases come to an end.
            Arrival::Periodic { .. } | Arrival::Sporadic { .. } => {
                let next = self.arrival.next(now, now, &mut self.gaps).max(now + Nanos(1));
                within(self.active, next)
            }
        };
        if self.job.is_none() {
            self.job = Some(Job::new(number, now));
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
        if let Arrival::AfterCompletion { .. } = self.arrival {
            self.next_release = within(self.active, self.arrival.next(now, now, &mut self.gaps));
        }
        let next = self.backlog.pop_front().map(|(number, at)| Job::new(number, at));
        std::mem::replace(&mut self.job, next)
    }
}
