//! The handle on a runtime: any thread can add and stop tasks, offer readings, read figures, and end the run.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_cores::PlacementRequest;
use punctual_loop::ModeName;
use punctual_os::LinuxOs;
use punctual_platform::Neighbours;
use punctual_platform::linux::thread::Tid;
use punctual_store::Store;
use punctual_store::engine::Engine;
use punctual_store::updates::UpdateCounts;
use punctual_units::{Hertz, Nanos, SensorId, Share};
use punctual_workload::{ControllerKind, Goal, Pace, TaskGoal};

use super::control::ControlMessage;
use super::keeper::{Keeper, KeeperCommand};
use super::seats::CorePin;
use super::sensor::{Sensor, SensorError};
use super::shared::{Order, RunState};
use super::task::TaskBuilder;
use super::tasks::{TaskEnd, TaskState};
use super::{RunOptions, RuntimeBuilder, TaskSetup};
use crate::error::RuntimeError;
use crate::learn::Learning;
use crate::report::{FinishedRun, RunHeader, TaskReport, UserRequest};

/// Commands that may wait for the keeper; further callers block until one is taken.
const COMMANDS_MAX: usize = 64;

/// Longest time that a caller waits for an answer: the keeper and the control thread answer within milliseconds, unless
/// the machine stands still.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Time for the loop to settle, added to the time that learning takes.
const SETTLE: Nanos = Nanos::from_secs(1);

/// Options of a [`Runtime`] that begins without tasks.
pub struct RuntimeOptions<E: Engine> {
    store: Arc<Store<E, LinuxOs>>,
    goal: Goal,
    duration: Option<Nanos>,
    learning: Option<Learning>,
    best_effort_share: Share,
    probe: bool,
    start_up: Nanos,
    neighbours: Neighbours,
    keep_cores: usize,
}

impl<E: Engine> RuntimeOptions<E> {
    /// Default options around `store`: the run has no end, each task may have 1 % of its jobs late, nothing is learnt
    /// and no knob is set.
    pub fn new(store: Arc<Store<E, LinuxOs>>) -> Self {
        RuntimeOptions {
            store,
            goal: default_goal(),
            duration: None,
            learning: None,
            best_effort_share: Share::ONE,
            probe: true,
            start_up: Nanos::ZERO,
            neighbours: Neighbours::default(),
            keep_cores: 0,
        }
    }

    /// Reserves exclusive cores: see [`RuntimeBuilder::keep_cores`].
    pub fn keep_cores(self, cores: usize) -> Self {
        RuntimeOptions {
            keep_cores: cores,
            ..self
        }
    }

    /// Sets the rights of other programs on exclusive cores: see [`RuntimeBuilder::neighbours`].
    pub fn neighbours(self, neighbours: Neighbours) -> Self {
        RuntimeOptions { neighbours, ..self }
    }

    /// Ends the runtime after `duration`, unless it is stopped earlier.
    pub fn run_for(self, duration: Nanos) -> Self {
        RuntimeOptions {
            duration: Some(duration),
            ..self
        }
    }

    /// Sets the goal of every task that has none of its own.
    pub fn goal(mut self, goal: TaskGoal) -> Self {
        self.goal.tasks = goal;
        self
    }

    /// Sets the least share of temporal objects to keep fresh, 0 to 1, when updates are shed. The store enforces it:
    /// the share is also part of the store's [`AdmissionOptions`](punctual_store::updates::AdmissionOptions).
    pub fn min_fresh(mut self, share: Share) -> Self {
        self.goal.min_fresh = share;
        self
    }

    /// Learns a model of the running tasks from the start, and controls by it; see [`Runtime::learn`].
    pub fn learn(self, learning: Learning) -> Self {
        RuntimeOptions {
            learning: Some(learning),
            ..self
        }
    }

    /// Runs without the probe on the real-time core: see [`RunOptions::probe`].
    pub fn without_probe(self) -> Self {
        RuntimeOptions { probe: false, ..self }
    }

    /// Limits the CPU share that best-effort tasks use of their cores.
    pub fn best_effort_share(self, share: Share) -> Self {
        RuntimeOptions {
            best_effort_share: share,
            ..self
        }
    }

