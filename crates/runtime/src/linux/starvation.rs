//! Relieves threads of the run that starve, because real-time threads of other programs fill their cores.
//!
//! The runtime's own threads are relieved at any time: without the control thread nothing is counted and the run has no
//! end. Those of tasks keep their cores while the run lasts, and what they miss is late; they are relieved before they
//! have started and after the run was asked to end, when others wait for them.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use punctual_platform::linux::starvation::{Relief, STARVES_AFTER, StarvationGuard, filler};
use punctual_platform::linux::thread::Tid;
use punctual_units::CoreId;

use super::shared::RunState;
use crate::error::RuntimeError;

/// The real-time threads of a run, which enter themselves.
#[derive(Clone, Default)]
pub(super) struct Roster(Arc<Mutex<Vec<Entry>>>);

struct Entry {
    guard: StarvationGuard,
    role: String,
    core: CoreId,
    priority: u8,
    /// Whether it is relieved at any time.
    always: bool,
}

impl Roster {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the calling thread, before it goes to `core` at `priority`.
    pub(super) fn enter(&self, role: &str, core: CoreId, priority: u8) {
        let entry = Entry {
            guard: StarvationGuard::new(Tid::current()),
            role: role.into(),
            core,
            priority,
            always: true,
        };
        self.entries().push(entry);
    }

    /// The calling thread, of a task, has started: it keeps its core.
    pub(super) fn started(&self) {
        let this = Tid::current();
        let mut entries = self.entries();
        let own = entries.iter_mut().filter(|entry| entry.guard.thread() == this);
        own.for_each(|entry| entry.always = false);
    }

    /// Looks at each thread, and relieves those that starve; returns what was done in words.
    fn look(&self, stopping: bool) -> Vec<String> {
        let mut entries = self.entries();
        entries.retain(|entry| !entry.guard.has_ended());
        let due = entries.iter_mut().filter(|entry| entry.always || stopping);
        let relieved = due.filter_map(|entry| Some((entry.guard.look()?, &*entry)));
        let note = |(relief, entry): (Relief, &Entry)| {
            let how = match relief {
                Relief::AnyCore => "it may run on any core now",
                Relief::Ordinary => "nor could it on another, so it is an ordinary thread now",
            };
            let by = filler(entry.core, entry.priority);
            format!(
                "{} could not run on core {}, which {by} fills: {how}",
                entry.role, entry.core
            )
        };
        relieved.map(note).collect()
    }
}

/// Looks at the threads of a roster, from a thread of its own, until it is ended.
pub(super) struct Relieving {
    over: SyncSender<()>,
    thread: JoinHandle<Vec<String>>,
}

impl Relieving {
    /// # Errors
    /// [`RuntimeError::Thread`] if no thread can be started.
    pub(super) fn start(roster: Roster, shared: Arc<RunState>) -> Result<Relieving, RuntimeError> {
        let (over, ended) = sync_channel(0);
        let name = "relief";
        let look = move || {
            let mut notes = Vec::new();
            while ended.recv_timeout(STARVES_AFTER) == Err(RecvTimeoutError::Timeout) {
                notes.extend(roster.look(shared.stopping()));
            }
            notes
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(look);
        let thread = thread.map_err(|why| RuntimeError::Thread { role: name.into(), why })?;
        Ok(Relieving { over, thread })
    }

    /// Notes on the threads that were relieved.
    pub(super) fn end(self) -> Vec<String> {
        drop(self.over);
        self.thread.join().unwrap_or_default()
    }
}
