//! From event to event.
//!
//! **At each event** what has ended is settled before anybody wakes: whoever wakes may preempt, and a job that lost its core at the instant at
//! which its step ended would begin that step anew. Slices end last, so that they go to whoever woke as well.
//!
//! **Progress.** Every event ends a step, a slice, a switch, a wait or a lease; a cycle of jobs takes time, which is checked before. So every run
//! reaches its limit.

use punctual_units::{Nanos, Time};
use thiserror::Error;

use super::cores::{Core, Doing};
use super::report::Report;
use super::state::{Progress, State};
use super::{DualMachine, Management, Release, Step, Task};
use crate::check::ModelError;
use crate::media::Device;

/// What cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DualError {
    /// The machine is not one.
    #[error(transparent)]
    Machine(#[from] ModelError),
    /// A step names a device that there is not.
    #[error("task \"{task}\" asks device {device}, and there are {devices}")]
    Device {
        /// The task.
        task: String,
        /// The device.
        device: usize,
        /// How many there are.
        devices: usize,
    },
    /// A period or a deadline of zero, or interactive jobs that take no time.
    #[error("task \"{0}\" takes no time: give it a period and a deadline above 0, or something to compute")]
    Timeless(String),
    /// The decisions of dual management do not go with the tasks, the devices or the machine.
    #[error(
        "dual management needs an exclusive core for each of {tasks} real-time tasks and a way to wait for each of {devices} devices"
    )]
    Decisions {
        /// Real-time tasks.
        tasks: usize,
        /// Devices.
        devices: usize,
    },
}

/// Runs `tasks` on `machine` until the last real-time job has ended, at most until `limit`.
///
/// # Errors
/// [`DualError`] before anything runs.
pub fn simulate(
    machine: &DualMachine,
    management: &Management,
    tasks: &[Task],
    devices: Vec<Device>,
    limit: Time,
) -> Result<Report, DualError> {
    machine.check()?;
    check_tasks(tasks, devices.len())?;
    let places = places(machine, management, tasks, devices.len())?;
    let dual = matches!(management, Management::Dual(_));
    let engine = Engine {
        management,
        quantum: machine.quantum(),
        switch: machine.switch(),
        now: Time::ZERO,
        tasks: tasks
            .iter()
            .zip(places)
            .map(|(task, place)| Progress::new(task, place))
            .collect(),
        cores: (0..machine.cores as usize)
            .map(|core| Core::new(dual && machine.is_exclusive(core)))
            .collect(),
        devices,
        report: Report::default(),
    };
    Ok(engine.run(limit))
}