    /// Excludes the jobs of this first part of the run from the figures; the time of learning is always excluded.
    pub fn start_up(self, start_up: Nanos) -> Self {
        RuntimeOptions { start_up, ..self }
    }
}

impl<E: Engine> From<Arc<Store<E, LinuxOs>>> for RuntimeOptions<E> {
    fn from(store: Arc<Store<E, LinuxOs>>) -> Self {
        RuntimeOptions::new(store)
    }
}

/// Goal for tasks without their own: one job in a hundred may be late, and no data need be fresh.
pub(super) fn default_goal() -> Goal {
    Goal {
        tasks: TaskGoal::default(),
        drr: 0.5,
        min_fresh: Share::ZERO,
    }
}

/// State or result of learning a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LearningState {
    /// Learning was not requested.
    #[default]
    NotAsked,
    /// The knobs are visiting their levels.
    UnderWay,
    /// A model was found, and this controller uses it.
    Controls(ControllerKind),
    /// No model was found, for this reason. The controller from before goes on; without one, the knobs move in steps,
    /// towards fewer late jobs.
    Failed(String),
}

/// State of a runtime at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeFigures {
    /// Time since the start of the run.
    pub running_for: Nanos,
    /// Reports of the tasks with a deadline, in the order in which they were added, ended ones included.
    pub tasks: Vec<TaskReport>,
    /// Mode of the loop at its last step.
    pub mode: ModeName,
    /// Reason for a fallback; `None` in any other mode.
    pub fallback: Option<String>,
    /// Share of sensor readings that the controller admits, 0 to 1.
    pub admitted: Share,
    /// Clock that the controller has set; `None` if it sets none.
    pub clock: Option<Hertz>,
    /// Counts of sensor readings by outcome, since the store was opened.
    pub updates: UpdateCounts,
    /// State or result of learning a model.
    pub learnt: LearningState,
}

impl RuntimeFigures {
    /// Report of the task `name`; if several had this name, of the latest.
    pub fn task(&self, name: &str) -> Option<&TaskReport> {
        self.tasks.iter().rev().find(|task| task.name == name)
    }
}

/// Handle on a running runtime. Clones are handles to the same one, for any thread.
///
/// The runtime ends when it is [stopped](Runtime::stop), when its duration is over, or when the last handle is dropped;
/// then the machine is restored. A job's closure that holds a handle keeps the runtime running until it is stopped.
///
/// ```
/// use std::sync::Arc;
/// use punctual_engines::Memory;
/// use punctual_os::LinuxOs;
/// use punctual_runtime::linux::Runtime;
/// use punctual_store::{Store, StoreOptions};
/// use punctual_units::Nanos;
///
/// let store = Arc::new(Store::open(Memory::default(), LinuxOs, StoreOptions::default())?);
/// let runtime = Runtime::start(store)?;
/// let ms = Nanos::from_millis;
/// let task = runtime.task("balance").every(ms(20)).due_in(ms(15)).run(|job| {
///     job.write(|store| store.put(b"angle", b"0.1"))
/// })?;
/// let another = runtime.clone();
/// std::thread::spawn(move || println!("{:?}", another.figures())).join().unwrap();
/// task.stop();
/// let report = runtime.stop()?.report;
/// assert_eq!(report.tasks[0].name, "balance");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Runtime<E: Engine + 'static> {
    inner: Arc<Inner<E>>,
}

impl<E: Engine + 'static> Clone for Runtime<E> {
    fn clone(&self) -> Self {
        Runtime {
            inner: Arc::clone(&self.inner),
        }
    }
}

struct Inner<E: Engine + 'static> {
    store: Arc<Store<E, LinuxOs>>,
    shared: Arc<RunState>,
    commands: SyncSender<KeeperCommand<E>>,
    header: RunHeader,
    /// Whether a recording feeds the store.
    recorded: bool,
    /// `None` once a caller has waited for it.
    keeper: Mutex<Option<JoinHandle<Result<FinishedRun, RuntimeError>>>>,
}

impl<E: Engine + 'static> Drop for Inner<E> {
    /// Stops the runtime, and waits until the machine is restored, unless one of the runtime's own threads drops the
    /// last handle: that thread cannot wait for itself.
    fn drop(&mut self) {
        self.shared.stop();
        let keeper = self.keeper.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(keeper), false) = (keeper, self.shared.is_own_thread()) {
            // No caller is left to receive the result.
            let _ = keeper.join();
        }
    }
}

