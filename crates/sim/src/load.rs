//! The load of a simulated machine, and the events that it reports.

use punctual_allocation::SplitError;
use punctual_cores::{Limits, PlaceError, Placement, PlacementRequest, Seat};
use punctual_store::updates::AdmissionOptions;
use punctual_units::{CoreId, Nanos, TaskId, Time};
use punctual_workload::{JobOutcome, JobProgress, Op, Program, SensorStream, TaskSpec, UpdateMode};

use crate::check::ModelError;
use crate::runner::{BACKLOG_MAX, Runner};
use crate::split::{self, SplitModel};
use crate::task::{Jobs, Release, Step, Task};

/// Tasks, sensor updates and settings of a simulation.
#[derive(Clone, Debug)]
pub struct SimulationLoad {
    /// Tasks in the order of their [`TaskId`], each with the program of its jobs.
    pub tasks: Vec<(TaskSpec, Program)>,
    /// Seats in the order of `tasks`; `None`: as [`placed`] chooses.
    pub placement: Option<Placement>,
    /// Sensor updates in order of arrival.
    pub stream: SensorStream,
    /// Bounds and policy of their admission.
    pub admission: AdmissionOptions,
    /// Way of admitted updates into the store.
    pub update_mode: UpdateMode,
    /// Interval of group commits in memory-first mode.
    pub group_commit: Nanos,
    /// Size of a temporal object's value, in bytes.
    pub value_bytes: u32,
    /// Cache and memory that the cores split, evenly at first; `None`: not split.
    pub split: Option<SplitLoad>,
    /// Seed of all random draws: gaps between jobs, objects read.
    pub seed: u64,
}

/// Resources that cores split, and the programs whose speed depends on the split.
#[derive(Clone, Debug)]
pub struct SplitLoad {
    /// The resources to be split.
    pub model: SplitModel,
    /// Programs with phases that depend on the split.
    pub programs: Vec<split::RunnableProfile>,
    /// Index in `programs` for each task: its jobs compute that program, a step for each phase, after all their reads
    /// and before all their writes. Tasks without one compute their ops.
    pub program_of: Vec<Option<usize>>,
}

/// Event of the simulation; `Simulation::run_until` returns one at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SimulationEvent {
    /// A job was released.
    Released {
        task: TaskId,
        /// Number of the job within its task, from 0.
        job: u64,
        at: Time,
    },
    /// A real-time job has reached a checkpoint; reported only after
    /// [`Simulation::tell_progress`](crate::Simulation::tell_progress).
    Progressed(JobProgress),
    /// A job is complete.
    Completed(JobOutcome),
    /// A release was skipped: [`crate::BACKLOG_MAX`] jobs of the task already waited. The job gets no number.
    Skipped { task: TaskId, at: Time },
    /// The simulation has reached the instant given.
    Reached,
}

impl SimulationLoad {
    /// Returns the placement. Refuses a placement of other tasks, or on cores that the machine does not have.
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
    /// The machine model is unsound.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Too few resources to split between the cores.
    #[error(transparent)]
    Pool(#[from] SplitError),
    /// The cores that tasks name contradict each other or the machine.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The placement is for other tasks, or for another machine.
    #[error("the placement has {seats} seats for {tasks} tasks, or names a core that this machine does not have")]
    Misplaced { seats: usize, tasks: usize },
    /// A program without ops: its jobs would take no time.
    #[error("task \"{task}\": its program is empty; give it something to compute or to access")]
    EmptyProgram { task: String },
}

/// Places `tasks` by [`punctual_cores::place`] on a machine with cores 0 to `cores` - 1, of which any may be exclusive.
///
/// # Errors
/// [`PlaceError`] where the cores that tasks name contradict each other or the machine.
pub fn placed(tasks: &[(TaskSpec, Program)], cores: u32) -> Result<Placement, PlaceError> {
    let requests: Vec<PlacementRequest> = tasks.iter().map(|(task, _)| PlacementRequest::from(task)).collect();
    let cores: Vec<CoreId> = (0..cores).map(CoreId).collect();
    punctual_cores::place(&requests, &cores, &Limits::default())
}

/// Makes a runner for each copy of a task on each core of its seat.
pub(crate) fn runners(load: &SimulationLoad, placement: &Placement) -> Vec<Runner> {
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

/// Steps of each job. `phases` names a split program and its number of phases, which then replace the computations of
/// `program`.
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
    /// Index of this task's split program, and its number of phases.
    fn phases(&self, task: usize) -> Option<(usize, usize)> {
        let program = (*self.program_of.get(task)?)?;
        Some((program, self.programs.get(program)?.phases()))
    }
}

/// Converts a copy of a scenario's task.
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
