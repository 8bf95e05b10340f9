//! The section `[tasks]` of a node's file: tasks of a scenario in the server's process (decision 46).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_federation::replica::Replica;
use punctual_loop::EventLog;
use punctual_node::own::OwnReading;
use punctual_os::LinuxOs;
use punctual_runtime::linux::Runtime;
use punctual_runtime::report::{Progress, RunHeader};
use punctual_scenario::beside::{self, Needs, NodeEngine, NodeStore, OpenedStore};
use punctual_scenario::{PlatformChoice, RunError, RunRequest};
use punctual_server::tasks::{Tasks, TasksNow};
use punctual_store::engine::Engine;
use punctual_store::{StoreError, Together};
use punctual_units::Clock;
use punctual_workload::ControllerKind;

use crate::commands::metrics::figures_of;
use crate::commands::{self, failures, print, print_report, run};
use punctual_files::failure::Failure;
use punctual_files::scenario::{self, Loaded};
use punctual_files::tasks::{SetBy, TasksFile};
use punctual_files::trace;
use punctual_report::{protection, summary};

/// Interval between updates of the tasks' figures in the server.
const TOLD_EVERY: Duration = Duration::from_millis(500);
/// Interval at which the thread of these updates checks whether the server ends.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest reading that a task reads without an allocation.
const READING_BYTES: usize = 1 << 10;

/// Tasks that were read and checked, but not started.
pub struct ReadyTasks {
    file: TasksFile,
    loaded: Loaded,
    request: RunRequest,
}

impl ReadyTasks {
    /// Reads the scenario.
    ///
    /// # Errors
    /// [`Failure::Input`] if the file is no scenario, or not suitable for a node.
    pub fn load(file: &TasksFile) -> Result<ReadyTasks, Failure> {
        let loaded = scenario::load(Some(&file.scenario), &[])?;
        let mut wrong = Vec::new();
        let mut refuse = |key: &str, what: &str| {
            if loaded.document.contains_key(key) {
                wrong.push(format!("{}: {key}: {what}", loaded.place_of(key)));
            }
        };
        refuse("duration", "the tasks of a node have no end: leave it out");
        refuse(
            "stage",
            "stages have processes of their own: run them by `punctual run`",
        );
        let named = [("store.path", &loaded.store_path), ("store.temporal", &loaded.mapped)];
        for (key, _) in named.iter().filter(|(_, path)| path.is_some()) {
            let place = loaded.place_of(key);
            wrong.push(format!("{place}: {key}: tasks of a node have its store: leave it out"));
        }
        for set in &file.sets {
            if !loaded.scenario.tasks.iter().any(|task| task.name == set.task) {
                let shown = loaded.shown();
                wrong.push(format!(
                    "tasks.sets: {shown} has no task {}: name one of its tasks",
                    set.task
                ));
            }
        }
        Failure::refuse(wrong)?;
        let trace = Arc::new(trace::load(&loaded.scenario, loaded.file.as_deref())?);
        let mut request = RunRequest {
            neighbours: loaded.neighbours.clone(),
            ..RunRequest::new(loaded.scenario.clone(), trace, PlatformChoice::Linux)
        };
        if loaded.scenario.control.kind != ControllerKind::Open {
            request.controller = run::given_controller(None, &loaded, PlatformChoice::Linux)?;
            punctual_scenario::check_controller(&request)
                .map_err(|error| Failure::of(format!("{}: {error}", loaded.shown())))?;
        }
        Ok(ReadyTasks {
            file: file.clone(),
            loaded,
            request,
        })
    }

    /// Limits the store to `map_bytes`.
    pub fn within(&mut self, map_bytes: u64) {
        self.request.scenario.store.map_bytes = map_bytes;
    }

    /// Requests a log of the decisions.
    pub fn record(&mut self) {
        self.request.record = true;
    }

    /// Starts the tasks on the store that `open` opens. Returns `None` if `asked` is set meanwhile.
    ///
    /// # Errors
    /// [`Failure`]; the machine's settings are restored by then.
    pub fn start(
        self,
        asked: &AtomicBool,
        open: &mut dyn FnMut(&TasksFile, &Needs) -> Result<OpenedStore, StoreError>,
    ) -> Result<Option<RunningTasks>, Failure> {
        let ReadyTasks { file, loaded, request } = self;
        let mut watch = |progress: Progress<'_>| {
            if let Progress::Stage(what) = progress {
                // A reader that has gone away misses the line.
                drop(print(&format!("tasks of {}: {what}\n", loaded.shown())));
            }
            match asked.load(Ordering::SeqCst) {
                true => std::ops::ControlFlow::Break(()),
                false => std::ops::ControlFlow::Continue(()),
            }
        };
        let mut opens = |needs: &Needs| {
            let opened = open(&file, needs)?;
            Ok(OpenedStore {
                is_fed: !file.from_clients,
                ..opened
            })
        };
        let runtime = match beside::beside(&request, &mut opens, &mut watch) {
            Ok(runtime) => runtime,
            Err(RunError::Interrupted) => return Ok(None),
            Err(error) => return Err(failures::of_run(error, &loaded)),
        };
        commands::keep_off();
        print(&begun(&runtime.header(), &loaded))?;
        RunningTasks::watch(runtime).map(Some)
    }
}

