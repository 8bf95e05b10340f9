//! Jobs that wait for a split cache and memory: how an allocator sees them, and how long they stall.
//!
//! **Problem.** A program with an execution profile has a rate under each share of ways and bandwidth. Here jobs are cycles
//! at a clock that changes. How do the two join?
//!
//! **Method.** With everything there is, a job is its cycles, which scale with the clock. What a smaller share makes it slower
//! is time in which the core waits, which does not: so many nanoseconds with each cycle. Whoever allocates tells them
//! ([`Simulation::stall`]) whenever a job's share or phase changes; that is why it may ask where jobs are
//! ([`Simulation::jobs`]) and when the next of them may be elsewhere ([`Simulation::next_end`]).

use punctual_units::{Hertz, TaskId, Time};

use crate::Simulation;
use crate::cores::{Core, Occupant};
use crate::runner::Runner;

/// A released job that is not complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobAt {
    /// Which copy of the task; what [`Simulation::stall`] is told.
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
    /// Whether it has the core now.
    pub runs: bool,
}

impl Simulation<'_> {
    /// The jobs that are under way, by runner; of each runner, the first.
    pub fn jobs(&mut self) -> Vec<JobAt> {
        self.settle();
        let copies = self.runners.iter().enumerate();
        let at = |(runner, copy): (usize, &Runner)| {
            let job = copy.job.as_ref()?;
            let core = &self.cores[copy.core];
            let runs = core.occupant() == Some(Occupant::Runner(runner));
            // What is left of a job that was put off is kept with it.
            let left = if runs { core.left(self.now) } else { job.left() };
            Some(JobAt {
                runner,
                task: copy.task,
                core: copy.core,
                op: job.op,
                done: 1.0 - left,
                deadline: copy.deadline.map(|deadline| job.released + deadline),
                runs,
            })
        };
        copies.filter_map(at).collect()
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

    /// Tells each core how much longer its job takes than its cycles alone.
    pub(crate) fn stretch_stalled(&mut self) {
        let cycles_per_ns = self.step.clock.0 as f64 * 1e-9;
        for core in &mut self.cores {
            let stall = match core.occupant() {
                Some(Occupant::Runner(runner)) => self.runners[runner].stall,
                _ => 0.0,
            };
            core.stretch(1.0 + stall * cycles_per_ns);
        }
    }
}
