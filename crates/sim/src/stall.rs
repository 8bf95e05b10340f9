//! Jobs that wait for a split cache and memory: how an allocator sees them, and how long they stall.
//!
//! **Problem.** A program with an execution profile has a rate under each share of ways and bandwidth. Here jobs are
//! cycles at a clock that changes. How do the two join?
//!
//! **Method.** With everything there is, a job is its cycles, which scale with the clock. What a smaller share makes it
//! slower is time in which the core waits, which does not: so many nanoseconds with each cycle. The allocating caller
//! tells them ([`Simulation::stall`]) whenever a job's share or phase changes; that is why it may ask where jobs are
//! ([`Simulation::jobs`]) and when the next of them may be elsewhere ([`Simulation::next_end`]).

use punctual_allocation::Waiting;
use punctual_units::{Hertz, TaskId, Time};

use crate::Simulation;
use crate::cores::{Core, Doing, Occupant};
use crate::task::Step;

/// A released job that is not complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobAt {
    /// Which copy of the task; the argument of [`Simulation::stall`].
    pub runner: usize,
    /// Whose job.
    pub task: TaskId,
    /// Its core, from 0.
    pub core: usize,
    /// The op of its program that it is in, or that comes next, from 0.
    pub op: usize,
    /// The part of the op that is done, 0..=1.
    pub done: f64,
    /// Its absolute deadline; none for best-effort jobs.
    pub deadline: Option<Time>,
    /// When it was released.
    pub released: Time,
    /// Whether it has the core now.
    pub runs: bool,
}

impl Simulation<'_> {
    /// The jobs that are under way: by runner, in the order of their release.
    pub fn jobs(&mut self) -> Vec<JobAt> {
        self.settle();
        let mut jobs = Vec::with_capacity(self.runners.len());
        for (runner, copy) in self.runners.iter().enumerate() {
            let Some(first) = self.first_job(runner) else { continue };
            jobs.push(first);
            jobs.extend(copy.backlog.iter().map(|(_, released)| JobAt {
                op: 0,
                done: 0.0,
                deadline: copy.deadline.map(|deadline| *released + deadline),
                released: *released,
                runs: false,
                ..first
            }));
        }
        jobs
    }

    /// The job of this runner that runs, or runs next.
    pub(crate) fn first_job(&self, runner: usize) -> Option<JobAt> {
        let copy = &self.runners[runner];
        let job = copy.job.as_ref()?;
        let core = &self.cores[copy.core];
        let runs = core.occupant() == Some(Occupant::Runner(runner));
        // What is left of a job that was put off, or stands still, is kept with it.
        let works = runs && core.doing() == Doing::Work;
        let left = if works { core.left(self.now) } else { job.left() };
        Some(JobAt {
            runner,
            task: copy.task,
            core: copy.core,
            op: job.op,
            done: 1.0 - left,
            deadline: copy.deadline.map(|deadline| job.released + deadline),
            released: job.released,
            runs,
        })
    }

    /// What an allocator sees of a job whose task has a program.
    pub(crate) fn seen(&self, job: &JobAt) -> Option<Waiting> {
        let runner = &self.runners[job.runner];
        let (program, split) = (runner.program?, self.split.as_ref()?);
        let phase = |step: &Step| matches!(step, Step::Phase(_));
        let progress = match runner.steps().get(job.op) {
            Some(Step::Phase(phase)) => split.programs[program].progress(*phase, job.done),
            _ if runner.steps()[job.op..].iter().any(phase) => 0.0,
            _ => 1.0_f64.next_down(),
        };
        Some(Waiting {
            program,
            progress,
            deadline: job.deadline.unwrap_or(Time::MAX),
        })
    }

    /// From now on, the jobs of this runner wait so many nanoseconds with each cycle that they compute; 0 at first.
    /// Negative and infinite numbers count as 0.
    pub fn stall(&mut self, runner: usize, ns_per_cycle: f64) {
        let stall = if ns_per_cycle.is_finite() {
            ns_per_cycle.max(0.0)
        } else {
            0.0
        };
        if let Some(copy) = self.runners.get_mut(runner)
            && copy.stall != stall
        {
            copy.stall = stall;
            let runs = |core: &&mut Core| core.occupant() == Some(Occupant::Runner(runner));
            if let Some(core) = self.cores.iter_mut().find(runs) {
                core.stall(stall);
            }
            self.unpaced = true;
        }
    }

    /// The clock in force.
    pub fn clock(&self) -> Hertz {
        self.step.clock
    }

    /// When the next op of any job ends if nothing changes before.
    pub fn next_end(&mut self) -> Time {
        self.settle();
        let ends = self.cores.iter().map(Core::finish);
        ends.min().unwrap_or(Time::MAX)
    }
}