/// Line on the started tasks, and one for each protection that was refused.
fn begun(header: &RunHeader, loaded: &Loaded) -> String {
    let tasks = loaded.scenario.tasks.len();
    let mut text = format!("tasks of {}: {tasks} run beside the server\n", loaded.shown());
    for line in protection::told(&header.protection) {
        if let Some((why, remedy)) = line.refused {
            text += &format!("  not obtained: {}: {why}; {remedy}\n", line.what.join(", "));
        }
    }
    text
}

/// Tasks that run in the server's process.
pub struct RunningTasks {
    runtime: Runtime<NodeEngine>,
    told: Arc<Tasks>,
    stop: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RunningTasks {
    fn watch(runtime: Runtime<NodeEngine>) -> Result<RunningTasks, Failure> {
        let told = Arc::new(Tasks::default());
        let [stop, ended] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let tells = {
            let (runtime, told) = (runtime.clone(), Arc::clone(&told));
            let (stop, ended) = (Arc::clone(&stop), Arc::clone(&ended));
            move || {
                while !stop.load(Ordering::SeqCst) {
                    match runtime.figures() {
                        Ok(figures) => told.leave(TasksNow {
                            mode: figures.mode.as_str().into(),
                            admitted: Some(figures.admitted.get()),
                            fresh: None,
                            clock_hz: figures.clock.map(|clock| clock.0),
                            tasks: figures.tasks.iter().map(figures_of).collect(),
                        }),
                        Err(_) => {
                            ended.store(true, Ordering::SeqCst);
                            return;
                        }
                    }
                    for _ in 0..TOLD_EVERY.as_millis() / LOOK_EVERY.as_millis() {
                        if !stop.load(Ordering::SeqCst) {
                            std::thread::sleep(LOOK_EVERY);
                        }
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("serve-tasks".into()).spawn(tells);
        let thread = thread.map_err(|error| Failure::of(format!("the thread that tells of tasks: {error}")))?;
        Ok(RunningTasks {
            runtime,
            told,
            stop,
            ended,
            thread: Some(thread),
        })
    }

    /// Figures of the tasks, as INFO shows them.
    pub fn told(&self) -> Arc<Tasks> {
        Arc::clone(&self.told)
    }

    /// Function that returns whether the tasks have ended by themselves.
    pub fn ended(&self) -> impl Fn() -> bool + Send + use<> {
        let ended = Arc::clone(&self.ended);
        move || ended.load(Ordering::SeqCst)
    }

    /// Stops the tasks after their current jobs, restores the machine's settings, and prints the report. Returns the
    /// log of decisions, if one was requested.
    ///
    /// # Errors
    /// [`Failure`] if the store failed, or the settings could not be restored.
    pub fn end(mut self) -> Result<Option<EventLog>, Failure> {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.runtime.stop();
        drop(self.thread.take().map(JoinHandle::join));
        match ended {
            Ok(finished) => print_report(&summary::summary(&finished.report)).map(|()| finished.log),
            Err(error) => Err(Failure::of(format!("tasks: {error}"))),
        }
    }
}

/// After another error, the machine's settings are restored here.
impl Drop for RunningTasks {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.store(true, Ordering::SeqCst);
            drop(self.runtime.stop());
            drop(thread.join());
        }
    }
}

thread_local! {
    /// Buffer for the reading that this thread's task read last.
    static READING: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(READING_BYTES));
}

/// Access to a node's readings for tasks with a separate store: they read values that the node has in memory, and leave
/// new values for the node to install.
pub fn beside<E: Engine + 'static>(
    file: &TasksFile,
    store: Arc<NodeStore>,
    replica: &Arc<Replica<E, LinuxOs>>,
    own: &[Arc<OwnReading>],
) -> OpenedStore {
    let read = |key: &String| -> beside::ReadCallback {
        let (replica, key) = (Arc::clone(replica), key.clone().into_bytes());
        Arc::new(move || READING.with_borrow_mut(|value| drop(replica.latest(&key, value))))
    };
    let set = |by: &SetBy| -> Option<(String, beside::Set)> {
        let own = own.iter().find(|own| own.key == by.object.as_bytes())?;
        let own = Arc::clone(own);
        let set = move |job| {
            own.leave(job, LinuxOs.now());
            Ok(())
        };
        Some((by.task.clone(), Arc::new(set)))
    };
    OpenedStore {
        is_fed: !file.from_clients,
        reads: file.reads.iter().map(read).collect(),
        sets: file.sets.iter().filter_map(set).collect(),
        store,
    }
}

/// Access to readings for tasks that share the server's store.
pub fn shared(file: &TasksFile, store: Arc<NodeStore>) -> OpenedStore {
    let objects = |key: &String| store.object(key.as_bytes());
    let read = |object| -> beside::ReadCallback {
        let store = Arc::clone(&store);
        Arc::new(move || {
            // The result is ignored: a read of an object without a value costs as much time.
            READING.with_borrow_mut(|value| drop(store.read(object, value)));
        })
    };
    let set = |object| -> beside::Set {
        let store = Arc::clone(&store);
        Arc::new(move |job| {
            store.install_together(&[Together {
                object,
                sampled_at: None,
                value: job.to_string().as_bytes(),
            }])
        })
    };
    OpenedStore {
        is_fed: !file.from_clients,
        reads: file.reads.iter().filter_map(objects).map(read).collect(),
        sets: { file.sets.iter() }
            .filter_map(|by| Some((by.task.clone(), set(objects(&by.object)?))))
            .collect(),
        store: Arc::clone(&store),
    }
}
