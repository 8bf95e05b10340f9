//! The expiry of records.
//!
//! **Method.** A record may expire (its `term`): at an instant by wall clocks (milliseconds since 1970), because no
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

use std::ops::Bound;

use crate::message::{Key, RESERVED};

/// Milliseconds since 1970, by the wall clock.
pub type Millis = u64;

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
