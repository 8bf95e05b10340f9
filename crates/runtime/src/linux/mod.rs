//! The runtime on Linux: a service that runs tasks on real threads, takes sensor readings, and controls the machine.
//!
//! | thread       | core         | scheduling     | does                                             |
//! |--------------|--------------|----------------|--------------------------------------------------|
//! | keeper       | any          | ordinary       | starts the others, executes commands, restores the machine |
//! | probe        | real-time    | FIFO 95        | measures gaps that no task causes                |
//! | control      | housekeeping | FIFO 90        | the loop: reads, decides, sets knobs             |
//! | feeder       | housekeeping | FIFO 85        | offers recorded sensor updates to admission      |
//! | reports      | housekeeping | FIFO 85        | takes the jobs that other programs report        |
//! | real-time    | real-time    | FIFO 80, 79, … | jobs; the shorter the deadline the higher        |
//! | exclusive    | the last ones | FIFO 80, 79, … | likewise, on cores that all other threads are off |
//! | updater      | real-time    | FIFO 50        | installs transactional updates in the slack      |
//! | best-effort  | the others   | ordinary       | jobs without deadlines                           |
//! | group commit | housekeeping | ordinary       | writes memory-first updates to the engine        |
//!
//! [`Runtime`] is the callers' handle, [`RuntimeBuilder`] the input of a runtime: tasks that begin together, a
//! recording, exclusive tasks. The caller's own threads offer readings of live sensors ([`Sensor`]).
//!
//! `punctual_cores::place` assigns the cores: exclusive tasks get the last cores, real-time tasks the last of the
//! others. Sensor updates are installed on the last real-time core. The probe runs on the last exclusive core or,
//! without one, on the last real-time core. Best-effort threads run on all other cores and, while these are lent, on
//! exclusive ones. Whatever is refused (no permission, no such core) is worked around and reported.

mod beside;
mod control;
mod events;
mod exclusive;
mod feeder;
mod job;
mod keeper;
mod known;
mod mailbox;
#[cfg(test)]
mod mailbox_tests;
mod observed;
mod releases;
mod reported;
mod seats;
mod sensor;
mod service;
mod shared;
mod starvation;
mod task;
mod tasks;
pub mod tenancy;
mod witness;

/// The synchronization that `mailbox.rs` uses; the model checker substitutes its own (`tests/mailbox.rs`).
mod sync {
    pub(super) use punctual_os::linux::sync::{Parker, PiMutex, Wake};
}

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};

use punctual_cores::PlacementRequest;
use punctual_jobs::Listener;
use punctual_loop::{AdmissionSetup, RegulatorOptions};
use punctual_os::LinuxOs;
use punctual_platform::linux::events::EventSource;
use punctual_platform::linux::{ClockPreference, LinuxMachine, LinuxOptions};
use punctual_platform::{Machine, Neighbours, Refusal};
use punctual_store::Store;
use punctual_store::engine::Engine;
use punctual_units::{Clock, CoreId, Nanos, Share, Time};
use punctual_workload::{Active, Arrival, Class, ControllerKind, Goal, Pace, SensorUpdate, TaskGoal};

use crate::frames::StageFrames;

pub use self::beside::{PlacedBeside, place_beside};
pub use self::exclusive::{limits, limits_beside};
pub use self::job::Job;
pub use self::keeper::TASKS_MAX;
pub use self::reported::{REPORTERS_MAX, ReportedTask};
pub use self::seats::CorePin;
pub use self::sensor::{Bytes, Reading, Sensor, SensorError};
pub use self::service::{LearningState, Runtime, RuntimeFigures, RuntimeOptions, TaskHandle};
pub use self::task::{Late, TaskBuilder};
pub use self::tasks::{Body, JobError, JobResult, TaskEnd};

use self::control::ControlMessage;
use self::feeder::Feed;
use self::tasks::TaskState;
use crate::collector::MARKS_MAX;
use crate::error::RuntimeError;
use crate::figures::TaskInfo;
use crate::learn::Learning;
use crate::report::{FinishedRun, LoadReport, PlatformChoice, Progress, RunHeader, RunMark, UserRequest, Watch};

