//! Snapshots of an engine without reader slots of its own: each snapshot has a slot in memory while it lives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_store::engine::{EndedBecause, EngineError, OpenSnapshot, SnapshotId};
use punctual_units::Nanos;

use crate::noted::{open_in, refused, words};
use crate::slot::{Call, EndOutcome, Note, SlotReader, SnapshotSlot, Ticket};

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
    pub(crate) reader: SlotReader<Arc<SnapshotSlot<P>>>,
    place: u64,
    open: Arc<Mutex<Open<P>>>,
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
        let reader = SlotReader::open(Arc::clone(&slot), ticket, pin, note);
        let mut open = locked(&self.0);
        let place = open.next;
        open.next += 1;
        open.slots.insert(place, slot);
        PinnedSnapshot {
            reader,
            place,
            open: Arc::clone(&self.0),
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
        self.reader.enter().map_err(refused)
    }
}

impl<P> Drop for PinnedSnapshot<P> {
    fn drop(&mut self) {
        self.reader.close();
        locked(&self.open).slots.remove(&self.place);
    }
}
