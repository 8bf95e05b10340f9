//! Runs a thread of the caller on an exclusive core: an audio callback of another library, a driver's thread.

use std::sync::{Arc, Mutex, PoisonError};

use punctual_platform::Refusal;
use punctual_platform::linux::exclusive::ExclusiveCore;
use punctual_platform::linux::thread::{AsFound, Guests, Scheduling, pin_thread, set_scheduling};
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
    kept: bool,
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

impl CorePin {
    /// Leaves the thread on its core until the runtime ends; returns its protections.
    pub(super) fn keep(&mut self) -> Vec<Protection> {
        self.kept = true;
        std::mem::take(&mut self.obtained)
    }
}

impl Drop for CorePin {
    fn drop(&mut self) {
        if !self.kept {
            self.place.give_back();
        }
    }
}

/// State of the thread to restore; `None` once it has been restored.
#[derive(Debug)]
pub(super) struct SavedThread(Mutex<Option<ThreadState>>);

#[derive(Debug)]
struct ThreadState {
    found: AsFound,
    exclusive: Option<ExclusiveCore>,
    /// Means of changing a thread of another program; `None`: the thread is one of this process.
    guests: Option<Guests>,
}

impl ThreadState {
    fn pin(&self, core: CoreId) -> Result<(), Refusal> {
        match &self.guests {
            Some(guests) => guests.pin(&self.found, core),
            None => pin_thread(self.found.thread(), &[core]),
        }
    }

    fn set_priority(&self, priority: u8) -> Result<(), Refusal> {
        match &self.guests {
            Some(guests) => guests.real_time(self.found.thread(), priority),
            None => set_scheduling(self.found.thread(), Scheduling::Fifo(priority)),
        }
    }
}

impl SavedThread {
    /// Pins the thread of `found` to `core`, with this SCHED_FIFO priority; `guests` changes it if another program has
    /// it. A refusal is reported, and the thread runs without that protection. `told` is an earlier refusal.
    pub(super) fn seat(
        name: &str,
        (found, guests): (AsFound, Option<Guests>),
        core: CoreId,
        exclusive: Option<ExclusiveCore>,
        priority: u8,
        told: Option<Protection>,
    ) -> (Arc<SavedThread>, CorePin) {
        let entered = exclusive.as_ref().map_or(Ok(()), |core| core.enter(found.thread()));
        let alone = if exclusive.is_some() { ", exclusively" } else { "" };
        let state = ThreadState {
            found,
            exclusive,
            guests,
        };
        let pinned = entered.and_then(|()| state.pin(core));
        let fifo = state.set_priority(priority);
        let is_exclusive = state.exclusive.is_some() && pinned.is_ok();
        let mut obtained: Vec<Protection> = told.into_iter().collect();
        obtained.push(protection(format!("{name}: on core {core}{alone}"), pinned));
        obtained.push(protection(format!("{name}: SCHED_FIFO {priority}"), fifo));
        let place = Arc::new(SavedThread(Mutex::new(Some(state))));
        let seated = CorePin {
            core,
            exclusive: is_exclusive,
            obtained,
            place: Arc::clone(&place),
            kept: false,
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
            let _ = held.set_priority(priority);
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
        match &held.guests {
            Some(guests) => guests.put_back(held.found.thread()),
            None => held.found.put_back(),
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<ThreadState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