/// Starts the keeper, and waits until it has started all other threads.
pub(super) fn start<E: Engine + 'static>(
    prepared: RuntimeBuilder<E>,
    mut options: RunOptions,
    watcher: Option<SyncSender<ControlMessage>>,
) -> Result<Runtime<E>, RuntimeError> {
    if options.record.is_some() && options.learning.is_some() {
        return Err(RuntimeError::Unreplayed);
    }
    if let Some(learning) = &options.learning {
        let top = prepared_top(&options);
        let record = learning.record(top).map_err(|why| RuntimeError::Learning { why })?;
        let learnt = learning.period * record.progress().1 + SETTLE;
        options.header.settle_s = options.header.settle_s.max(learnt.as_secs_f64());
    }
    let shared = Arc::new(RunState::new(options.regulator.within, options.regulator.rests())?);
    let (commands, commanded) = sync_channel(COMMANDS_MAX);
    let (started, hear) = sync_channel(1);
    let (store, recorded) = (Arc::clone(&prepared.store), prepared.feed.is_some());
    let keeper = Keeper {
        prepared,
        options,
        shared: Arc::clone(&shared),
        commands: commanded,
        started,
        watcher,
    };
    let thread = std::thread::Builder::new().name("keeper".into());
    let keeper = thread.spawn(move || keeper.run()).map_err(|why| RuntimeError::Thread {
        role: "keeper".into(),
        why,
    })?;
    match hear.recv() {
        Ok(header) => Ok(Runtime {
            inner: Arc::new(Inner {
                store,
                shared,
                commands,
                header,
                recorded,
                keeper: Mutex::new(Some(keeper)),
            }),
        }),
        Err(_) => match join(keeper) {
            Err(error) => Err(error),
            Ok(_) => Err(RuntimeError::Stopped),
        },
    }
}

fn prepared_top(options: &RunOptions) -> Option<Hertz> {
    options.regulator.offers.clock().map(|clock| clock.top())
}

