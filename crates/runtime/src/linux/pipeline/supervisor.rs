//! The supervisor: starts the workers, replaces those that die, and ends them.

use std::ops::Deref;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::panel::Panel;
use super::registry::Registered;
use super::shared::{End, Note, Shared};
use super::{Kin, PipelineError, PipelineOptions, Role, environment};

/// How soon the death of a worker is noticed.
const LOOK: Duration = Duration::from_millis(1);
/// A worker that ends sooner has not begun to serve...
const AT_ONCE: Duration = Duration::from_millis(200);
/// ...and so many in a row tell that none will.
const FAILED_STARTS_MAX: u32 = 20;

/// Starts and watches what runs. What can be asked of the pipeline is in [`Panel`].
#[derive(Debug)]
pub struct Supervisor {
    panel: Panel,
    shared: Shared,
    ends: Arc<AtomicBool>,
    watch: Mutex<Option<JoinHandle<()>>>,
    /// Others find the pipeline as long as this is there.
    _registered: Option<Registered>,
}

impl Deref for Supervisor {
    type Target = Panel;

    fn deref(&self) -> &Panel {
        &self.panel
    }
}

impl Supervisor {
    pub(super) fn start(shared: &Shared, options: &PipelineOptions) -> Result<Supervisor, PipelineError> {
        let ends = Arc::new(AtomicBool::new(false));
        let (watched, ending) = (shared.clone(), Arc::clone(&ends));
        let options = options.clone();
        let refusal = |why| PipelineError::Start {
            what: "the thread that watches workers",
            why,
        };
        // The kernel kills workers when the thread that started them ends: this one ends last.
        let watch = { std::thread::Builder::new() }
            .name("pipeline".into())
            .spawn(move || watch(&watched, &ending, &options))
            .map_err(refusal)?;
        Ok(Supervisor {
            panel: Panel::new(shared),
            shared: shared.clone(),
            ends,
            watch: Mutex::new(Some(watch)),
            // Where no file can be written, the pipeline runs all the same, and others do not find it.
            _registered: Registered::new(shared).ok(),
        })
    }

    pub(super) fn end(&self) -> Result<(), PipelineError> {
        self.shared.end_by(End::Asked);
        self.ends.store(true, Ordering::Release);
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(watch) = watch {
            // A panic in it has been printed.
            let _ = watch.join();
        }
        match self.shared.end() {
            End::Failed(stage) => {
                let deaths = self.shared.note(stage, Note::Deaths).load(Ordering::Relaxed);
                Err(PipelineError::Failed(self.shared.name(stage).into(), deaths))
            }
            End::NoWorker => Err(PipelineError::NoWorker(FAILED_STARTS_MAX)),
            End::Runs | End::Asked => Ok(()),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // What failed was told, or the caller does not want to know.
        let _ = self.end();
    }
}

/// The worker of a core.
struct Worker {
    child: Option<Child>,
    begun: Instant,
    /// Workers in a row that ended at once.
    failed: u32,
}

impl Worker {
    fn start(shared: &Shared, core: usize, options: &PipelineOptions) -> Worker {
        Worker {
            child: start(shared, core, options),
            begun: Instant::now(),
            failed: 0,
        }
    }

    fn has_ended(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Starts another one in its place; whether there is still hope.
    fn replace(&mut self, shared: &Shared, core: usize, options: &PipelineOptions) -> bool {
        let at_once = self.begun.elapsed() < AT_ONCE;
        let failed = if at_once { self.failed + 1 } else { 0 };
        *self = Worker {
            failed,
            ..Worker::start(shared, core, options)
        };
        failed < FAILED_STARTS_MAX
    }
}

/// Keeps a worker on every core until the pipeline ends, and returns when all of them have.
fn watch(shared: &Shared, ends: &AtomicBool, options: &PipelineOptions) {
    let mut workers: Vec<Worker> = { 0..shared.cores() }
        .map(|core| Worker::start(shared, core, options))
        .collect();
    while workers.iter().any(|worker| worker.child.is_some()) {
        for (core, worker) in workers.iter_mut().enumerate() {
            if !worker.has_ended() {
                continue;
            }
            worker.child = None;
            if shared.end() == End::Runs && !worker.replace(shared, core, options) {
                shared.end_by(End::NoWorker);
            }
        }
        std::thread::sleep(LOOK);
    }
    // Not one could be started.
    if !ends.load(Ordering::Acquire) {
        shared.end_by(End::NoWorker);
    }
}

fn start(shared: &Shared, core: usize, options: &PipelineOptions) -> Option<Child> {
    let mut command = Command::new("/proc/self/exe");
    let kin = Kin {
        parent: std::process::id() as i32,
        priority: options.priority,
        tag: options.tag.clone(),
    };
    command
        .args(std::env::args_os().skip(1))
        .envs(environment(shared, &Role::Worker { core }, &kin));
    command.spawn().ok()
}
