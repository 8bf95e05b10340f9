//! Records as the interpreter of clients' commands sees them, and until when they are kept.
//!
//! **Problem.** Clients say some seventy commands. What each does is known to the room that speaks their protocol,
//! which is above this one; where records are and what a transaction may do is known here.
//!
//! **Method.** A node's store is given an [`Interpreter`]: two functions, which carry a command out on [`Cells`]. A
//! command is executed by the master alone, and the log has what it wrote, as of every transaction.
//!
//! **Terms.** A record may have an end: an instant by the clocks that persons set (milliseconds since 1970), because no
//! other clock is the same on several machines. The master sets it, as a record of its own beside the client's, so all
//! nodes have the same terms at the same revision. A node does not show a record any more once *its* clock has come to
//! the end, and the record is removed by a transaction of the master's: the first of a client's that writes, or one
//! that the master makes by itself. So nodes whose clocks differ by d cease to show it within d of each other; and what
//! a transaction sees is decided by the master's clock alone.
//!
//! **A clock that is set back** stands still for terms until it has come to where it was: the master writes down its
//! time with each term that it gives, and with each that a transaction found at its end, and no node counts from an
//! earlier one. So
//! records stay longer, never shorter, and what was not shown once is not shown again by that node until it starts
//! anew.
//! A clock that is set forward ends terms early.

use std::ops::{Bound, ControlFlow};

use punctual_store::{Freshness, StoreError};
use punctual_units::Nanos;

use crate::message::{Command, Key, RESERVED, Value};

/// Milliseconds since 1970, by a clock that persons set.
pub type Millis = u64;

/// What a reader is shown of a record.
pub type Shown<'s> = &'s mut dyn FnMut(&[u8]);
/// What a reader does with each key.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8]) -> ControlFlow<()>;

/// Records that are read.
pub trait Cells {
    /// The instant of this transaction.
    fn now(&self) -> Millis;

    /// Shows the value of `key`; whether there is one. One whose term has ended is there until it is removed.
    ///
    /// # Errors
    /// Those of the store.
    fn show(&self, key: &[u8], look: Shown<'_>) -> Result<bool, StoreError>;

    /// When the record `key` ends.
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

/// Records that are changed.
pub trait CellsMut: Cells {
    /// Sets a record, which ends at `term`.
    ///
    /// # Errors
    /// Those of the store.
    fn set(&mut self, key: &[u8], value: &[u8], term: Option<Millis>) -> Result<(), StoreError>;

    /// Gives a record that is there another term; whether it is there.
    ///
    /// # Errors
    /// Those of the store.
    fn set_term(&mut self, key: &[u8], term: Option<Millis>) -> Result<bool, StoreError>;

    /// Removes a record; whether it was there.
    ///
    /// # Errors
    /// Those of the store.
    fn remove(&mut self, key: &[u8]) -> Result<bool, StoreError>;
}

/// What carries out commands. The reply is bytes of the clients' protocol; an error of the store undoes the
/// transaction.
#[derive(Clone, Copy, Debug)]
pub struct Interpreter {
    /// Carries out one that changes nothing.
    pub look: fn(&dyn Cells, &Command) -> Result<Value, StoreError>,
    /// Carries out any.
    pub change: fn(&mut dyn CellsMut, &Command) -> Result<Value, StoreError>,
}

/// From an end and a key, in that order: what is due.
const DUE: [u8; 2] = [RESERVED, b'd'];
/// From a key to its end.
const TERM: [u8; 2] = [RESERVED, b't'];
/// The latest time that a master has written down.
pub(crate) const CLOCK: [u8; 2] = [RESERVED, b'c'];

/// Where a record's end is.
pub(crate) fn term_key(key: &[u8]) -> Key {
    [&TERM[..], key].concat()
}

/// Where it is found by its end.
pub(crate) fn due_key(end: Millis, key: &[u8]) -> Key {
    [&DUE[..], &end.to_be_bytes(), key].concat()
}

/// All that is due by `now`.
pub(crate) fn due_range(now: Millis) -> (Key, Key) {
    (DUE.to_vec(), [&DUE[..], &now.saturating_add(1).to_be_bytes()].concat())
}

/// The end and the key of an entry of what is due.
pub(crate) fn of_due(entry: &[u8]) -> Option<(Millis, &[u8])> {
    let (end, key) = entry.strip_prefix(&DUE[..])?.split_first_chunk()?;
    Some((Millis::from_be_bytes(*end), key))
}

/// An instant as it is written down.
pub(crate) fn instant(value: &[u8]) -> Option<Millis> {
    Some(Millis::from_be_bytes(*value.first_chunk()?))
}

/// The first key that clients may have.
pub(crate) const FIRST: [u8; 1] = [RESERVED + 1];

/// Not before [`FIRST`].
pub(crate) fn from_first(from: Bound<&[u8]>) -> Bound<&[u8]> {
    match from {
        Bound::Included(key) | Bound::Excluded(key) if key >= &FIRST[..] => from,
        _ => Bound::Included(&FIRST[..]),
    }
}
