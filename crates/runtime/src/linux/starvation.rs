//! Relieves threads of the run that starve, because real-time threads of other programs fill their cores.
//!
//! The runtime's own threads are relieved at any time: without the control thread nothing is counted and the run has no
//! end. Those of tasks keep their cores while the run lasts, and what they miss is late; they are relieved before they
//! have started and after the run was asked to end, when others wait for them. A thread that waits for jobs of its own
//! run does not starve. Once its core is free again for some seconds, a thread goes back. After each further relief it
//! waits twice as long, up to an hour: a run of a year has few notes.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use punctual_platform::linux::starvation::{HIDDEN, Relief, STARVES_AFTER, StarvationGuard, filler};
use punctual_platform::linux::thread::Tid;
use punctual_units::CoreId;

use super::TASK_PRIORITY;
use super::shared::RunState;
use crate::error::RuntimeError;

/// Looks in a row at which a core must be free before its thread goes back, at first and at most.
const FREE_LOOKS: u32 = 10;
const FREE_LOOKS_MAX: u32 = 3600;

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
    /// Looks since the core of a relieved thread is free; `None`: the thread is on its core.
    free: Option<u32>,
    /// Looks at which the core must be free before the thread goes back.
    patience: u32,
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
            free: None,
            patience: FREE_LOOKS,
        };
        self.entries().push(entry);
    }

    /// The calling thread, of a task, has started: it keeps its core, or goes back there.
    pub(super) fn started(&self) {
        let this = Tid::current();
        let mut entries = self.entries();
        let own = entries.iter_mut().filter(|entry| entry.guard.thread() == this);
        own.for_each(|entry| entry.always = false);
    }

    /// Looks at each thread, and relieves those that starve; returns what was done in words.
    fn look(&self, stopping: bool) -> Vec<String> {
        let looked: Vec<(Tid, CoreId, u8, bool)> = {
            let mut entries = self.entries();
            entries.retain(|entry| !entry.guard.has_ended());
            let due = entries
                .iter_mut()
                .filter(|entry| entry.always || stopping || entry.free.is_some());
            let one = |entry: &mut Entry| {
                let starves = entry.guard.starves();
                let concerns = starves || (entry.free.is_some() && !stopping);
                concerns.then(|| (entry.guard.thread(), entry.core, entry.priority, starves))
            };
            due.filter_map(one).collect()
        };
        // A real-time thread that enters itself does not wait for a look at all of /proc.
        let by = |(thread, core, priority, starves)| (thread, starves, filler(core, priority));
        let found: Vec<(Tid, bool, Option<String>)> = looked.into_iter().map(by).collect();
        let mut entries = self.entries();
        let notes = found.into_iter().filter_map(|(thread, starves, by)| {
            let entry = entries.iter_mut().find(|entry| entry.guard.thread() == thread)?;
            match starves {
                true => entry.relieve(by, stopping),
                false => entry.go_back(by.is_none()),
            }
        });
        notes.collect()
    }
}

impl Entry {
    /// Relieves the thread, which starves behind `by`; returns what was done in words.
    fn relieve(&mut self, by: Option<String>, stopping: bool) -> Option<String> {
        let by = match by {
            Some(by) => by,
            None if self.priority > TASK_PRIORITY => HIDDEN.into(),
            // Behind jobs of this run, which end.
            None if !stopping => return None,
            None => {
                self.guard.relieve();
                return None;
            }
        };
        self.free = Some(0);
        let how = match self.guard.relieve()? {
            Relief::AnyCore => "it may run on any core now",
            Relief::Ordinary => "nor could it on another, so it is an ordinary thread now",
        };
        let (role, core) = (&self.role, self.core);
        Some(format!("{role} could not run on core {core}, which {by} fills: {how}"))
    }

    /// Returns the thread to its core, which `is_free` at this look, once it has been for long.
    fn go_back(&mut self, is_free: bool) -> Option<String> {
        self.free = Some(if is_free { self.free? + 1 } else { 0 });
        if self.free < Some(self.patience) {
            return None;
        }
        (self.free, self.patience) = (None, (2 * self.patience).min(FREE_LOOKS_MAX));
        self.guard.restore(self.core, self.priority);
        Some(format!("{} went back to core {}", self.role, self.core))
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

#[cfg(test)]
mod tests {
    use punctual_platform::linux::thread::{Scheduling, allowed_cores, scheduling};

    use super::*;

    /// Entry of the calling thread.
    fn entry(priority: u8) -> Entry {
        let roster = Roster::default();
        roster.enter("thread of a test", allowed_cores()[0], priority);
        roster.entries().remove(0)
    }

    /// Each test changes the thread that it runs in.
    fn alone(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_thread_that_waits_for_jobs_of_its_run_is_left_alone_until_the_end() {
        alone(|| {
            let mut updater = entry(TASK_PRIORITY - 1);
            assert_eq!(updater.relieve(None, false), None);
            assert_eq!((updater.free, updater.guard.relieve()), (None, Some(Relief::AnyCore)));
            let mut control = entry(TASK_PRIORITY + 1);
            let note = control.relieve(None, false).unwrap();
            assert!(note.contains(HIDDEN), "{note}");
        });
    }

    #[test]
    fn a_thread_is_relieved_twice_and_told_of_as_often() {
        alone(|| {
            let mut entry = entry(TASK_PRIORITY);
            let told = [0; 4].map(|_| entry.relieve(Some("sh".into()), false).is_some());
            assert_eq!(told, [true, true, false, false]);
            assert_eq!(scheduling(Tid::current()), Ok(Scheduling::Other { nice: 0 }));
        });
    }

    #[test]
    fn a_thread_goes_back_to_a_free_core_and_waits_longer_each_time() {
        alone(|| {
            let cores = allowed_cores();
            let mut entry = entry(1);
            let mut looks = |patience: u32| {
                assert!(entry.relieve(Some("sh".into()), false).is_some());
                // A look at which the core is filled begins the count anew.
                assert_eq!((entry.go_back(true), entry.go_back(false)), (None, None));
                let back = (1..=patience).find(|_| entry.go_back(true).is_some());
                assert_eq!((back, entry.free), (Some(patience), None));
                assert_eq!(allowed_cores(), cores[..1]);
            };
            [10, 20, 40].into_iter().for_each(&mut looks);
        });
    }
}
