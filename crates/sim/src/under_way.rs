//! The jobs that were released and are not complete.

use punctual_allocation::WaitingJob;
use punctual_units::{Hertz, TaskId, Time};

use crate::Simulation;
use crate::cores::{CoreActivity, Occupant};
use crate::job::JobStage;
use crate::task::Step;

/// A released job that is not complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct JobAt {
    /// Index of the copy of the task.
    pub runner: usize,
    /// Index of the job's core.
    pub core: usize,
    /// Index in the program of the present op, or of the next.
    pub op: usize,
    /// Part of the op that is done, from 0 to 1.
    pub done: f64,
    /// Absolute deadline; `None` for best-effort jobs.
    pub deadline: Option<Time>,
    /// Whether the job has the core now.
    pub runs: bool,
}

impl Simulation {
    /// Number of jobs that the first copy of `task` has begun; `None` while no job of it is open.
    pub fn jobs_begun(&self, task: TaskId) -> Option<u64> {
        let job = self.runners.iter().find(|runner| runner.task == task)?.job?;
        Some(job.number + u64::from(job.stage != JobStage::Waiting))
    }

    /// The job of this runner that runs, or runs next.
    pub(crate) fn first_job(&self, runner: usize) -> Option<JobAt> {
        let copy = &self.runners[runner];
        let job = copy.job.as_ref()?;
        let core = &self.cores[copy.core];
        let runs = core.occupant() == Some(Occupant::Runner(runner));
        // The rest of a job that was taken off its core, or stands still, is stored in the job.
        let works = runs && core.doing() == CoreActivity::Work;
        let left = if works { core.left(self.now) } else { job.left() };
        Some(JobAt {
            runner,
            core: copy.core,
            op: job.op,
            done: 1.0 - left,
            deadline: copy.deadline.map(|deadline| job.released + deadline),
            runs,
        })
    }

    /// View of an allocator of a job whose task has a program.
    pub(crate) fn seen(&self, job: &JobAt) -> Option<WaitingJob> {
        let runner = &self.runners[job.runner];
        let (program, split) = (runner.program?, self.split.as_ref()?);
        let phase = |step: &Step| matches!(step, Step::Phase(_));
        let progress = match runner.steps().get(job.op) {
            Some(Step::Phase(phase)) => split.programs[program].progress(*phase, job.done),
            _ if runner.steps()[job.op..].iter().any(phase) => 0.0,
            _ => 1.0_f64.next_down(),
        };
        Some(WaitingJob {
            program,
            progress,
            deadline: job.deadline.unwrap_or(Time::MAX),
        })
    }

    /// The clock in force.
    pub fn clock(&self) -> Hertz {
        self.clock.step.clock
    }
}
