//! What a simulated machine has to do, and what it tells of it.

use punctual_cores::{Limits, PlaceError, Placement, Request, Seat};
use punctual_store::updates::AdmissionOptions;
use punctual_units::{CoreId, Nanos, TaskId, Time};
use punctual_workload::{JobOutcome, JobProgress, Program, SensorStream, TaskSpec, UpdateMode};

use crate::check::ModelError;
use crate::runner::{BACKLOG_MAX, Runner};
use crate::task::{Jobs, Release, Step, Task};

/// What a simulated machine has to do.
#[derive(Clone, Debug)]
pub struct Load<'t> {
    /// The tasks, by [`TaskId`], and what their jobs do.
    pub tasks: Vec<(TaskSpec, Program)>,
    /// Where the tasks are, each at its place in `tasks`; `None`: where [`placed`] puts them.
    pub placement: Option<Placement>,
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
pub enum Event {
    /// A job was released.
    Released {
        /// Whose job.
        task: TaskId,
        /// Counts up from 0 within the task.
        job: u64,
        /// When.
        at: Time,
    },
    /// A real-time job has come to a checkpoint; only where
    /// [`Simulation::tell_progress`](crate::Simulation::tell_progress) asks for it.
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

impl Load<'_> {
    /// Where the tasks are. Refuses a placement of other tasks, or on cores that there are not.
    pub(crate) fn place(&mut self, cores: u32) -> Result<Placement, SimulationError> {
        let placement = match self.placement.take() {
            Some(placement) => placement,
            None => placed(&self.tasks, cores)?,
        };
        let (seats, tasks) = (placement.seats.len(), self.tasks.len());
        let runtime = [placement.house(), placement.update_core()];
        let used = placement.seats.iter().flat_map(Seat::cores).chain(&runtime);
        if seats == tasks && used.copied().all(|core| core.0 < cores) {
            return Ok(placement);
        }
        Err(SimulationError::Misplaced { seats, tasks })
    }
}

/// A load that cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// The machine is not sound.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// What tasks name contradicts each other or the machine.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The placement is for other tasks, or for another machine.
    #[error("the placement has {seats} seats for {tasks} tasks, or names a core that this machine does not have")]
    Misplaced {
        /// Seats of the placement.
        seats: usize,
        /// Tasks of the load.
        tasks: usize,
    },
    /// A program without ops: its jobs would take no time.
    #[error("task \"{task}\": its program is empty; give it something to compute or to access")]
    EmptyProgram {
        /// The task's name.
        task: String,
    },
}

/// Where [`punctual_cores::place`] puts `tasks` on a machine with cores 0 to `cores` - 1 that keeps any of them free
/// for exclusive tasks.
///
/// # Errors
/// [`PlaceError`] where what the tasks name contradicts each other or the machine.
pub fn placed(tasks: &[(TaskSpec, Program)], cores: u32) -> Result<Placement, PlaceError> {
    let requests: Vec<Request> = tasks.iter().map(|(task, _)| Request::from(task)).collect();
    let cores: Vec<CoreId> = (0..cores).map(CoreId).collect();
    punctual_cores::place(&requests, &cores, &Limits::default())
}

/// One runner per copy of a task and core, where the placement says.
pub(crate) fn runners(load: &Load, placement: &Placement) -> Vec<Runner> {
    let mut runners = Vec::new();
    for ((id, (spec, program)), seat) in (0..).zip(&load.tasks).zip(&placement.seats) {
        for core in seat.cores() {
            for _ in 0..spec.per_core {
                let task = pinned(spec, program, core.0 as usize);
                runners.push(Runner::new(TaskId(id), &task, load.seed, runners.len()));
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
