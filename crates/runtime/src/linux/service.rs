//! The handle on a running runtime: any thread adds and stops tasks, offers readings, asks for figures, and ends it.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_cores::Request;
use punctual_loop::ModeName;
use punctual_os::LinuxOs;
use punctual_platform::Neighbours;
use punctual_platform::linux::thread::Tid;
use punctual_store::Store;
use punctual_store::engine::Engine;
use punctual_store::updates::Counts;
use punctual_units::{Hertz, Nanos, SensorId, Share};
use punctual_workload::{ControllerKind, Goal, Pace, TaskGoal};

use super::control::Told;
use super::keeper::{Command, Keeper};
use super::seats::Seated;
use super::sensor::{Sensor, SensorError};
use super::shared::Shared;
use super::task::TaskBuilder;
use super::tasks::{Ended, TaskState};
use super::{Prepared, RunOptions, TaskSetup};
use crate::error::RuntimeError;
use crate::learn::Learning;
use crate::report::{Finished, RunHeader, TaskReport};

/// Callers that may wait for the keeper at a time; more of them wait for their turn.
const COMMANDS_MAX: usize = 64;

/// How long a caller waits for an answer: the keeper and the control thread answer within milliseconds, unless the
/// machine stands still.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Beside the time that learning takes, what the loop has to settle.
const SETTLE: Nanos = Nanos::from_secs(1);

/// How to start a [`Runtime`] that has no tasks yet.
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
    /// Around `store`: no end, every task may have 1 % of its jobs late, nothing is learnt and no knob is turned.
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

    /// See [`Prepared::keep_cores`].
    pub fn keep_cores(self, cores: usize) -> Self {
        RuntimeOptions {
            keep_cores: cores,
            ..self
        }
    }

    /// See [`Prepared::neighbours`].
    pub fn neighbours(self, neighbours: Neighbours) -> Self {
        RuntimeOptions { neighbours, ..self }
    }

    /// Ends by itself after `duration`.
    pub fn run_for(self, duration: Nanos) -> Self {
        RuntimeOptions {
            duration: Some(duration),
            ..self
        }
    }

    /// What each task asks for that says nothing else.
    pub fn goal(mut self, goal: TaskGoal) -> Self {
        self.goal.tasks = goal;
        self
    }

    /// The least share of temporal objects to keep fresh, 0 to 1, when updates are shed. The store enforces it: it is
    /// part of its [`AdmissionOptions`](punctual_store::updates::AdmissionOptions) as well.
    pub fn min_fresh(mut self, share: Share) -> Self {
        self.goal.min_fresh = share;
        self
    }

    /// Learns a model of the tasks that run from the start on, and controls by it; see [`Runtime::learn`].
    pub fn learn(self, learning: Learning) -> Self {
        RuntimeOptions {
            learning: Some(learning),
            ..self
        }
    }

    /// Leaves out the probe on the real-time core: see [`RunOptions::probe`].
    pub fn without_probe(self) -> Self {
        RuntimeOptions { probe: false, ..self }
    }

    /// Bounds best-effort tasks to this share of their cores.
    pub fn best_effort_share(self, share: Share) -> Self {
        RuntimeOptions {
            best_effort_share: share,
            ..self
        }
    }

    /// Leaves the jobs of the first while out of the figures; learning is left out in any case.
    pub fn start_up(self, start_up: Nanos) -> Self {
        RuntimeOptions { start_up, ..self }
    }
}

impl<E: Engine> From<Arc<Store<E, LinuxOs>>> for RuntimeOptions<E> {
    fn from(store: Arc<Store<E, LinuxOs>>) -> Self {
        RuntimeOptions::new(store)
    }
}

/// One job of a hundred may be late, and no data need be fresh.
pub(super) fn default_goal() -> Goal {
    Goal {
        tasks: TaskGoal::default(),
        drr: 0.5,
        min_fresh: Share::ZERO,
    }
}

