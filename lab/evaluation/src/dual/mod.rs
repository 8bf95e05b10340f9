//! Simulates given jobs with I/O on a few cores: under a fair scheduler that does not preempt, under stock Linux, and
//! with exclusive cores.
//!
//! **Problem.** Whether a real-time job is late depends on what follows each of its I/Os: how long the medium takes,
//! and how long the job waits until it has a core again (E. Lee, Y. Kim and H. Bahn, "Dual Management of Real-Time and
//! Interactive Jobs in Smartphones", 2014). Here the waits result from a schedule that is simulated event by event.
//!
//! **Terms.** *Real-time* tasks have a period and a deadline; jobs of an *interactive* task follow each other without a
//! period. The tasks say which jobs are due when; [`Management`] says which job runs where, and how it waits for I/O.
//!
//! **Method.** The simulator is [`Simulation`], on a machine with one clock step of 1 GHz without memory traffic, so
//! that a cycle takes a nanosecond. All cores take jobs from one [`SharedQueue`], so no core idles while a job waits
//! that may run there (the report counts any time in which this is violated). Decisions about exclusive cores are those
//! of `punctual_cores`, which real machines use as well. The only randomness is that of the devices: the same arguments
//! give the same report.
//!
//! **Left out.** Caches and their warm-up after a switch, clock steps, interrupts' own time, groups and weights of the
//! fair class.

mod list;
mod machine;
mod queue;
mod report;

use punctual_cores::{Completion, LendingCosts};
use punctual_machine::media::MediaDevice;
use punctual_sim::{
    Device, Dispatch, MachineModel, ModelError, Release, Simulation, SimulationError, SimulationEvent, Step, Task,
    TaskWorkload,
};
use punctual_units::{Clock, CoreId, Nanos, Time};
use punctual_workload::Op;
use thiserror::Error;

pub use list::{CoreListError, check_cores};
pub use machine::DualMachine;
pub use queue::{Lending, SharedQueue, Sharing};
pub use report::DualReport;

/// Policy that decides where jobs run and how they wait for their I/O.
#[derive(Clone, Debug, PartialEq)]
pub enum Management {
    /// All cores serve all tasks; all I/O blocks.
    Shared(Sharing),
    /// Real-time tasks have the machine's exclusive cores, where they run by earliest deadline; interactive tasks have
    /// the other cores, and exclusive cores while these are lent.
    Dual(Exclusive),
}

/// Decisions of dual management, taken before the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Exclusive {
    /// The exclusive core of each real-time task, in the order of the tasks.
    pub places: Vec<CoreId>,
    /// Method by which a real-time job waits, for each device.
    pub waits: Vec<Completion>,
    /// Costs of lending; see [`Lending::costs`].
    pub costs: LendingCosts,
    /// The least slack of the real-time tasks.
    pub slack: Nanos,
    /// Wait of a real-time job that becomes ready while its core is lent: for Fig. 3(b), like
    /// [`Sharing::QuantumAfter`]. Zero: the job gets its core at once.
    pub wait: Nanos,
}

/// Reason why a simulation is not possible.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum DualError {
    /// A parameter of the machine is out of range.
    #[error(transparent)]
    Machine(#[from] ModelError),
    /// The simulator refused the tasks.
    #[error(transparent)]
    Load(#[from] SimulationError),
    /// A step names a device that does not exist.
    #[error("task \"{task}\" asks device {device}, and there are {devices}")]
    Device {
        task: String,
        device: usize,
        devices: usize,
    },
    /// A period or a deadline is zero, or interactive jobs take no time.
    #[error("task \"{0}\" takes no time: give it a period and a deadline above 0, or something to compute")]
    Timeless(String),
    /// The decisions of dual management do not match the tasks, the devices or the machine.
    #[error(
        "dual management needs an exclusive core for each of {tasks} real-time tasks and a way to wait for each of {devices} devices"
    )]
    Decisions {
        /// Number of real-time tasks.
        tasks: usize,
        devices: usize,
    },
}

/// A step that computes for `span` on a simulated machine of 1 GHz.
pub fn compute(span: Nanos) -> Step {
    Step::Op(Op::Compute { cycles: span.0 })
}

/// Time for which a step computes, at 1 GHz; `None` for a request.
pub fn computes(step: &Step) -> Option<Nanos> {
    match step {
        Step::Op(Op::Compute { cycles }) => Some(Nanos(*cycles)),
        _ => None,
    }
}

