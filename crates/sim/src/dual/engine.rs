//! From event to event.
//!
//! **The fair class** is that of Linux' CFS without weights: every job counts its running time, whoever has the least of it is next, and
//! who wakes is set to at most [`SLEEPER_BONUS`] before the least of those that run or wait, so that sleep is not saved up.
//!
//! **Progress.** Every event ends a step, a slice, a switch, a wait or a lease; a cycle of jobs takes time, which is checked before. So every run
//! reaches its limit.

use punctual_allocation::exclusive::{Completion, Lease, NextRelease, lend};
use punctual_units::{Nanos, Time};
use thiserror::Error;

use super::cores::{Core, Doing};
use super::report::{JobRecord, Report};
use super::state::{Progress, State};
use super::{DualMachine, Management, Release, Scheduling, Step, Task};
use crate::media::Device;
use crate::model::ModelError;

/// Half of CFS' scheduling latency of 6 ms: what a sleeper is given before others.
const SLEEPER_BONUS: Nanos = Nanos::from_millis(3);
/// CFS' wake-up granularity: who ran less by this much preempts.
const WAKEUP_GRANULARITY: Nanos = Nanos::from_millis(1);

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

struct Engine<'t> {
    management: &'t Management,
    quantum: Nanos,
    switch: Nanos,
    now: Time,
    tasks: Vec<Progress<'t>>,
    cores: Vec<Core>,
    devices: Vec<Device>,
    report: Report,
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
        self.wake();
        (0..self.cores.len()).for_each(|core| self.settle(core));
        // A job that ended may be followed at once by the next.
        self.wake();
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
            if let Doing::Running { task, .. } = core.doing {
                let task = &mut self.tasks[task];
                task.left = task.left - span;
                task.computed += span;
                task.virtual_runtime += span.0;
            }
        }
        for task in &mut self.tasks {
            let polling = |core: usize| matches!(self.cores[core].doing, Doing::Polling { .. });
            match task.state {
                State::Ready | State::Held(_) => task.waited += span,
                State::Blocked(_) => task.io += span,
                State::On(core) if polling(core) => task.io += span,
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

    fn ready(&mut self, id: usize) {
        self.tasks[id].state = State::Ready;
        let no_core_idle = self.cores.iter().all(|core| !core.is_idle());
        match self.management {
            Management::Shared(Scheduling::QuantumAfter(wait)) if self.tasks[id].is_real_time() && no_core_idle => {
                self.tasks[id].state = State::Held(self.now + *wait);
            }
            Management::Shared(scheduling) if self.is_fair(id) => {
                self.place_in_fair_class(id);
                if scheduling.preempts() && no_core_idle {
                    self.preempt_for_fair(id);
                }
            }
            _ if self.is_fair(id) => self.place_in_fair_class(id),
            _ => {}
        }
    }

    fn place_in_fair_class(&mut self, id: usize) {
        let others = (0..self.tasks.len()).filter(|other| *other != id && self.is_fair(*other));
        let runnable = others.filter(|other| matches!(self.tasks[*other].state, State::Ready | State::On(_)));
        if let Some(least) = runnable.map(|other| self.tasks[other].virtual_runtime).min() {
            let runtime = &mut self.tasks[id].virtual_runtime;
            *runtime = (*runtime).max(least.saturating_sub(SLEEPER_BONUS.0));
        }
    }

    /// Whether a task is in the fair class.
    fn is_fair(&self, id: usize) -> bool {
        !self.tasks[id].is_real_time() || *self.management == Management::Shared(Scheduling::Fair)
    }

    /// Whoever ran longest in the fair class gives way, if `id` ran less by the granularity.
    fn preempt_for_fair(&mut self, id: usize) {
        let runtime = |core: &Core| {
            let task = core.task().filter(|task| self.is_fair(*task))?;
            Some(self.tasks[task].virtual_runtime)
        };
        let longest = (0..self.cores.len())
            .filter_map(|core| Some((runtime(&self.cores[core])?, core)))
            .max();
        if let Some((longest, core)) = longest
            && longest > self.tasks[id].virtual_runtime.saturating_add(WAKEUP_GRANULARITY.0)
        {
            self.preempt(core);
        }
    }

    /// Real-time jobs that need not wait for the end of a quantum take their core.
    fn preempt_for_real_time(&mut self) {
        match self.management {
            Management::Shared(Scheduling::Fifo | Scheduling::QuantumAfter(_)) => {
                let waiting: Vec<usize> = (0..self.tasks.len())
                    .filter(|id| self.tasks[*id].is_real_time() && self.tasks[*id].state == State::Ready)
                    .collect();
                let idle = self.cores.iter().filter(|core| core.is_idle()).count();
                for id in waiting.into_iter().skip(idle) {
                    let interactive = |core: &usize| {
                        let task = self.cores[*core].task();
                        task.is_some_and(|task| !self.tasks[task].is_real_time())
                    };
                    let last = self.tasks[id].last.filter(interactive);
                    let victim = last.or_else(|| (0..self.cores.len()).find(interactive));
                    if let Some(core) = victim {
                        self.preempt(core);
                    }
                }
            }
            Management::Shared(Scheduling::Quantum | Scheduling::Fair) => {}
            Management::Dual(_) => {
                for core in 0..self.cores.len() {
                    let Some(first) = self.first_placed(core) else { continue };
                    let Some(running) = self.cores[core].task() else {
                        continue;
                    };
                    if self.tasks[running].deadline() > self.tasks[first].deadline() {
                        self.preempt(core);
                    }
                }
            }
        }
    }

    fn preempt(&mut self, core: usize) {
        if let Some(id) = self.cores[core].task() {
            if let Doing::Polling { done, .. } = self.cores[core].doing {
                self.tasks[id].polled = Some(done);
            }
            self.tasks[id].state = State::Ready;
            self.cores[core].doing = Doing::Nothing;
        }
    }

    /// Whatever ends on this core now.
    fn settle(&mut self, core: usize) {
        while self.cores[core].until().is_some_and(|until| until <= self.now) {
            match self.cores[core].doing {
                Doing::Nothing => return,
                Doing::Switching { task, .. } => self.resume(core, task),
                Doing::Running { task, .. } if self.tasks[task].left == Nanos::ZERO => self.step_ended(core, task),
                Doing::Running { task, .. } => self.slice_ended(core, task),
                Doing::Polling { task, done, .. } if done <= self.now => self.io_ended(core, task),
                Doing::Polling { task, done, .. } => {
                    self.tasks[task].state = State::Blocked(done);
                    self.cores[core].doing = Doing::Nothing;
                }
            }
        }
    }

    /// The task that is first to run on this core, if any may: its own real-time tasks, or those of the queue, or those it is lent to.
    fn choose(&mut self, core: usize) -> Option<usize> {
        if !self.cores[core].exclusive {
            return self.choose_shared();
        }
        if let Some(first) = self.first_placed(core) {
            return Some(first);
        }
        self.cores[core].lease_end = self.lease(core)?;
        self.first_fair()
    }

    fn choose_shared(&self) -> Option<usize> {
        let waiting = |id: &usize| self.tasks[*id].state == State::Ready && self.tasks[*id].place.is_none();
        let real_time = (0..self.tasks.len()).filter(waiting).filter(|id| !self.is_fair(*id));
        real_time
            .min_by_key(|id| self.tasks[*id].deadline())
            .or_else(|| self.first_fair())
    }

    fn first_fair(&self) -> Option<usize> {
        let waiting = (0..self.tasks.len()).filter(|id| self.tasks[*id].state == State::Ready && self.is_fair(*id));
        waiting.min_by_key(|id| self.tasks[*id].virtual_runtime)
    }

    /// Of the real-time tasks of an exclusive core that are ready, the one with the earliest deadline.
    fn first_placed(&self, core: usize) -> Option<usize> {
        let here = (0..self.tasks.len()).filter(|id| self.tasks[*id].place == Some(core));
        here.filter(|id| self.tasks[*id].state == State::Ready)
            .min_by_key(|id| self.tasks[*id].deadline())
    }

    /// Until when an idle exclusive core is lent, if it is.
    fn lease(&self, core: usize) -> Option<Time> {
        let Management::Dual(decided) = self.management else {
            return None;
        };
        let mut next = NextRelease::Never;
        for task in self.tasks.iter().filter(|task| task.place == Some(core)) {
            next = match (task.state, next) {
                (State::Finished, next) => next,
                (State::Sleeping(at), NextRelease::Never) => NextRelease::At(at),
                (State::Sleeping(at), NextRelease::At(other)) => NextRelease::At(at.min(other)),
                // A job that blocked may be back any time: the policy does not know the device's schedule.
                _ => NextRelease::Anytime { slack: decided.slack },
            };
        }
        match lend(self.now, next, decided.costs) {
            Lease::Keep => None,
            Lease::Until(end) => Some(end),
            Lease::UntilReleased => Some(Time::MAX),
        }
    }

    /// Gives an idle core to somebody.
    fn dispatch(&mut self, core: usize) {
        // Bounded: where a switch costs nothing, a job may end or block at once, and then it is not ready.
        while self.cores[core].is_idle() {
            let Some(task) = self.choose(core) else { return };
            self.tasks[task].state = State::On(core);
            self.tasks[task].last = Some(core);
            let until = self.now + self.switch;
            self.cores[core].slice_end = self.slice_end(core, task, until);
            self.cores[core].doing = Doing::Switching { task, until };
            self.settle(core);
        }
    }

    /// The end of a slice that begins at `from`.
    fn slice_end(&self, core: usize, task: usize, from: Time) -> Time {
        if !self.is_fair(task) {
            return Time::MAX;
        }
        let quantum = from + self.quantum;
        if self.cores[core].exclusive {
            quantum.min(self.cores[core].lease_end)
        } else {
            quantum
        }
    }

    fn slice_ended(&mut self, core: usize, task: usize) {
        let taken_back = self.cores[core].exclusive && self.cores[core].lease_end <= self.now;
        let next = if self.cores[core].exclusive {
            self.first_fair()
        } else {
            self.choose_shared()
        };
        let gives_way = next.is_some_and(|next| {
            let ran = |id: usize| self.tasks[id].virtual_runtime;
            !self.is_fair(next) || ran(next) <= ran(task)
        });
        if taken_back || gives_way {
            self.preempt(core);
        } else {
            self.cores[core].slice_end = self.slice_end(core, task, self.now);
            self.keep_running(core, task);
        }
    }

    /// Goes on where the task was when it lost its core.
    fn resume(&mut self, core: usize, task: usize) {
        match self.tasks[task].polled.take() {
            Some(done) if done <= self.now => self.io_ended(core, task),
            Some(done) => {
                self.cores[core].doing = Doing::Polling {
                    task,
                    until: done,
                    done,
                };
            }
            None if self.tasks[task].left > Nanos::ZERO => self.keep_running(core, task),
            None => self.begin_step(core, task),
        }
    }

    fn keep_running(&mut self, core: usize, task: usize) {
        let until = (self.now + self.tasks[task].left).min(self.cores[core].slice_end);
        self.cores[core].doing = Doing::Running { task, until };
    }

    fn io_ended(&mut self, core: usize, task: usize) {
        self.report.io_ended += 1;
        self.step_ended(core, task);
    }

    fn step_ended(&mut self, core: usize, task: usize) {
        self.tasks[task].step += 1;
        self.begin_step(core, task);
    }

    /// Begins the step that the task is at, or the next job where there is none. Bounded: a cycle of jobs computes something.
    fn begin_step(&mut self, core: usize, task: usize) {
        loop {
            match self.tasks[task].current() {
                Some(Step::Compute(Nanos::ZERO)) => self.tasks[task].step += 1,
                Some(Step::Compute(span)) => {
                    self.tasks[task].left = span;
                    return self.keep_running(core, task);
                }
                Some(Step::Io { device, request }) => {
                    let done = self.devices[device].submit(request, self.now);
                    self.report.io_begun += 1;
                    self.tasks[task].requests += 1;
                    return self.wait_for_io(core, task, device, done);
                }
                None => {
                    if !self.end_job(task) {
                        self.cores[core].doing = Doing::Nothing;
                        return;
                    }
                }
            }
        }
    }

    fn wait_for_io(&mut self, core: usize, task: usize, device: usize, done: Time) {
        let way = match self.management {
            Management::Dual(decided) if self.tasks[task].is_real_time() => decided.waits[device],
            _ => Completion::Block,
        };
        let until = match way {
            Completion::Poll => done,
            Completion::SpinThenBlock(spin) => done.min(self.now + spin),
            Completion::Block => {
                self.tasks[task].state = State::Blocked(done);
                self.cores[core].doing = Doing::Nothing;
                return;
            }
        };
        self.cores[core].doing = Doing::Polling { task, until, done };
    }

    /// Ends the task's job; whether the next one begins at once.
    fn end_job(&mut self, id: usize) -> bool {
        let (now, deadline) = (self.now, self.tasks[id].deadline());
        let task = &mut self.tasks[id];
        match task.task.release {
            Release::Forever => {
                task.ended_jobs += 1;
                task.job = (task.job + 1) % task.task.jobs.len();
                task.begin(now);
                true
            }
            Release::Periodic { period, .. } => {
                self.report.jobs.push(JobRecord {
                    task: id,
                    job: task.job,
                    begun: task.begun,
                    deadline,
                    ended: now,
                    waited: task.waited,
                    io: task.io,
                    requests: task.requests,
                });
                task.job += 1;
                let next = task.begun + period;
                if task.job == task.task.jobs.len() {
                    task.state = State::Finished;
                    return false;
                }
                let late = next <= now;
                if late {
                    task.begin(now);
                } else {
                    task.state = State::Sleeping(next);
                }
                late
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