/// What became of learning.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Learnt {
    /// It was not asked for.
    #[default]
    NotAsked,
    /// The knobs go through their levels.
    UnderWay,
    /// A model was found, and this controller works by it.
    Controls(ControllerKind),
    /// There is no model, for this reason. The runtime goes on as it did before.
    Failed(String),
}

/// How things stand.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Since the start.
    pub running_for: Nanos,
    /// One per task with a deadline, in the order in which they were added, ended ones included.
    pub tasks: Vec<TaskReport>,
    /// What the loop is doing.
    pub mode: ModeName,
    /// Why the loop is in fallback.
    pub fallback: Option<String>,
    /// Where the admitted share is set.
    pub admitted: Share,
    /// Where the clock is set; `None` where it is left alone.
    pub clock: Option<Hertz>,
    /// What sensor readings have come to since the store was opened.
    pub updates: Counts,
    /// What became of learning.
    pub learnt: Learnt,
}

impl Figures {
    /// The figures of the task `name`, the latest one of this name.
    pub fn task(&self, name: &str) -> Option<&TaskReport> {
        self.tasks.iter().rev().find(|task| task.name == name)
    }
}

/// A running runtime. Clones are handles to the same one, for any thread.
///
/// It ends when it is [stopped](Runtime::stop), when its time is over, or when the last handle is dropped; then the
/// machine is put back. A job's closure that holds a handle keeps the runtime running until it is stopped.
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
    shared: Arc<Shared>,
    commands: SyncSender<Command<E>>,
    header: RunHeader,
    /// A recording feeds the store.
    recorded: bool,
    /// None once a caller has waited for it.
    keeper: Mutex<Option<JoinHandle<Result<Finished, RuntimeError>>>>,
}

impl<E: Engine + 'static> Drop for Inner<E> {
    /// Stops the runtime, and waits until the machine is put back: unless one of the runtime's own threads let the last
    /// handle go, which cannot wait for itself.
    fn drop(&mut self) {
        self.shared.stop();
        let keeper = self.keeper.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(keeper), false) = (keeper, self.shared.is_own_thread()) {
            // No caller is left to tell.
            let _ = keeper.join();
        }
    }
}

/// Starts the keeper, and waits until it has started all others.
pub(super) fn start<E: Engine + 'static>(
    prepared: Prepared<E>,
    mut options: RunOptions,
    watcher: Option<SyncSender<Told>>,
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
    let shared = Arc::new(Shared::new(options.regulator.within)?);
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

