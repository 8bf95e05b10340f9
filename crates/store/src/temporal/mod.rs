//! Temporal objects: values that sensors report, each with the time for which to believe it.
//!
//! **Terms.** A temporal object is updated by the readings of one sensor. Its *absolute validity interval* (avi) says
//! how long a sample may be believed: it is *fresh* while now - sampled-at <= avi. The *fresh share* is the part of
//! all objects that are fresh, at any instant; an object without a value is not fresh.
//!
//! **Storage.** In memory first, in one [`Slot`] each, which a reader copies in a few dozen nanoseconds and a group
//! commit writes to the engine at intervals. Or in the engine, each update in a write transaction of its own. In the
//! second case the slot keeps the sample only, so that the fresh share stays cheap. A mapped file may stand in for the
//! group commits (`mapped.rs`).

mod created;
mod index;
mod mapped;
mod objects;
mod record;
mod slot;
#[cfg(test)]
mod slot_tests;
mod suspension;

/// The types that `slot.rs` needs: the model checker substitutes its own (`tests/slot.rs`).
mod atomics {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
}

pub(crate) use mapped::MappedObjects;
pub(crate) use objects::Objects;
pub use objects::{Creation, ObjectSpec};
pub(crate) use record::encode;
pub use record::{ClockOrigin, decode};
pub use slot::{Installation, Installs, Overwritten, ReadingBuffer, Sample, Slot};
pub(crate) use suspension::{Suspensions, Translation, ahead, on_clock_of_ages};