/// SCHED_FIFO priority of the probe, the thread that measures gaps.
pub const PROBE_PRIORITY: u8 = 95;
/// Period of the probe: short enough to see gaps of a few milliseconds, long enough to leave the core to its jobs.
pub const PROBE_PERIOD: Nanos = Nanos::from_millis(1);
const CONTROL_PRIORITY: u8 = 90;
const FEEDER_PRIORITY: u8 = 85;
/// SCHED_FIFO priority of the real-time task with the shortest deadline; the other tasks get the next lower ones.
pub const TASK_PRIORITY: u8 = 80;
const UPDATER_PRIORITY: u8 = 50;

/// Least time between "go" and the first release, so that every thread is asleep by then.
const LEAD: Nanos = Nanos::from_millis(20);

/// Greatest such time, where other work delayed the thread that makes them.
const LEAD_MAX: Nanos = Nanos::from_secs(3);

/// First release of threads whose making began at `making`. An ordinary thread makes them, so that on a busy machine
/// "go" may take as long as that did.
fn first_release(making: Time) -> Time {
    let now = LinuxOs.now();
    now + LEAD.max(now.since(making)).min(LEAD_MAX)
}

/// Value of `RegulatorOptions::silence` where no scenario says how often jobs come.
const SILENCE: Nanos = Nanos::from_secs(10);

/// Longest time without a call of a caller's watch function, even if there is no sample.
const PATIENCE: Nanos = Nanos::from_millis(100);

/// Greatest number of logged steps in a run without a duration, counted from its start: some 20 MB.
pub const STEPS_MAX: usize = 50_000;

/// Samples and figures that may wait for a watching caller: a minute at ten per second.
const TOLD_MAX: usize = 720;

/// Input of a runtime: a machine, a store, the tasks that begin together, and a recording.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use punctual_runtime::linux::RuntimeBuilder;
/// # use punctual_units::Nanos;
/// # use punctual_workload::{Arrival, Class};
/// # use punctual_os::LinuxOs;
/// # use punctual_store::{Store, engine::Engine};
/// # type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
/// # fn example<E: Engine + 'static>(store: Arc<Store<E, LinuxOs>>) -> Result<()> {
/// let mut prepared = RuntimeBuilder::here(store)?;
/// let every_20_ms = Arrival::Periodic { period: Nanos::from_millis(20) };
/// let within_5_ms = Class::Exclusive { deadline: Nanos::from_millis(5) };
/// prepared.task("steer", within_5_ms, every_20_ms, |job| {
///     job.read(|store| store.get(b"heading").map(|_| ()))
/// });
/// let runtime = prepared.start(None)?;
/// # Ok(()) }
/// ```
pub struct RuntimeBuilder<E: Engine> {
    machine: LinuxMachine,
    store: Arc<Store<E, LinuxOs>>,
    tasks: Vec<TaskSetup<E>>,
    feed: Option<Feed>,
    group_commit: Option<Nanos>,
    neighbours: Neighbours,
    keep_cores: Vec<Option<CoreId>>,
    reported: Option<(Listener, Vec<ReportedTask>)>,
}

/// A task with all of its options.
pub struct TaskSetup<E: Engine> {
    /// Name in reports and of the thread.
    pub name: String,
    /// Kind of the task: with or without a deadline, on a shared or an exclusive core.
    pub class: Class,
    /// Times at which its jobs are released.
    pub arrival: Arrival,
    /// Source of events that release jobs instead, and the least gap between them: see
    /// [`on_event`](TaskSetup::on_event).
    events: Option<(EventSource, Nanos)>,
    /// Part of the run in which the task is active.
    pub active: Active,
    /// Core to run on; `None`: placement chooses one.
    pub core: Option<CoreId>,
    /// Longest time for which a job keeps its core, if the caller knows it.
    pub execution: Option<Nanos>,
    /// Goal of the task; `None`: the run's default.
    pub goal: Option<TaskGoal>,
    /// Store that its jobs work on.
    pub store: Arc<Store<E, LinuxOs>>,
    /// Closure that is called once per job.
    pub body: Body<E>,
    state: Arc<TaskState>,
}

