//! A thread of the caller's own on an exclusive core: an audio callback of another library, a driver's thread.

use std::sync::{Arc, Mutex, PoisonError};

use punctual_platform::linux::exclusive::ExclusiveCore;
use punctual_platform::linux::thread::{AsFound, Scheduling, pin_thread, set_scheduling};
use punctual_units::CoreId;

use super::shared::protection;
use crate::report::Protection;

/// A thread on the core that it was given. Dropping this, or the end of the runtime, gives the thread back its
/// affinity, policy and priority.
#[derive(Debug)]
pub struct Seated {
    core: CoreId,
    exclusive: bool,
    obtained: Vec<Protection>,
    place: Arc<Place>,
}

impl Seated {
    /// The core.
    pub fn core(&self) -> CoreId {
        self.core
    }

    /// Whether all other threads are kept off the core.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// What the thread obtained, and what was refused.
    pub fn obtained(&self) -> &[Protection] {
        &self.obtained
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.place.give_back();
    }
}

/// What is to be put back; `None` once it has been.
#[derive(Debug)]
pub(super) struct Place(Mutex<Option<Held>>);

#[derive(Debug)]
struct Held {
    found: AsFound,
    exclusive: Option<ExclusiveCore>,
}

impl Place {
    /// Seats the thread of `found` on `core`, at this priority of SCHED_FIFO. What is refused is told, and the
    /// thread goes on without it. `told` is what was refused before.
    pub(super) fn seat(
        name: &str,
        found: AsFound,
        core: CoreId,
        exclusive: Option<ExclusiveCore>,
        priority: u8,
        told: Option<Protection>,
    ) -> (Arc<Place>, Seated) {
        let entered = exclusive.as_ref().map_or(Ok(()), |core| core.enter(found.thread()));
        let pinned = entered.and_then(|()| pin_thread(found.thread(), &[core]));
        let alone = if exclusive.is_some() { ", exclusively" } else { "" };
        let fifo = set_scheduling(found.thread(), Scheduling::Fifo(priority));
        let is_exclusive = exclusive.is_some() && pinned.is_ok();
        let mut obtained: Vec<Protection> = told.into_iter().collect();
        obtained.push(protection(format!("{name}: on core {core}{alone}"), pinned));
        obtained.push(protection(format!("{name}: SCHED_FIFO {priority}"), fifo));
        let place = Arc::new(Place(Mutex::new(Some(Held { found, exclusive }))));
        let seated = Seated {
            core,
            exclusive: is_exclusive,
            obtained,
            place: Arc::clone(&place),
        };
        (place, seated)
    }

    /// Whether the thread is there still.
    pub(super) fn is_taken(&self) -> bool {
        self.held().is_some()
    }

    /// Follows a change of the tasks beside it.
    pub(super) fn set_priority(&self, priority: u8) {
        if let Some(held) = &*self.held() {
            let _ = set_scheduling(held.found.thread(), Scheduling::Fifo(priority));
        }
    }

    /// Once only. The core is let go as well: with the last handle on it the sweep for other threads ends.
    pub(super) fn give_back(&self) {
        let Some(held) = self.held().take() else { return };
        if let Some(core) = &held.exclusive {
            // A thread that has ended has left.
            let _ = core.leave(held.found.thread());
        }
        held.found.put_back();
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
