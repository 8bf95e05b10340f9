//! The supervisor: starts the workers, replaces those that die, and ends them.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_platform::linux::process::{ProcessId, wait_any};
use punctual_units::Nanos;

use super::panel::Panel;
use super::registry::RegistryFile;
use super::shared::{End, Segment};
use super::watchdog::Watchdog;
use super::{Kin, PipelineError, PipelineOptions, environment};

/// Period at which the supervisor checks for hanging workers. It is notified of a death at once.
const LOOK: Nanos = Nanos::from_secs(1);
/// A worker inactive for this long hangs: a live one is active at least once a second.
const HANGS: Nanos = Nanos::from_secs(5);
/// A worker that ends sooner than this has not begun to serve.
const AT_ONCE: Duration = Duration::from_millis(200);
/// Number of consecutive such workers after which the pipeline ends.
const FAILED_STARTS_MAX: u32 = 20;

/// Starts and watches the workers. Requests to the pipeline are in [`Panel`].
#[derive(Debug)]
pub struct Supervisor {
    panel: Panel,
    shared: Segment,
    ends: Arc<AtomicBool>,
    watch: Mutex<Option<JoinHandle<()>>>,
    /// Other processes find the pipeline as long as this exists.
    _registered: Option<RegistryFile>,
}

impl Deref for Supervisor {
    type Target = Panel;

    fn deref(&self) -> &Panel {
        &self.panel
    }
}

impl Supervisor {
    pub(super) fn start(shared: &Segment, options: &PipelineOptions) -> Result<Supervisor, PipelineError> {
        let ends = Arc::new(AtomicBool::new(false));
        let (watched, ending) = (shared.clone(), Arc::clone(&ends));
        let options = options.clone();
        // The kernel kills workers when the thread that started them ends: this one ends last.
        let watch = { std::thread::Builder::new() }
            .name("pipeline".into())
            .spawn(move || watch(&watched, &ending, &options))
            .map_err(PipelineError::start("the thread that watches workers"))?;
        Ok(Supervisor {
            panel: Panel::new(shared),
            shared: shared.clone(),
            ends,
            watch: Mutex::new(Some(watch)),
            // If no file can be written, the pipeline still runs, but others do not find it.
            _registered: RegistryFile::new(shared).ok(),
        })
    }

    pub(super) fn end(&self) -> Result<(), PipelineError> {
        self.shared.end_by(End::Asked);
        self.ends.store(true, Ordering::Release);
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(watch) = watch {
            // A panic of the thread has been printed.
            let _ = watch.join();
        }
        match self.shared.end() {
            End::Failed(stage) => {
                let name = self.shared.name(stage).into();
                Err(PipelineError::Failed(name, self.shared.why_failed(stage)))
            }
            End::NoWorker => Err(PipelineError::NoWorker(FAILED_STARTS_MAX)),
            End::Runs | End::Asked => Ok(()),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // A failure was reported before, or the caller does not want to know it.
        let _ = self.end();
    }
}

/// The worker of a core.
struct Worker {
    child: Option<Child>,
    /// Becomes readable once the worker has ended.
    watch: Option<OwnedFd>,
    begun: Instant,
    /// Number of consecutive workers that ended at once.
    failed: u32,
    /// Watches the time at which the worker was last active.
    looks: Watchdog,
}

impl Worker {
    fn start(shared: &Segment, core: usize, options: &PipelineOptions) -> Worker {
        let child = start(shared, core, options);
        let process = child.as_ref().and_then(|child| ProcessId::of(child.id() as i32));
        Worker {
            watch: process.and_then(ProcessId::watch),
            child,
            begun: Instant::now(),
            failed: 0,
            looks: Watchdog::default(),
        }
    }

    fn has_ended(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Starts another worker in its place; returns false after too many failed starts.
    fn replace(&mut self, shared: &Segment, core: usize, options: &PipelineOptions) -> bool {
        let at_once = self.begun.elapsed() < AT_ONCE;
        let failed = if at_once { self.failed + 1 } else { 0 };
        *self = Worker {
            failed,
            ..Worker::start(shared, core, options)
        };
        failed < FAILED_STARTS_MAX
    }

    /// Whether the worker is alive, but inactive for longer than `HANGS`.
    fn hangs(&mut self, shared: &Segment, core: usize, since: Nanos) -> bool {
        let looked = shared.looked(core).load(Ordering::Relaxed);
        self.child.is_some() && self.looks.look(looked, since, since, LOOK) > HANGS
    }
}

/// Keeps a worker on every core until the pipeline ends, and returns when all of them have.
fn watch(shared: &Segment, ends: &AtomicBool, options: &PipelineOptions) {
    let mut workers: Vec<Worker> = { 0..shared.cores() }
        .map(|core| Worker::start(shared, core, options))
        .collect();
    let mut looked = shared.now();
    while workers.iter().any(|worker| worker.child.is_some()) {
        let now = shared.now();
        let since = now.since(std::mem::replace(&mut looked, now));
        for (core, worker) in workers.iter_mut().enumerate() {
            if worker.hangs(shared, core, since) {
                // A process that has ended meanwhile is reaped below.
                let process = ProcessId::of(shared.worker(core).load(Ordering::Relaxed) as i32);
                let _ = process.is_some_and(ProcessId::kill);
            }
            if !worker.has_ended() {
                continue;
            }
            (worker.child, worker.watch) = (None, None);
            if shared.end() != End::Runs {
                continue;
            }
            shared.leave_core(core);
            if !worker.replace(shared, core, options) {
                shared.end_by(End::NoWorker);
            }
        }
        let watched: Vec<_> = workers.iter().filter_map(|worker| worker.watch.as_ref()).collect();
        // Once all have ended there is nothing to wait for.
        if workers.iter().any(|worker| worker.child.is_some()) {
            wait_any(&watched, LOOK);
        }
    }
    // No worker could be started.
    if !ends.load(Ordering::Acquire) {
        shared.end_by(End::NoWorker);
    }
}

fn start(shared: &Segment, core: usize, options: &PipelineOptions) -> Option<Child> {
    let mut command = Command::new("/proc/self/exe");
    let kin = Kin {
        parent: std::process::id() as i32,
        priority: options.priority,
        tag: options.tag.clone(),
    };
    command
        .args(std::env::args_os().skip(1))
        .envs(environment(shared, &kin, core, None));
    command.spawn().ok()
}