fn check_tasks(tasks: &[Task], devices: usize) -> Result<(), DualError> {
    for task in tasks {
        let timeless = match task.release {
            Release::Periodic { period, deadline, .. } => period.0 == 0 || deadline.0 == 0,
            Release::Forever => {
                let computes = |step: &Step| matches!(step, Step::Compute(span) if span.0 > 0);
                !task.jobs.is_empty() && !task.jobs.iter().flatten().any(computes)
            }
        };
        if timeless {
            return Err(DualError::Timeless(task.name.clone()));
        }
        for step in task.jobs.iter().flatten() {
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

/// The exclusive core of each task.
fn places(
    machine: &DualMachine,
    management: &Management,
    tasks: &[Task],
    devices: usize,
) -> Result<Vec<Option<usize>>, DualError> {
    let real_time = |task: &Task| matches!(task.release, Release::Periodic { .. });
    let Management::Dual(decided) = management else {
        return Ok(vec![None; tasks.len()]);
    };
    let count = tasks.iter().filter(|task| real_time(task)).count();
    let sound = decided.places.len() == count
        && decided.waits.len() == devices
        && decided.places.iter().all(|core| machine.exclusive.contains(core));
    if !sound {
        return Err(DualError::Decisions { tasks: count, devices });
    }
    let mut places = decided.places.iter().map(|core| core.index());
    Ok(tasks
        .iter()
        .map(|task| if real_time(task) { places.next() } else { None })
        .collect())
}

/// A run under way. Who gets a core is in `queue`, what happens on one in `steps`.
pub(super) struct Engine<'t> {
    pub management: &'t Management,
    pub quantum: Nanos,
    pub switch: Nanos,
    pub now: Time,
    pub tasks: Vec<Progress<'t>>,
    pub cores: Vec<Core>,
    pub devices: Vec<Device>,
    pub report: Report,
}

impl Engine<'_> {
    fn run(mut self, limit: Time) -> Report {
        self.happen();
        while !self.is_over() {
            let Some(next) = self.next_event().filter(|next| *next <= limit) else {
                self.pass(limit);
                break;
            };
            self.pass(next);
            self.happen();
        }
        self.reported()
    }

    /// Everything that is due now.
    fn happen(&mut self) {
        (0..self.cores.len()).for_each(|core| self.settle(core));
        self.wake();
        (0..self.cores.len()).for_each(|core| self.end_slice(core));
        self.preempt_for_real_time();
        (0..self.cores.len()).for_each(|core| self.dispatch(core));
    }

    /// Whether all real-time jobs have ended; where there is none, the limit decides.
    fn is_over(&self) -> bool {
        let mut real_time = self.tasks.iter().filter(|task| task.is_real_time()).peekable();
        real_time.peek().is_some() && real_time.all(|task| task.state == State::Finished)
    }

    fn next_event(&self) -> Option<Time> {
        let cores = self.cores.iter().filter_map(Core::until);
        let tasks = self.tasks.iter().filter_map(Progress::wakes);
        cores.chain(tasks).min()
    }

    /// Lets time pass until `next`, and counts it.
    fn pass(&mut self, next: Time) {
        let span = next.since(self.now);
        let idle_while_ready = (0..self.cores.len())
            .any(|core| self.cores[core].is_idle() && !self.cores[core].exclusive && self.choose_shared().is_some());
        if idle_while_ready {
            self.report.idle_while_ready += span;
        }
        for core in &mut self.cores {
            core.pass(span);
            match core.doing {
                Doing::Nothing | Doing::TakingBack { .. } => {}
                Doing::Running { task, .. } => self.tasks[task].compute(span),
                Doing::Switching { task, .. } => self.tasks[task].switching += span,
                Doing::Polling { task, .. } => self.tasks[task].io += span,
            }
        }
        for task in &mut self.tasks {
            match task.state {
                State::Ready | State::Held(_) => task.waited += span,
                State::Blocked(_) => task.io += span,
                State::On(_) | State::Sleeping(_) | State::Finished => {}
            }
        }
        self.now = next.max(self.now);
    }

    /// Releases and completed I/O: into the ready queue.
    fn wake(&mut self) {
        for id in 0..self.tasks.len() {
            let now = self.now;
            let task = &mut self.tasks[id];
            match task.state {
                State::Sleeping(at) if at <= now => {
                    task.begin(at);
                    self.ready(id);
                }
                State::Blocked(at) if at <= now => {
                    task.step += 1;
                    self.report.io_ended += 1;
                    self.ready(id);
                }
                State::Held(at) if at <= now => task.state = State::Ready,
                _ => {}
            }
        }
    }

    fn reported(self) -> Report {
        let unfinished = |task: &Progress| task.task.jobs.len().saturating_sub(task.job);
        let waits = |task: &&Progress| {
            let polls = |core: usize| matches!(self.cores[core].doing, Doing::Polling { .. });
            task.polled.is_some()
                || matches!(task.state, State::Blocked(_))
                || matches!(task.state, State::On(core) if polls(core))
        };
        Report {
            ended: self.now,
            unfinished: self
                .tasks
                .iter()
                .filter(|task| task.is_real_time())
                .map(unfinished)
                .sum(),
            cores: self.cores.iter().map(|core| core.times).collect(),
            computed: self.tasks.iter().map(|task| task.computed).collect(),
            interactive_jobs: self.tasks.iter().map(|task| task.ended_jobs).collect(),
            devices: self.devices.iter().map(Device::report).collect(),
            write_amplification: self.devices.iter().map(Device::write_amplification).collect(),
            io_pending: self.tasks.iter().filter(waits).count() as u64,
            ..self.report
        }
    }
}
