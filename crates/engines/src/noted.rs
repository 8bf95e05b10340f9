//! What the engines note of a snapshot, in the words of its [`Slot`](crate::slot::Slot).

use punctual_os::Tid;
use punctual_store::engine::{EndedBecause, EngineError, OpenSnapshot, Reader, SnapshotId};
use punctual_units::{Nanos, Time};

use crate::slot::{Ended, Note, Slot};

const NONE: u64 = u64::MAX;

/// The note of a snapshot of `commit`.
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

/// The snapshot that is open in the slot at `place`.
pub(crate) fn open_in<P>(slot: &Slot<P>, place: u64) -> Option<OpenSnapshot> {
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

/// What the next call of a snapshot's reader is to be told.
pub(crate) fn words(age: Nanos, why: EndedBecause) -> [u64; 2] {
    let number = EndedBecause::ALL.iter().position(|one| *one == why);
    [age.0, number.map_or(NONE, |number| number as u64)]
}

/// What a reader is told whose snapshot was ended.
#[cold]
pub(crate) fn refused(Ended([age, why]): Ended) -> EngineError {
    let why = usize::try_from(why)
        .ok()
        .and_then(|number| EndedBecause::ALL.get(number));
    EngineError::SnapshotEnded {
        age: Nanos(age),
        why: why.copied().unwrap_or(EndedBecause::Life),
    }
}
