//! What a simulated machine has to do, and what it tells of it.

use punctual_allocation::PoolError;
use punctual_cores::{Limits, PlaceError, Placement, Request, Seat};
use punctual_store::updates::AdmissionOptions;
use punctual_units::{CoreId, Nanos, TaskId, Time};
use punctual_workload::{JobOutcome, JobProgress, Op, Program, SensorStream, TaskSpec, UpdateMode};

use crate::check::ModelError;
use crate::runner::{BACKLOG_MAX, Runner};
use crate::split::{self, SplitModel};
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
    /// What the cores split, where they split anything; evenly at first.
    pub split: Option<SplitLoad>,
    /// Seeds all that is drawn: gaps between jobs, objects read.
    pub seed: u64,
}

/// What cores split among them, and what of their work depends on that.
#[derive(Clone, Debug)]
pub struct SplitLoad {
    /// What there is.
    pub model: SplitModel,
    /// What tasks compute under it.
    pub programs: Vec<split::Program>,
    /// The program of each task, by its place in `programs`: its jobs compute that, a step for each phase, after all
    /// that they read and before all that they write. Tasks without one compute what their ops say.
    pub program_of: Vec<Option<usize>>,
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
    /// There is too little to split.
    #[error(transparent)]
    Pool(#[from] PoolError),
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
        let phases = load.split.as_ref().and_then(|split| split.phases(id as usize));
        for core in seat.cores() {
            for _ in 0..spec.per_core {
                let task = pinned(spec, steps(program, phases), core.0 as usize, phases.map(|(of, _)| of));
                runners.push(Runner::new(TaskId(id), &task, load.seed, runners.len()));
            }
        }
    }
    runners
}

/// What each job does: where `phases` says which split program it runs, in so many phases, those in place of what it
/// computes.
fn steps(program: &Program, phases: Option<(usize, usize)>) -> Vec<Step> {
    let ops = || program.ops.iter().copied();
    let Some((_, phases)) = phases else {
        return ops().map(Step::Op).collect();
    };
    let reads = ops().filter(|op| matches!(op, Op::Get { .. })).map(Step::Op);
    let writes = ops().filter(|op| matches!(op, Op::Put { .. })).map(Step::Op);
    reads.chain((0..phases).map(Step::Phase)).chain(writes).collect()
}

impl SplitLoad {
    /// The program of this task, and how many phases that has.
    fn phases(&self, task: usize) -> Option<(usize, usize)> {
        let program = (*self.program_of.get(task)?)?;
        Some((program, self.programs.get(program)?.phases()))
    }
}

/// One copy of a scenario's task.
fn pinned(spec: &TaskSpec, steps: Vec<Step>, core: usize, program: Option<usize>) -> Task {
    Task {
        name: spec.name.clone(),
        deadline: spec.deadline(),
        release: Release::Arrival(spec.arrival),
        active: spec.active,
        core: Some(core),
        jobs: Jobs::Alike(steps),
        program,
        backlog_max: BACKLOG_MAX,
    }
}
