//! The notes and reasons of snapshots, encoded as the words of a [`SnapshotSlot`](crate::slot::SnapshotSlot).

use punctual_os::Tid;
use punctual_store::engine::{EndedBecause, EngineError, OpenSnapshot, Reader, SnapshotId};
use punctual_units::{Nanos, Time};

use crate::slot::{EndReason, Note, SnapshotSlot};

const NONE: u64 = u64::MAX;

/// Encodes the reader and the commit of a snapshot.
#[inline]
pub(crate) fn note(reader: Reader, commit: u64) -> Note {
    let instant = |at: Option<Time>| at.map_or(NONE, |at| at.0);
    [
        reader.thread.map_or(NONE, |thread| thread.0 as u32 as u64),
        instant(reader.taken_at),
        instant(reader.firm_until),
        commit,
    ]
}

/// The open snapshot in `slot`, decoded; `place` is the slot's number.
pub(crate) fn open_in<P>(slot: &SnapshotSlot<P>, place: u64) -> Option<OpenSnapshot> {
    let (ticket, [thread, taken_at, firm_until, commit]) = slot.look()?;
    let known = |word: u64| (word != NONE).then_some(word);
    let reader = Reader {
        thread: known(thread).map(|thread| Tid(thread as u32 as i32)),
        taken_at: known(taken_at).map(Time),
        firm_until: known(firm_until).map(Time),
        process: None,
    };
    let id = SnapshotId {
        place,
        generation: ticket.generation(),
    };
    Some(OpenSnapshot { id, reader, commit })
}

/// Encodes why a snapshot was ended, and at what age, for its reader's next call.
pub(crate) fn words(age: Nanos, why: EndedBecause) -> [u64; 2] {
    [age.0, why as u64]
}

/// Decodes `words` into the error that the reader of an ended snapshot gets.
#[cold]
pub(crate) fn refused(EndReason([age, why]): EndReason) -> EngineError {
    let why = usize::try_from(why)
        .ok()
        .and_then(|number| EndedBecause::ALL.get(number));
    EngineError::SnapshotEnded {
        age: Nanos(age),
        why: why.copied().unwrap_or(EndedBecause::Life),
    }
}