impl<E: Engine> TaskSetup<E> {
    /// A task whose jobs run `body` on `store`, for the whole run, on a core that placement chooses.
    pub fn new<R: JobResult>(
        name: impl Into<String>,
        class: Class,
        arrival: Arrival,
        store: Arc<Store<E, LinuxOs>>,
        mut body: impl FnMut(&mut Job<'_, E>) -> R + Send + 'static,
    ) -> TaskSetup<E> {
        TaskSetup {
            name: name.into(),
            class,
            arrival,
            events: None,
            active: Active::ALWAYS,
            core: None,
            execution: None,
            goal: None,
            store,
            body: Box::new(move |job| body(job).into_result()),
            state: Arc::default(),
        }
    }

    /// Releases a job at each event of `source`, at most one per `gap` in the long run: see [`TaskBuilder::on_event`].
    pub fn on_event(mut self, source: EventSource, gap: Nanos) -> TaskSetup<E> {
        self.arrival = Arrival::Periodic { period: gap };
        self.state.wake_by(source.stop());
        self.events = Some((source, gap));
        self
    }

    /// The task as placement needs it.
    fn request(&self) -> PlacementRequest {
        PlacementRequest {
            class: self.class,
            arrival: self.arrival,
            execution: self.execution,
            core: self.core,
            cores: Some(1),
        }
    }

    /// Goal of the task in a run with this default; `None` for a best-effort task.
    fn asks(&self, goal: Goal) -> Option<TaskGoal> {
        self.class.deadline().map(|_| self.goal.unwrap_or(goal.tasks))
    }

    /// Properties of the task that the report needs.
    fn watched(&self, goal: Goal) -> TaskInfo {
        TaskInfo {
            name: self.name.clone(),
            deadline: self.class.deadline(),
            goal: self.goal.unwrap_or(goal.tasks),
        }
    }
}

/// How a run is controlled, and how long it lasts.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Properties of the run known in advance; protections are added to it.
    pub header: RunHeader,
    /// Options of the loop; the runtime fills in `start`.
    pub regulator: RegulatorOptions,
    /// When the loop steps: at a period, or at every job.
    pub pace: Pace,
    /// Watchdog of a loop that steps at every job: it decides anyway if no job has ended for this long (`None`: never).
    pub patience: Option<Nanos>,
    /// Duration of the run; `None`: until it is stopped.
    pub duration: Option<Nanos>,
    /// Seed of the random pauses and gaps.
    pub seed: u64,
    /// Whether a probe on the real-time core measures when the core itself is taken away. It uses up to 2 % of the
    /// core, above the tasks' priorities; without it there is no no-op control, and no late job is excused.
    pub probe: bool,
    /// Limit on the CPU share that all best-effort tasks together use of their cores; 1 is no limit.
    pub best_effort_share: Share,
    /// Whether to keep a log that replays; holds the setup of all sensors. The log grows with the run: without a
    /// duration it covers the first [`STEPS_MAX`] steps, and no verdicts of admission.
    pub record: Option<AdmissionSetup>,
    /// Whether to learn a model of the tasks first, and then control by it; `None`: no.
    pub learning: Option<Learning>,
    /// The frames of each stage of [`RegulatorOptions::stages`].
    pub stages: Vec<StageFrames>,
}