/// Result of the keeper. A panic in one of our own threads continues in the caller.
fn join(keeper: JoinHandle<Result<FinishedRun, RuntimeError>>) -> Result<FinishedRun, RuntimeError> {
    keeper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl<E: Engine + 'static> Runtime<E> {
    /// Starts a runtime without tasks on this machine: around a store, or with [`RuntimeOptions`].
    ///
    /// # Errors
    /// [`RuntimeError`], for example if the machine cannot be read at all. Features that it merely lacks are in the
    /// report.
    pub fn start(options: impl Into<RuntimeOptions<E>>) -> Result<Runtime<E>, RuntimeError> {
        let RuntimeOptions {
            store,
            goal,
            duration,
            learning,
            best_effort_share,
            probe,
            start_up,
            neighbours,
            keep_cores,
        } = options.into();
        let mut prepared = RuntimeBuilder::here(store)?;
        prepared.neighbours(neighbours).keep_cores(keep_cores);
        let mut options = RunOptions {
            learning,
            best_effort_share,
            probe,
            ..prepared.options("tasks", goal, duration)
        };
        options.header.settle_s = start_up.as_secs_f64();
        // Without tasks, silence is no fault; and a loop that only observes has nothing to fall back to.
        options.regulator.silence = Nanos::MAX;
        // A loop that steps at every job would read all meters a thousand times per second at 1 kHz.
        options.pace = Pace::Period(Learning::default().period);
        prepared.start(options)
    }

    /// Facts known since the start: the requested protections, and whether each was obtained.
    pub fn header(&self) -> RunHeader {
        self.inner.header.clone()
    }

    /// The store around which the runtime was started.
    pub fn store(&self) -> &Arc<Store<E, LinuxOs>> {
        &self.inner.store
    }

    /// Begins to describe a task: first when its jobs come and when they are due, then what they do.
    ///
    /// ```no_run
    /// # use punctual_runtime::{RuntimeError, linux::Runtime};
    /// # use punctual_units::Nanos;
    /// # fn example<E: punctual_store::engine::Engine>(runtime: Runtime<E>) -> Result<(), RuntimeError> {
    /// let ms = Nanos::from_millis;
    /// let log = runtime.task("log").after_pauses(ms(1), ms(9)).best_effort().run(|_| println!("another line"))?;
    /// log.stop();
    /// # Ok(()) }
    /// ```
    pub fn task(&self, name: impl Into<String>) -> TaskBuilder<'_, E> {
        TaskBuilder::new(self, name.into())
    }

    /// Adds a task, and returns once its thread runs on its core. Threads of running tasks get new priorities, which
    /// follow from all deadlines.
    ///
    /// # Errors
    /// [`RuntimeError::Task`], [`RuntimeError::Place`] or [`RuntimeError::Thread`] if the task cannot run;
    /// [`RuntimeError::Stopped`] once the runtime has ended.
    pub fn add(&self, task: TaskSetup<E>) -> Result<TaskHandle, RuntimeError> {
        self.ask(|answer| KeeperCommand::Add(Box::new(task), answer))?
    }

    /// Runs a thread of this process on a core, beside the tasks.
    pub(super) fn seat(&self, name: String, request: PlacementRequest, thread: Tid) -> Result<CorePin, RuntimeError> {
        self.ask(|answer| KeeperCommand::Seat(name, request, thread, answer))?
    }

    /// Returns the live sensor of `key`, one of the temporal objects that the store was opened with.
    ///
    /// ```no_run
    /// # use punctual_runtime::{RuntimeError, linux::{Runtime, SensorError}};
    /// # fn example<E: punctual_store::engine::Engine>(runtime: Runtime<E>) -> Result<(), SensorError> {
    /// let battery = runtime.sensor("battery")?;
    /// std::thread::spawn(move || battery.offer(12.6));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`SensorError::Unknown`] if the store has no such object, [`SensorError::Recorded`] if a recording feeds it.
    pub fn sensor(&self, key: impl AsRef<[u8]>) -> Result<Sensor<E>, SensorError> {
        let Inner { store, shared, .. } = &*self.inner;
        if self.inner.recorded {
            return Err(SensorError::Recorded);
        }
        let object = store.object(key.as_ref()).ok_or_else(|| SensorError::Unknown {
            key: String::from_utf8_lossy(key.as_ref()).into_owned(),
        })?;
        Ok(Sensor::new(Arc::clone(store), Arc::clone(shared), SensorId(object.0)))
    }

    /// Figures of the run so far.
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`] once the runtime has ended.
    pub fn figures(&self) -> Result<RuntimeFigures, RuntimeError> {
        self.ask(KeeperCommand::Tell)
    }

    /// Hands a user's request to the control thread; returns false if too many orders wait for it.
    pub(super) fn request(&self, request: UserRequest) -> bool {
        self.inner.shared.order(Order::Request(request))
    }

    /// Learns a model of the running tasks, and controls by it from then on: the machine's real knobs visit levels
    /// within the given bounds, for some seconds. Returns at once; [`RuntimeFigures::learnt`] has the result. If
    /// nothing can be learnt, the controller from before goes on; without one, the knobs move in steps, towards fewer
    /// late jobs.
    ///
    /// # Errors
    /// [`RuntimeError::Learning`] if the bounds leave nothing to learn from, or a model is being learnt already.
    pub fn learn(&self, learning: Learning) -> Result<(), RuntimeError> {
        self.ask(|answer| KeeperCommand::Learn(learning, answer))?
    }

    /// Asks all threads to end after their current jobs, and returns at once.
    pub fn ask_to_stop(&self) {
        self.inner.shared.stop();
    }

    /// Ends the runtime after the current jobs, restores the machine, and returns the report.
    ///
    /// # Errors
    /// The errors of [`wait`](Runtime::wait).
    pub fn stop(&self) -> Result<FinishedRun, RuntimeError> {
        self.ask_to_stop();
        self.wait()
    }

    /// Waits until the runtime ends, by its duration or because another handle stops it, and returns the report.
    ///
    /// # Errors
    /// [`RuntimeError::Within`] in one of the runtime's own threads, which cannot wait for itself;
    /// [`RuntimeError::Stopped`] if another handle got the report; and the error that ended the run early.
    pub fn wait(&self) -> Result<FinishedRun, RuntimeError> {
        if self.inner.shared.is_own_thread() {
            return Err(RuntimeError::Within);
        }
        let keeper = self.inner.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        join(keeper.ok_or(RuntimeError::Stopped)?)
    }

    /// Sends a command to the keeper, and waits for the answer.
    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> KeeperCommand<E>) -> Result<T, RuntimeError> {
        let (answer, answered) = sync_channel(1);
        let sent = self.inner.commands.send(command(answer));
        sent.map_err(|_| RuntimeError::Stopped)?;
        answered.recv_timeout(ANSWER_WAIT).map_err(|_| RuntimeError::Stopped)
    }
}

/// Handle on a task. Dropping it does not end the task, and it does not keep the runtime running.
#[derive(Clone, Debug)]
pub struct TaskHandle {
    name: String,
    state: Arc<TaskState>,
}

impl TaskHandle {
    pub(super) fn new(name: String, state: Arc<TaskState>) -> TaskHandle {
        TaskHandle { name, state }
    }

    /// Name of the task in the report.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks the task to end after its current job, and returns at once. A task that waits for an event is woken. Its
    /// figures stay in the report.
    pub fn stop(&self) {
        self.state.stop();
    }

    /// How the task ended, if it has; its closure has been dropped by then.
    pub fn ended(&self) -> Option<TaskEnd> {
        self.state.ended()
    }

    /// Waits at most `at_most` for the task to end; returns how it ended, if it has.
    pub fn wait(&self, at_most: Nanos) -> Option<TaskEnd> {
        self.state.wait(at_most.into())
    }
}

#[cfg(test)]
mod tests {
    use punctual_engines::Memory;
    use punctual_loop::{AdmissionSetup, DeciderAnswer};
    use punctual_store::StoreOptions;
    use punctual_store::updates::AdmissionOptions;
    use punctual_testing::wait_until;

    use super::*;

    /// A job sleeps for half of its deadline: with a goal of 1 % of the deadline its pressure is above 40, with the one
    /// that the regulators are made for far below on all but a stalled machine.
    #[test]
    fn a_changed_goal_is_that_of_each_later_regulator() {
        let store = Store::open(Memory::default(), LinuxOs, StoreOptions::default()).unwrap();
        let prepared = RuntimeBuilder::here(Arc::new(store)).unwrap();
        let goal = Goal {
            tasks: TaskGoal::Tardiness(1.0),
            drr: 0.5,
            min_fresh: Share::ZERO,
        };
        let mut options = prepared.options("goals", goal, None);
        options.pace = Pace::Period(Nanos::from_millis(10));
        options.record = Some(AdmissionSetup {
            sensors: Vec::new(),
            options: AdmissionOptions::default(),
        });
        let runtime = start(prepared, options, None).unwrap();
        let steady = runtime
            .task("steady")
            .every(Nanos::from_millis(4))
            .due_in(Nanos::from_millis(4));
        steady.run(|_| std::thread::sleep(Duration::from_millis(2))).unwrap();
        assert!(runtime.request(UserRequest::Goal("steady".into(), TaskGoal::Tardiness(0.01))));
        let learning = Learning {
            period: Nanos::from_millis(10),
            hold: 1,
            ..Learning::default()
        };
        runtime.learn(learning).unwrap();
        wait_until("learning ends", || {
            runtime.figures().unwrap().learnt != LearningState::UnderWay
        });
        let jobs = || runtime.figures().unwrap().task("steady").map_or(0, |task| task.jobs);
        let before = jobs();
        wait_until("the next law steps", || jobs() > before + 20);
        let finished = runtime.stop().unwrap();
        let decisions = finished.log.unwrap().decisions;
        let led = decisions.iter().filter_map(|decision| match &decision.answer {
            DeciderAnswer::Step(step) => step.lead,
            _ => None,
        });
        let pressures: Vec<f64> = led.map(|lead| lead.pressure).collect();
        let changed = pressures.iter().position(|pressure| *pressure > 40.0).unwrap();
        assert!(pressures.len() > changed + 10);
        let least = pressures[changed..].iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least > 40.0, "{least} of {pressures:?}");
    }
}