/// Runs `tasks` on `machine` until the last real-time job has ended, at most until `limit`. Dual management pins each
/// real-time task to its exclusive core.
///
/// # Errors
/// [`DualError`] before the simulation starts.
pub fn simulate(
    machine: &DualMachine,
    management: &Management,
    tasks: &[Task],
    devices: Vec<MediaDevice>,
    limit: Time,
) -> Result<DualReport, DualError> {
    machine.check()?;
    check_tasks(tasks, devices.len())?;
    let work = work(machine, management, tasks, devices)?;
    let mut simulation = Simulation::of(MachineModel::bare(&machine.name, machine.cores), work)?;
    let mut report = DualReport {
        interactive_jobs: vec![0; tasks.len()],
        unfinished: real_time(tasks).filter_map(|task| task.jobs.count()).sum(),
        ..DualReport::default()
    };
    // Without real-time tasks, the run lasts until the limit.
    let mut until = limit;
    loop {
        match simulation.run_until(until) {
            SimulationEvent::Completed(job) if job.deadline.is_some() => {
                report.jobs.push(job);
                report.unfinished -= 1;
                if report.unfinished == 0 {
                    until = simulation.now();
                }
            }
            SimulationEvent::Completed(job) => report.interactive_jobs[job.task.index()] += 1,
            SimulationEvent::Reached => return Ok(report.of(&simulation)),
            SimulationEvent::Released { .. } | SimulationEvent::Progressed(_) | SimulationEvent::Skipped { .. } => {}
        }
    }
}

fn real_time(tasks: &[Task]) -> impl Iterator<Item = &Task> {
    tasks.iter().filter(|task| task.deadline.is_some())
}

fn check_tasks(tasks: &[Task], devices: usize) -> Result<(), DualError> {
    for task in tasks {
        let steps = || task.jobs.lists().iter().flatten();
        let lasts = |step: &Step| computes(step).is_some_and(|span| span > Nanos::ZERO);
        let timeless = match (task.deadline, task.release) {
            (Some(deadline), Release::Paced { period, .. }) => period.0 == 0 || deadline.0 == 0,
            _ => !task.jobs.lists().is_empty() && !steps().any(lasts),
        };
        if timeless {
            return Err(DualError::Timeless(task.name.clone()));
        }
        for step in steps() {
            if let Step::Io { device, .. } = step
                && *device >= devices
            {
                return Err(DualError::Device {
                    task: task.name.clone(),
                    device: *device,
                    devices,
                });
            }
        }
    }
    Ok(())
}

/// The simulator's input: tasks pinned to their cores, and the scheduling.
fn work(
    machine: &DualMachine,
    management: &Management,
    tasks: &[Task],
    devices: Vec<MediaDevice>,
) -> Result<TaskWorkload, DualError> {
    let mut tasks = tasks.to_vec();
    let (sharing, lending, waits) = match management {
        Management::Shared(sharing) => (*sharing, None, Vec::new()),
        Management::Dual(decided) => {
            let count = real_time(&tasks).count();
            let sound = decided.places.len() == count
                && decided.waits.len() == devices.len()
                && decided.places.iter().all(|core| machine.exclusive.contains(core));
            if !sound {
                let (tasks, devices) = (count, devices.len());
                return Err(DualError::Decisions { tasks, devices });
            }
            let placed = tasks.iter_mut().filter(|task| task.deadline.is_some());
            for (task, core) in placed.zip(&decided.places) {
                task.core = Some(core.index());
            }
            let lending = Lending {
                cores: machine.exclusive.clone(),
                costs: decided.costs,
                slack: decided.slack,
                wait: decided.wait,
            };
            (Sharing::Quantum, Some(lending), decided.waits.clone())
        }
    };
    let boxed = |device| Box::new(device) as Box<dyn Device>;
    let takes = [machine.quantum(), machine.switch()];
    let queue = SharedQueue::new(sharing, takes, lending, [machine.cores as usize, tasks.len()]);
    Ok(TaskWorkload {
        tasks,
        scheduling: Dispatch::EarliestDeadline,
        rule: Some(Box::new(queue)),
        split: None,
        waits,
        devices: devices.into_iter().map(boxed).collect(),
        seed: 0,
    })
}
