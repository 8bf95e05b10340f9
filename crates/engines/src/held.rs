//! Snapshots of an engine without reader slots of its own: each snapshot has a slot in memory while it lives.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_store::engine::{EndedBecause, EngineError, OpenSnapshot, SnapshotId};
use punctual_units::Nanos;

use crate::noted::{open_in, refused, words};
use crate::slot::{EndOutcome, Inside, Note, SnapshotSlot, Ticket};

/// All open snapshots of an engine.
#[derive(Debug)]
pub(crate) struct Snapshots<P>(Arc<Mutex<Open<P>>>);

#[derive(Debug)]
struct Open<P> {
    slots: BTreeMap<u64, Arc<SnapshotSlot<P>>>,
    next: u64,
}

/// An open snapshot: keeps its pin until it is dropped or ended.
#[derive(Debug)]
pub(crate) struct PinnedSnapshot<P> {
    slot: Arc<SnapshotSlot<P>>,
    place: u64,
    ticket: Ticket,
    open: Arc<Mutex<Open<P>>>,
    /// Number of calls and of scans that lend a record: while it is above 0, the reader is inside of the slot. The cell
    /// makes the type `!Sync`: one thread at a time makes calls.
    depth: Cell<usize>,
}

/// A call of a snapshot's reader.
pub(crate) struct Call<'c, P> {
    snapshot: &'c PinnedSnapshot<P>,
    inside: Inside<'c, P>,
}

impl<P> Call<'_, P> {
    #[inline]
    pub(crate) fn with<T>(&self, look: impl FnOnce(&P) -> T) -> T {
        self.inside.with(look)
    }

    /// The call goes on until the snapshot [leaves](PinnedSnapshot::leave).
    #[cfg(feature = "redb")]
    #[inline]
    pub(crate) fn stay(self) {
        std::mem::forget(self);
    }
}

impl<P> Drop for Call<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.snapshot.leave();
    }
}

impl<P> Default for Snapshots<P> {
    fn default() -> Snapshots<P> {
        let slots = BTreeMap::new();
        Snapshots(Arc::new(Mutex::new(Open { slots, next: 0 })))
    }
}

/// A poisoned lock is usable: slots are added and removed by one call each, so a panic elsewhere leaves nothing half
/// done.
fn locked<P>(open: &Mutex<Open<P>>) -> MutexGuard<'_, Open<P>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P> Snapshots<P> {
    pub(crate) fn open(&self, pin: P, note: Note) -> PinnedSnapshot<P> {
        let slot = Arc::new(SnapshotSlot::<P>::default());
        let ticket = slot.claim();
        let ticket = ticket.unwrap_or_else(|| unreachable!("no other thread has seen this slot yet"));
        slot.open(ticket, pin, note);
        let mut open = locked(&self.0);
        let place = open.next;
        open.next += 1;
        open.slots.insert(place, Arc::clone(&slot));
        PinnedSnapshot {
            slot,
            place,
            ticket,
            open: Arc::clone(&self.0),
            depth: Cell::new(0),
        }
    }

    /// Snapshots that are open and have not been ended.
    pub(crate) fn all(&self) -> Vec<OpenSnapshot> {
        let open = locked(&self.0);
        let slots = open.slots.iter();
        slots.filter_map(|(place, slot)| open_in(slot, *place)).collect()
    }

    /// Ends a snapshot, see [`Engine::end`](punctual_store::engine::Engine::end).
    pub(crate) fn end(&self, snapshot: SnapshotId, age: Nanos, why: EndedBecause) -> bool {
        // Outside of the lock: freeing the pages that a pin keeps takes a while.
        let slot = locked(&self.0).slots.get(&snapshot.place).cloned();
        let ended = slot.map(|slot| slot.end(Ticket::of(snapshot.generation), words(age, why)));
        matches!(ended, Some(EndOutcome::Done | EndOutcome::Asked))
    }
}

impl<P> PinnedSnapshot<P> {
    /// Begins a call of the reader; refused once another thread has ended the snapshot.
    pub(crate) fn enter(&self) -> Result<Call<'_, P>, EngineError> {
        let inside = match self.depth.get() {
            0 => self.slot.enter(self.ticket).map_err(refused)?.stay(),
            _ => self.slot.again(self.ticket),
        };
        self.depth.set(self.depth.get() + 1);
        Ok(Call { snapshot: self, inside })
    }

    /// Ends a call, or the lending of a record.
    pub(crate) fn leave(&self) {
        self.depth.set(self.depth.get() - 1);
        if self.depth.get() == 0 {
            self.slot.leave(self.ticket);
        }
    }

    /// Whether another thread has asked the reader, inside of a call, to give up the snapshot.
    #[cfg(feature = "redb")]
    pub(crate) fn is_asked(&self) -> bool {
        self.slot.is_asked()
    }
}

impl<P> Drop for PinnedSnapshot<P> {
    fn drop(&mut self) {
        if self.depth.get() > 0 {
            self.slot.leave(self.ticket); // a scan was forgotten, and cannot be used any more
        }
        self.slot.close(self.ticket);
        locked(&self.open).slots.remove(&self.place);
    }
}
