//! A run of periodic tasks with profiles, from its first release to the end of its last job, under an allocator.

use std::collections::BTreeMap;

use punctual_allocation::{PeriodicTask, Profile};
use punctual_sim::split::{Instant, Overdrawn, RunnableProfile, Slice, SplitModel};
use punctual_sim::{
    CoreTimes, Dispatch, Jobs, MachineModel, Release, Simulation, SimulationError, SimulationEvent, Step, Task,
    TaskWorkload,
};
use punctual_units::{Clock, Nanos, TaskId, Time};
use punctual_workload::{Active, Arrival, JobOutcome};
use thiserror::Error;

/// Bound on the length of a run, in multiples of the time in which jobs are released; a longer run never ends.
const LASTS_MAX: u64 = 100;

/// Bound on the jobs of a run, which stores a record of each: 0.3 GB.
const JOBS_MAX: u64 = 2_000_000;

/// Relative error by which rounding may make a job faster than its envelope, beside less than a nanosecond per phase.
const ROUNDING: f64 = 1e-6;

/// Reasons why a task set did not run to its end.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SplitError {
    /// A task does not fit the machine or the programs.
    #[error("task {task}: {what}")]
    Task {
        /// Index of the task, from 0.
        task: usize,
        /// The fault, in words.
        what: String,
    },
    /// The split model is out of range.
    #[error("the machine: {0}")]
    Machine(String),
    /// The load cannot be simulated.
    #[error(transparent)]
    Load(#[from] SimulationError),
    /// The tasks release more jobs than the run can record.
    #[error("{jobs} jobs in all, at most {most} are simulated: give a shorter duration, or longer periods")]
    Jobs {
        /// Number of jobs that the tasks release.
        jobs: u64,
        /// Bound on the jobs of a run.
        most: u64,
    },
    /// The allocator handed out what there is not.
    #[error(transparent)]
    Overdrawn(#[from] Overdrawn),
    /// A job does not end: it gets no share, or its program is too slow.
    #[error(
        "task {task} does not end: its job released at {} s is not done at {} s; \
         give its core a share, or its program a faster profile",
        released.as_secs_f64(),
        now.as_secs_f64()
    )]
    NeverEnds {
        /// Index of the task, from 0.
        task: usize,
        /// Release of the unfinished job.
        released: Time,
        /// When the run was stopped.
        now: Time,
    },
}

/// An allocator's answer to a question.
#[derive(Clone, Debug, Default)]
pub struct SplitAnswer {
    /// A slice for each core; `None`: they stay.
    pub slices: Option<Vec<Option<Slice>>>,
    /// Time at which to ask again, though nothing may have changed.
    pub due: Option<Time>,
    /// Whether it was put off: then it does not count as a decision.
    pub put_off: bool,
}

impl From<Option<Vec<Option<Slice>>>> for SplitAnswer {
    fn from(slices: Option<Vec<Option<Slice>>>) -> SplitAnswer {
        SplitAnswer {
            slices,
            ..SplitAnswer::default()
        }
    }
}

/// Result of a run that ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SplitResult {
    /// Outcomes of all jobs, in the order in which they ended.
    pub jobs: Vec<JobOutcome>,
    /// When the last job ended.
    pub ended: Time,
    /// Number of calls of the allocator that it did not put off.
    pub decisions: u64,
    /// Number of times that it changed a slice.
    pub changes: u64,
    /// Number of ways that cores gained in all, except those of the first plan.
    pub ways_moved: u64,
    /// Sum over all cores of the time in which they had a job to run.
    pub busy: Nanos,
    /// Part of that time in which jobs stood still until ways were filled.
    pub refilling: Nanos,
    /// Number of jobs that were faster than their program's envelope: must be 0.
    pub too_fast: u64,
}

/// Runs `tasks` by earliest deadline first on their cores, all released first at 0 and last before `duration`, until
/// every job has ended; a task's deadline is the end of its period, and late jobs run to their end. `allocate` is
/// called after releases, ends and phase changes, at most once per [`SplitModel::decision_gap`], and when its last
/// answer says so; it returns a slice for each core, or `None` for no change.
///
/// # Errors
/// [`SplitError`] for invalid input, and for a run that would not end.
pub fn run<A: Into<SplitAnswer>>(
    model: &SplitModel,
    programs: &[RunnableProfile],
    tasks: &[PeriodicTask],
    duration: Nanos,
    mut allocate: impl FnMut(&Instant) -> A,
) -> Result<SplitResult, SplitError> {
    check(model, programs, tasks, duration)?;
    let mut machine = machine(model, programs, tasks, duration)?;
    let mut finished = SplitResult::default();
    let mut under_way = UnderWay::new();
    let (mut decided, mut again): (Option<Time>, Option<Time>) = (None, None);
    let (mut next, mut seen) = (Time::ZERO, 0);
    loop {
        pass(&mut machine, next, &mut under_way, |job| {
            note(&mut finished, job, programs, tasks);
        });
        let due = decided.map_or(Time::ZERO, |at| at + model.decision_gap);
        let changed = seen != machine.work_changes() && due <= machine.now();
        if changed || again.is_some_and(|again| again <= machine.now()) {
            (decided, seen) = (Some(machine.now()), machine.work_changes());
            let answer: SplitAnswer = allocate(&machine.instant()).into();
            finished.decisions += u64::from(!answer.put_off);
            again = answer.due;
            let gained = match answer.slices {
                Some(slices) => machine.hand_out(&slices)?,
                None => None,
            };
            finished.changes += u64::from(gained.is_some());
            finished.ways_moved += u64::from(gained.unwrap_or(0));
        }
        let asks = seen != machine.work_changes();
        let asked = again.unwrap_or(Time::MAX).min(if asks { due } else { Time::MAX });
        next = machine.next_change().min(asked);
        if next > Time::ZERO + duration * LASTS_MAX {
            return end(&machine, &under_way, finished);
        }
    }
}

