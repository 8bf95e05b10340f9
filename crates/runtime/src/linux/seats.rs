//! Runs a thread of the caller on an exclusive core: an audio callback of another library, a driver's thread.

use std::sync::{Arc, Mutex, PoisonError};

use punctual_platform::linux::exclusive::ExclusiveCore;
use punctual_platform::linux::thread::{AsFound, Scheduling, pin_thread, set_scheduling};
use punctual_units::CoreId;

use super::shared::protection;
use crate::report::Protection;

/// A thread of the caller on the core that it was given. Dropping this, or the end of the runtime, restores the
/// thread's affinity, policy and priority.
#[derive(Debug)]
pub struct CorePin {
    core: CoreId,
    exclusive: bool,
    obtained: Vec<Protection>,
    place: Arc<SavedThread>,
}

impl CorePin {
    /// Core on which the thread runs.
    pub fn core(&self) -> CoreId {
        self.core
    }

    /// Whether all other threads are kept off the core.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// Protections of the thread: obtained ones, and refused ones with the reason.
    pub fn obtained(&self) -> &[Protection] {
        &self.obtained
    }
}

impl Drop for CorePin {
    fn drop(&mut self) {
        self.place.give_back();
    }
}

/// State of the thread to restore; `None` once it has been restored.
#[derive(Debug)]
pub(super) struct SavedThread(Mutex<Option<ThreadState>>);

#[derive(Debug)]
struct ThreadState {
    found: AsFound,
    exclusive: Option<ExclusiveCore>,
}

impl SavedThread {
    /// Pins the thread of `found` to `core`, with this SCHED_FIFO priority. A refusal is reported, and the thread runs
    /// without that protection. `told` is an earlier refusal.
    pub(super) fn seat(
        name: &str,
        found: AsFound,
        core: CoreId,
        exclusive: Option<ExclusiveCore>,
        priority: u8,
        told: Option<Protection>,
    ) -> (Arc<SavedThread>, CorePin) {
        let entered = exclusive.as_ref().map_or(Ok(()), |core| core.enter(found.thread()));
        let pinned = entered.and_then(|()| pin_thread(found.thread(), &[core]));
        let alone = if exclusive.is_some() { ", exclusively" } else { "" };
        let fifo = set_scheduling(found.thread(), Scheduling::Fifo(priority));
        let is_exclusive = exclusive.is_some() && pinned.is_ok();
        let mut obtained: Vec<Protection> = told.into_iter().collect();
        obtained.push(protection(format!("{name}: on core {core}{alone}"), pinned));
        obtained.push(protection(format!("{name}: SCHED_FIFO {priority}"), fifo));
        let place = Arc::new(SavedThread(Mutex::new(Some(ThreadState { found, exclusive }))));
        let seated = CorePin {
            core,
            exclusive: is_exclusive,
            obtained,
            place: Arc::clone(&place),
        };
        (place, seated)
    }

    /// Whether the thread is still on its core.
    pub(super) fn is_taken(&self) -> bool {
        self.held().is_some()
    }

    /// Sets the priority anew, after a change of the tasks beside the thread.
    pub(super) fn set_priority(&self, priority: u8) {
        if let Some(held) = &*self.held() {
            let _ = set_scheduling(held.found.thread(), Scheduling::Fifo(priority));
        }
    }

    /// Restores the thread, once only. Also releases the core, because dropping the last handle on it ends the sweep
    /// for other threads.
    pub(super) fn give_back(&self) {
        let Some(held) = self.held().take() else { return };
        if let Some(core) = &held.exclusive {
            // Fails for a thread that has ended, which has left the core already.
            let _ = core.leave(held.found.thread());
        }
        held.found.put_back();
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<ThreadState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
