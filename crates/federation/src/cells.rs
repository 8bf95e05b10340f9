//! The interface between records and the interpreter of clients' commands, and the expiry of records.
//!
//! **Problem.** Clients send some seventy commands. Their meaning is known to the crate that speaks the clients'
//! protocol, which is above this one; the place of records and the limits of a transaction are known here.
//!
//! **Method.** A node's store gets an [`Interpreter`]: two functions, which carry a command out on [`Cells`]. The
//! master alone executes a command, and the log has its changes, as of every transaction.
//!
//! **Terms.** A record may expire (its `term`): at an instant by wall clocks (milliseconds since 1970), because no
//! other clock is the same on several machines. The master sets the instant, as a record of its own beside the
//! client's, so all nodes have the same instants at the same revision. A node does not show a record any more once
//! *its* clock has reached the instant, and a transaction of the master's removes the record: the first of a client's
//! that writes, or one that the master makes by itself. So nodes whose clocks differ by d cease to show it within d of
//! each other; and the master's clock alone decides what a transaction sees.
//!
//! **A clock that is set back** stands still for expiry until it has reached its former time again: the master records
//! its time with each expiry that it sets, and with each that a transaction found passed, and no node counts from an
//! earlier time. So records stay longer, never shorter, and a record that a node has ceased to show is not shown again
//! by that node until it restarts. A clock that is set forward makes records expire early.

use std::ops::{Bound, ControlFlow};

use punctual_store::{Freshness, StoreError};
use punctual_units::Nanos;

use crate::message::{ClientCommand, Key, RESERVED, Value};

/// Milliseconds since 1970, by the wall clock.
pub type Millis = u64;

/// Receives the value of a record.
pub type ValueCallback<'s> = &'s mut dyn FnMut(&[u8]);
/// Receives each key, and says whether to continue.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8]) -> ControlFlow<()>;

/// Records that a command reads.
pub trait Cells {
    /// The instant of this transaction, by which expiry is judged.
    fn now(&self) -> Millis;

    /// Calls `look` with the value of `key`; returns whether there is one. An expired record is there until it is
    /// removed.
    ///
    /// # Errors
    /// Those of the store.
    fn show(&self, key: &[u8], look: ValueCallback<'_>) -> Result<bool, StoreError>;

    /// The instant at which the record `key` expires; `None`: never.
    ///
    /// # Errors
    /// Those of the store.
    fn term(&self, key: &[u8]) -> Result<Option<Millis>, StoreError>;

    /// The value of a temporal object.
    ///
    /// # Errors
    /// Those of the store.
    fn reading(&self, key: &[u8], max_age: Nanos) -> Result<Freshness<Vec<u8>>, StoreError>;

    /// Calls `visit` with the keys of clients in ascending order.
    ///
    /// # Errors
    /// Those of the store.
    fn keys(&self, from: Bound<&[u8]>, visit: Visit<'_>) -> Result<(), StoreError>;
}

/// Records that a command changes.
pub trait CellsMut: Cells {
    /// Sets a record, which expires at `term`; `None`: never.
    ///
    /// # Errors
    /// Those of the store.
    fn set(&mut self, key: &[u8], value: &[u8], term: Option<Millis>) -> Result<(), StoreError>;

    /// Changes the expiry of an existing record; returns whether it exists.
    ///
    /// # Errors
    /// Those of the store.
    fn set_term(&mut self, key: &[u8], term: Option<Millis>) -> Result<bool, StoreError>;

    /// Removes a record; returns whether it existed.
    ///
    /// # Errors
    /// Those of the store.
    fn remove(&mut self, key: &[u8]) -> Result<bool, StoreError>;
}

/// The functions that carry out commands. The reply is bytes of the clients' protocol; an error of the store undoes the
/// transaction.
#[derive(Clone, Copy, Debug)]
pub struct Interpreter {
    /// Carries out a command that changes nothing.
    pub look: fn(&dyn Cells, &ClientCommand) -> Result<Value, StoreError>,
    /// Carries out any command, also one that changes records.
    pub change: fn(&mut dyn CellsMut, &ClientCommand) -> Result<Value, StoreError>,
}

/// Index by expiry, after this prefix: instant, then key.
const DUE: [u8; 2] = [RESERVED, b'd'];
/// Prefix of the records that map a key to its expiry.
const TERM: [u8; 2] = [RESERVED, b't'];
/// Key of the latest time that a master has recorded.
pub(crate) const CLOCK: [u8; 2] = [RESERVED, b'c'];

/// Key of the record with the expiry of `key`.
pub(crate) fn term_key(key: &[u8]) -> Key {
    [&TERM[..], key].concat()
}

/// Key of the index entry for `key`, which expires at `end`.
pub(crate) fn due_key(end: Millis, key: &[u8]) -> Key {
    [&DUE[..], &end.to_be_bytes(), key].concat()
}

/// The range of all index entries that are due by `now`.
pub(crate) fn due_range(now: Millis) -> (Key, Key) {
    (DUE.to_vec(), [&DUE[..], &now.saturating_add(1).to_be_bytes()].concat())
}

/// Instant and key of an index entry.
pub(crate) fn of_due(entry: &[u8]) -> Option<(Millis, &[u8])> {
    let (end, key) = entry.strip_prefix(&DUE[..])?.split_first_chunk()?;
    Some((Millis::from_be_bytes(*end), key))
}

/// Decodes a recorded instant.
pub(crate) fn instant(value: &[u8]) -> Option<Millis> {
    Some(Millis::from_be_bytes(*value.first_chunk()?))
}

/// The first key that clients may have.
pub(crate) const FIRST: [u8; 1] = [RESERVED + 1];

/// The bound `from`, or [`FIRST`] if that is higher.
pub(crate) fn from_first(from: Bound<&[u8]>) -> Bound<&[u8]> {
    match from {
        Bound::Included(key) | Bound::Excluded(key) if key >= &FIRST[..] => from,
        _ => Bound::Included(&FIRST[..]),
    }
}
