//! What a simulated machine has to do, and what it tells of it.

use punctual_store::updates::AdmissionOptions;
use punctual_units::{Nanos, TaskId, Time};
use punctual_workload::{Class, JobOutcome, JobProgress, Program, SensorStream, TaskSpec, UpdateMode};

use crate::check::ModelError;
use crate::runner::{BACKLOG_MAX, Runner};
use crate::task::{Jobs, Release, Step, Task};

/// What a simulated machine has to do.
#[derive(Clone, Debug)]
pub struct Load<'t> {
    /// The tasks, by [`TaskId`], and what their jobs do.
    pub tasks: Vec<(TaskSpec, Program)>,
    /// The sensors' updates.
    pub stream: SensorStream<'t>,
    /// What binds their admission.
    pub admission: AdmissionOptions,
    /// How admitted updates reach the store.
    pub update_mode: UpdateMode,
    /// How long a memory-first update may wait for its group commit.
    pub group_commit: Nanos,
    /// Bytes of a temporal object's value.
    pub value_bytes: u32,
    /// Seeds all that is drawn: gaps between jobs, objects read.
    pub seed: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Happening {
    /// A job was released.
    Released {
        /// Whose job.
        task: TaskId,
        /// Counts up from 0 within the task.
        job: u64,
        /// When.
        at: Time,
    },
    /// A real-time job has come to a checkpoint; only where [`Simulation::tell_progress`](crate::Simulation::tell_progress) asks
    /// for it.
    Progressed(JobProgress),
    /// A job is complete.
    Completed(JobOutcome),
    /// A job should have been released, but [`crate::BACKLOG_MAX`] jobs of its task already waited. It has no number.
    Skipped {
        /// Whose job.
        task: TaskId,
        /// When.
        at: Time,
    },
    /// The clock has come to the instant that was asked for.
    Reached,
}

/// A load that cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// The machine is not sound.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A program without ops: its jobs would take no time.
    #[error("task \"{task}\": its program is empty; give it something to compute or to access")]
    EmptyProgram {
        /// The task's name.
        task: String,
    },
}

/// One runner per copy of a task and core: real-time tasks on the last core, best-effort tasks on all others.
pub(crate) fn place(tasks: &[(TaskSpec, Program)], cores: usize, seed: u64) -> Vec<Runner> {
    let last = cores - 1;
    let mut runners = Vec::new();
    for (id, (spec, program)) in (0..).zip(tasks) {
        let homes = match spec.class {
            // An exclusive task shares its real-time core with nobody anyway.
            Class::RealTime { .. } | Class::Exclusive { .. } => last..cores,
            Class::BestEffort => 0..spec.cores_of(last.max(1)),
        };
        for core in homes {
            for _ in 0..spec.per_core {
                let task = pinned(spec, program, core);
                runners.push(Runner::new(TaskId(id), &task, seed, runners.len()));
            }
        }
    }
    runners
}

/// One copy of a scenario's task.
fn pinned(spec: &TaskSpec, program: &Program, core: usize) -> Task {
    Task {
        name: spec.name.clone(),
        deadline: spec.deadline(),
        release: Release::Arrival(spec.arrival),
        active: spec.active,
        core: Some(core),
        jobs: Jobs::Alike(program.ops.iter().copied().map(Step::Op).collect()),
        program: None,
        backlog_max: BACKLOG_MAX,
    }
}