/// Release of each job that has not ended, by task and number.
type UnderWay = BTreeMap<(TaskId, u64), Time>;

/// Advances time to `next`, which is not after the next event, and handles all events up to then.
fn pass(machine: &mut Simulation, next: Time, under_way: &mut UnderWay, mut ended: impl FnMut(JobOutcome)) {
    loop {
        match machine.run_until(next) {
            SimulationEvent::Completed(outcome) => {
                under_way.remove(&(outcome.task, outcome.job));
                ended(outcome);
            }
            SimulationEvent::Released { task, job, at } => _ = under_way.insert((task, job), at),
            SimulationEvent::Progressed(_) | SimulationEvent::Skipped { .. } => {}
            SimulationEvent::Reached => return,
        }
    }
}

fn note(finished: &mut SplitResult, job: JobOutcome, programs: &[RunnableProfile], tasks: &[PeriodicTask]) {
    let program = &programs[tasks[job.task.index()].program];
    let rounding = program.envelope() * ROUNDING + program.phases() as f64 * 1e-9;
    let fast = job.split.computation.as_secs_f64() < program.envelope() - rounding;
    debug_assert!(!fast, "{job:?} is faster than the uncontended machine");
    finished.too_fast += u64::from(fast);
    finished.ended = job.finished;
    finished.jobs.push(job);
}

/// Ends a run without further events, or with none for very long.
fn end(machine: &Simulation, under_way: &UnderWay, finished: SplitResult) -> Result<SplitResult, SplitError> {
    if let Some(((task, _), released)) = under_way.first_key_value() {
        return Err(SplitError::NeverEnds {
            task: task.index(),
            released: *released,
            now: machine.now(),
        });
    }
    let cores = machine.core_times();
    Ok(SplitResult {
        busy: cores.iter().map(CoreTimes::busy).sum(),
        refilling: cores.iter().map(|core| core.filling).sum(),
        ..finished
    })
}

fn machine(
    model: &SplitModel,
    programs: &[RunnableProfile],
    tasks: &[PeriodicTask],
    duration: Nanos,
) -> Result<Simulation, SplitError> {
    let task = |(number, task): (usize, &PeriodicTask)| Task {
        name: format!("task {number}"),
        deadline: Some(task.period),
        release: Release::Arrival(Arrival::Periodic { period: task.period }),
        active: Active {
            from: task.from.since(Time::ZERO),
            until: task.until.since(Time::ZERO).min(duration),
        },
        core: Some(task.core),
        jobs: Jobs::Alike((0..programs[task.program].phases()).map(Step::Phase).collect()),
        program: Some(task.program),
        backlog_max: usize::MAX,
    };
    let work = TaskWorkload {
        tasks: tasks.iter().enumerate().map(task).collect(),
        scheduling: Dispatch::EarliestDeadline,
        split: Some((*model, programs.to_vec())),
        rule: None,
        waits: Vec::new(),
        devices: Vec::new(),
        seed: 0,
    };
    Ok(Simulation::of(MachineModel::bare("split", model.cores as u32), work)?)
}

fn check(
    model: &SplitModel,
    programs: &[RunnableProfile],
    tasks: &[PeriodicTask],
    duration: Nanos,
) -> Result<(), SplitError> {
    let refuse = |what: &str| Err(SplitError::Machine(what.into()));
    if model.cores == 0 || model.grid.is_empty() || model.grid.ways > 64 {
        return refuse("it needs a core, and 1 to 64 ways and bandwidth partitions");
    }
    if !(model.way_bytes >= 0.0 && model.partition_bandwidth > 0.0) {
        return refuse("sizes are not negative, and bandwidth is positive");
    }
    for (number, task) in tasks.iter().enumerate() {
        check_task(model, programs, task).map_err(|what| SplitError::Task { task: number, what })?;
    }
    let jobs: u64 = tasks.iter().map(|task| duration.0.div_ceil(task.period.0)).sum();
    if jobs > JOBS_MAX {
        return Err(SplitError::Jobs { jobs, most: JOBS_MAX });
    }
    Ok(())
}

fn check_task(model: &SplitModel, programs: &[RunnableProfile], task: &PeriodicTask) -> Result<(), String> {
    let Some(program) = programs.get(task.program) else {
        return Err(format!("there is no program number {}", task.program));
    };
    let Profile { name, grid, .. } = program.profile();
    if *grid != model.grid {
        return Err(format!(
            "{name} was profiled on {grid:?}, the machine has {:?}",
            model.grid
        ));
    }
    if task.core >= model.cores {
        return Err(format!("core {} of {} cores", task.core, model.cores));
    }
    if task.period == Nanos::ZERO {
        return Err("a period of 0".into());
    }
    Ok(())
}