/// What the keeper returned. A panic of one of our own threads goes on in the caller.
fn join(keeper: JoinHandle<Result<Finished, RuntimeError>>) -> Result<Finished, RuntimeError> {
    keeper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl<E: Engine + 'static> Runtime<E> {
    /// Starts a runtime without tasks on this machine: around a store, or with [`RuntimeOptions`].
    ///
    /// # Errors
    /// [`RuntimeError`], among others where the machine cannot be looked at at all. The report says what it merely
    /// lacks.
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
        let mut prepared = Prepared::here(store)?;
        prepared.neighbours(neighbours).keep_cores(keep_cores);
        let mut options = RunOptions {
            learning,
            best_effort_share,
            probe,
            ..prepared.options("tasks", goal, duration)
        };
        options.header.settle_s = start_up.as_secs_f64();
        // Without tasks nothing is wrong, and a loop that only looks on has nothing to fall back to.
        options.regulator.silence = Nanos::MAX;
        // A loop that steps at every job would read all meters a thousand times per second at 1 kHz.
        options.pace = Pace::Period(Learning::default().period);
        prepared.start(options)
    }

    /// What is known since the start: what protection was asked for, and whether it was obtained.
    pub fn header(&self) -> RunHeader {
        self.inner.header.clone()
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store<E, LinuxOs>> {
        &self.inner.store
    }

    /// A task to be added: say when its jobs come and by when they are due, and then what they do.
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

    /// Runs one more task, once its thread is in its place. Threads of tasks that run get the priorities that follow
    /// from all deadlines.
    ///
    /// # Errors
    /// [`RuntimeError::Task`], [`RuntimeError::Place`] or [`RuntimeError::Thread`] where it cannot run;
    /// [`RuntimeError::Stopped`] once the runtime has ended.
    pub fn add(&self, task: TaskSetup<E>) -> Result<TaskHandle, RuntimeError> {
        self.ask(|answer| Command::Add(Box::new(task), answer))?
    }

    /// Gives a thread of this process a place, beside the tasks.
    pub(super) fn seat(&self, name: String, request: Request, thread: Tid) -> Result<Seated, RuntimeError> {
        self.ask(|answer| Command::Seat(name, request, thread, answer))?
    }

    /// The live sensor of the temporal object `key`, which the store was opened with.
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
    /// [`SensorError::Unknown`] where the store has no such object, [`SensorError::Recorded`] where a recording feeds
    /// it.
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

    /// How things stand now.
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`] once the runtime has ended.
    pub fn figures(&self) -> Result<Figures, RuntimeError> {
        self.ask(Command::Tell)
    }

    /// Learns a model of the tasks that run, and controls by it from then on: the knobs that the machine really has go
    /// through levels within the bounds given, for some seconds. Returns at once; [`Figures::learnt`] says what came of
    /// it. Where nothing can be learnt the runtime goes on as before.
    ///
    /// # Errors
    /// [`RuntimeError::Learning`] where the bounds leave nothing to learn from, or a model is being learnt already.
    pub fn learn(&self, learning: Learning) -> Result<(), RuntimeError> {
        self.ask(|answer| Command::Learn(learning, answer))?
    }

    /// Asks all threads to end after the jobs under way, and returns at once.
    pub fn ask_to_stop(&self) {
        self.inner.shared.stop();
    }

    /// Ends the runtime after the jobs under way, puts the machine back, and returns the report.
    ///
    /// # Errors
    /// As [`wait`](Runtime::wait).
    pub fn stop(&self) -> Result<Finished, RuntimeError> {
        self.ask_to_stop();
        self.wait()
    }

    /// Waits until the runtime ends, by its time or because another handle stops it, and returns the report.
    ///
    /// # Errors
    /// [`RuntimeError::Within`] in one of the runtime's own threads, which cannot wait for itself;
    /// [`RuntimeError::Stopped`] where another handle got the report. And what broke the run off.
    pub fn wait(&self) -> Result<Finished, RuntimeError> {
        if self.inner.shared.is_own_thread() {
            return Err(RuntimeError::Within);
        }
        let keeper = self.inner.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        join(keeper.ok_or(RuntimeError::Stopped)?)
    }

    /// Asks the keeper for something, and waits for the answer.
    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command<E>) -> Result<T, RuntimeError> {
        let (answer, answered) = sync_channel(1);
        let sent = self.inner.commands.send(command(answer));
        sent.map_err(|_| RuntimeError::Stopped)?;
        answered.recv_timeout(ANSWER_WAIT).map_err(|_| RuntimeError::Stopped)
    }
}

/// A task that was started. Dropping the handle leaves the task alone, and the handle does not keep the runtime
/// running.
#[derive(Clone, Debug)]
pub struct TaskHandle {
    name: String,
    state: Arc<TaskState>,
}

impl TaskHandle {
    pub(super) fn new(name: String, state: Arc<TaskState>) -> TaskHandle {
        TaskHandle { name, state }
    }

    /// The task's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks the task to end after the job under way, and returns at once. A task that waits for an event is woken. Its
    /// figures stay.
    pub fn stop(&self) {
        self.state.stop();
    }

    /// How the task ended, if it has. What its closure held has been dropped then.
    pub fn ended(&self) -> Option<Ended> {
        self.state.ended()
    }

    /// Waits for the task to end, at most so long; how it ended, if it has.
    pub fn wait(&self, at_most: Nanos) -> Option<Ended> {
        self.state.wait(at_most.into())
    }
}