impl<E: Engine + 'static> RuntimeBuilder<E> {
    /// A runtime without tasks on `machine`. The machine's knobs are restored when the run ends or this value is
    /// dropped.
    pub fn new(machine: LinuxMachine, store: Arc<Store<E, LinuxOs>>) -> Self {
        RuntimeBuilder {
            machine,
            store,
            tasks: Vec::new(),
            feed: None,
            group_commit: None,
            neighbours: Neighbours::default(),
            keep_cores: Vec::new(),
            reported: None,
        }
    }

    /// A runtime without tasks on this machine, with its real knobs: no emulated clock slows closures down.
    /// Memory-first updates are written to the engine at the store's interval.
    ///
    /// # Errors
    /// [`Refusal`] if the machine cannot be read at all; features that it merely lacks are in the report.
    pub fn here(store: Arc<Store<E, LinuxOs>>) -> Result<Self, Refusal> {
        let options = LinuxOptions {
            clock: ClockPreference::Real,
            ..LinuxOptions::default()
        };
        let group_commit = store.group_interval().filter(|_| store.objects() > 0);
        Ok(RuntimeBuilder {
            group_commit,
            ..RuntimeBuilder::new(LinuxMachine::open(options)?, store)
        })
    }

    /// The machine that the tasks will run on.
    pub fn machine(&self) -> &LinuxMachine {
        &self.machine
    }

    /// Name of each task, with its request for placement.
    fn requests(&self) -> Vec<(String, PlacementRequest)> {
        let request = |task: &TaskSetup<E>| (task.name.clone(), task.request());
        self.tasks.iter().map(request).collect()
    }

    /// Adds a task whose jobs run `body`.
    pub fn task<R: JobResult>(
        &mut self,
        name: impl Into<String>,
        class: Class,
        arrival: Arrival,
        body: impl FnMut(&mut Job<'_, E>) -> R + Send + 'static,
    ) -> &mut Self {
        let store = Arc::clone(&self.store);
        self.add(TaskSetup::new(name, class, arrival, store, body))
    }

    /// Adds a task that releases a job at each event of `source`, at most one per `gap` in the long run: see
    /// [`TaskBuilder::on_event`].
    pub fn task_on_event<R: JobResult>(
        &mut self,
        name: impl Into<String>,
        class: Class,
        source: EventSource,
        gap: Nanos,
        body: impl FnMut(&mut Job<'_, E>) -> R + Send + 'static,
    ) -> &mut Self {
        let (store, at_least) = (Arc::clone(&self.store), Arrival::Periodic { period: gap });
        self.add(TaskSetup::new(name, class, at_least, store, body).on_event(source, gap))
    }

    /// Gives the task that was added last its own goal, instead of the run's.
    pub fn asks_for(&mut self, goal: TaskGoal) -> &mut Self {
        if let Some(task) = self.tasks.last_mut() {
            task.goal = Some(goal);
        }
        self
    }

    /// Sets the longest time for which a job of the task that was added last keeps its core, on an otherwise idle
    /// machine. Admission needs this for exclusive tasks that share a core; an exclusive task without it gets a core
    /// alone, or none.
    pub fn takes_at_most(&mut self, execution: Nanos) -> &mut Self {
        if let Some(task) = self.tasks.last_mut() {
            task.execution = Some(execution);
        }
        self
    }

    /// Puts the task that was added last on `core`. If that contradicts another task or the machine, the run is
    /// refused.
    pub fn on_core(&mut self, core: CoreId) -> &mut Self {
        if let Some(task) = self.tasks.last_mut() {
            task.core = Some(core);
        }
        self
    }

    /// Sets the rights of other programs on exclusive cores: which of them stay, besides those that the environment
    /// names, and to which groups the cores are lent.
    pub fn neighbours(&mut self, neighbours: Neighbours) -> &mut Self {
        self.neighbours = neighbours;
        self
    }

    /// Reserves `cores` exclusive cores for tasks and threads that come later
    /// ([`TaskBuilder::exclusive`](TaskBuilder::exclusive)), besides those of the first tasks. They are not lent,
    /// because the runtime does not know when a foreign thread works.
    pub fn keep_cores(&mut self, cores: usize) -> &mut Self {
        self.keep_cores = vec![None; cores];
        self
    }

    /// As [`keep_cores`](RuntimeBuilder::keep_cores): one for each entry of `cores`, the named one if one is named.
    pub fn keep_named_cores(&mut self, cores: Vec<Option<CoreId>>) -> &mut Self {
        self.keep_cores = cores;
        self
    }

    /// Adds a task with all of its options.
    pub fn add(&mut self, task: TaskSetup<E>) -> &mut Self {
        self.tasks.push(task);
        self
    }

    /// Adds tasks whose jobs other programs report to `listener`. Their numbers follow those of the other tasks.
    pub fn reported(&mut self, mut listener: Listener, tasks: Vec<ReportedTask>) -> &mut Self {
        listener.recorded_in(self.machine.journal());
        self.reported = Some((listener, tasks));
        self
    }

    /// Feeds recorded sensor updates into the store when they are due. `value_bytes` (8 to the objects' capacity) is
    /// the size of a value, which begins with the reading as a little-endian `f64`.
    pub fn sensors(
        &mut self,
        stream: impl Iterator<Item = SensorUpdate> + Send + 'static,
        value_bytes: usize,
    ) -> &mut Self {
        self.feed = Some(Feed {
            stream: Box::new(stream),
            value_bytes,
        });
        self
    }

    /// Writes memory-first updates to the engine at this interval.
    pub fn group_commit_every(&mut self, interval: Nanos) -> &mut Self {
        self.group_commit = Some(interval);
        self
    }

    /// Options of a run that measures and reports but sets no knob (controller `open`), stepping at every job. To
    /// control, set `regulator.kind` and `regulator.design`, or `learning`.
    pub fn options(&self, name: impl Into<String>, goal: Goal, duration: impl Into<Option<Nanos>>) -> RunOptions {
        let offers = self.machine.offers().clone();
        let header = RunHeader {
            scenario: name.into(),
            platform: PlatformChoice::Linux,
            machine: offers.machine.clone(),
            seed: 0,
            controller: ControllerKind::Open,
            goal,
            prices: None,
            knobs: Vec::new(),
            protection: Vec::new(),
            load: LoadReport::default(),
            settle_s: 0.0,
        };
        let regulator = RegulatorOptions {
            kind: ControllerKind::Open,
            goal,
            goals: Vec::new(),
            stages: Vec::new(),
            offers,
            start: Time::ZERO,
            warm_up: Nanos::ZERO,
            silence: SILENCE,
            impatient: false,
            within: false,
            design: None,
            best_effort: None,
            split: None,
            prices: None,
            idle_clock: false,
            excite: None,
        };
        let (pace, best_effort_share) = (Pace::Job, Share::ONE);
        RunOptions {
            header,
            regulator,
            pace,
            patience: None,
            duration: duration.into(),
            seed: 0,
            probe: true,
            best_effort_share,
            record: None,
            learning: None,
            stages: Vec::new(),
        }
    }

    /// Starts all tasks together, and returns once they have started. Without options the run only observes: every task
    /// is measured against the default goal, no knob is set, and the run lasts until [`Runtime::stop`].
    ///
    /// [`RuntimeError`] if the controller does not fit the machine, tasks cannot be placed, or the requested log has no
    /// bound. The machine is restored.
    pub fn start(self, options: impl Into<Option<RunOptions>>) -> Result<Runtime<E>, RuntimeError> {
        let options = options
            .into()
            .unwrap_or_else(|| self.options("tasks", service::default_goal(), None));
        service::start(self, options, None)
    }

    /// Runs until the duration is over or `watch` returns `Break`.
    ///
    /// # Errors
    /// [`RuntimeError`] if the controller does not fit the machine, or the store failed. The machine is restored.
    pub fn run(self, options: RunOptions, watch: Watch) -> Result<FinishedRun, RuntimeError> {
        let (tell, told) = sync_channel(TOLD_MAX);
        let runtime = service::start(self, options, Some(tell))?;
        let marks = watch_told(&runtime, &told, watch);
        let mut finished = runtime.wait()?;
        finished.report.marks = marks;
        Ok(finished)
    }
}

/// Calls `watch` with samples and figures, and for requests, until the run is over. Returns the user's marks, those
/// after the last step of the loop included.
fn watch_told<E: Engine>(runtime: &Runtime<E>, told: &Receiver<ControlMessage>, watch: Watch) -> Vec<RunMark> {
    if watch(Progress::Started(&runtime.header())) == ControlFlow::Break(()) {
        runtime.ask_to_stop();
    }
    let (mut requests, mut marks) = (Vec::new(), Vec::new());
    loop {
        let news = told.recv_timeout(PATIENCE.into());
        // Requests first: the watcher may answer the news by a stop, and requests made before it still count.
        let _ = watch(Progress::Requests(&mut requests));
        requests.retain(|request| match request {
            UserRequest::Mark(mark) => {
                marks.push(mark.clone());
                marks.truncate(MARKS_MAX);
                false
            }
            // Again with the next news, if too many orders wait.
            goal => !runtime.request(goal.clone()),
        });
        let answer = match news {
            Ok(ControlMessage::Sample(sample)) => watch(Progress::Sample(&sample)),
            Ok(ControlMessage::Tasks(tasks)) => watch(Progress::Tasks(&tasks)),
            Ok(ControlMessage::Settings(settings)) => watch(Progress::Settings(&settings)),
            Ok(ControlMessage::Note(note)) => watch(Progress::Note(&note)),
            Ok(ControlMessage::Standing(_) | ControlMessage::Recorded(_)) => continue,
            Err(RecvTimeoutError::Timeout) => watch(Progress::Waiting),
            Err(RecvTimeoutError::Disconnected) => return marks,
        };
        if answer == ControlFlow::Break(()) {
            runtime.ask_to_stop();
        }
    }
}
