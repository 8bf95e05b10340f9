//! The interface between the store and a storage engine: ordered tables, snapshots, one write transaction at a time.
//!
//! The engine keeps bytes; deadlines, freshness and admission live above it. Four small traits: an [`Engine`] hands
//! out snapshots ([`Read`]) and write transactions ([`Write`]), and both begin scans ([`Cursor`]). They are generic
//! over the lifetime of a borrow, so that an engine can be wrapped by another one. The emulated CPU clock is such a
//! decorator: it stretches each call by real work.
//!
//! **Bytes are lent, not handed out.** A read calls a closure with the value; a scan lends one record at a time.
//! Callers that keep them get copies in reused buffers ([`Value`]).
//!
//! **A snapshot may be ended by another thread** ([`Engine::end`]): from then on it keeps nothing from reuse, and each
//! call on it is refused ([`EngineError::SnapshotEnded`]). While a cursor of it lends a record, its thread is inside of
//! a call: the end takes effect at the cursor's next step.
//!
//! **Isolation.** A snapshot sees the commits before the instant at which it was taken, and nothing else, until it is
//! dropped. A write transaction sees the latest commit and its own changes. Write transactions run one at a time, hence
//! every history is serializable in commit order. The conformance suite of `punctual-testing` checks all of this on any
//! engine.
//!
//! **Keys** have 1 to [`KEY_MAX_LEN`] bytes and are ordered bytewise. A key of any other length cannot exist: reading
//! or deleting it finds nothing, writing it is an error. Values have 0 to [`VALUE_MAX_LEN`] bytes.

mod error;
mod files;
mod reader;

use std::ops::Bound;
use std::path::Path;

pub use error::EngineError;
pub use files::{CopyCount, FileEngine, TransferError};
use punctual_units::Nanos;
pub use punctual_workload::{Durability, StoreCheck};
pub use reader::{EndedBecause, Holder, OpenSnapshot, Reader, SnapshotId, Space};

use crate::Value;

/// The longest key that every engine takes, in bytes (LMDB's compiled-in limit).
pub const KEY_MAX_LEN: usize = 511;

/// The longest value that every engine takes, in bytes: LMDB's limit, less a checksum.
pub const VALUE_MAX_LEN: usize = u32::MAX as usize - size_of::<u32>();

/// A range of keys: lower and upper bound. Bounds may be bytes of any length, the empty string included.
pub type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A range of keys with bounds of its own.
pub type OwnedRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Copies the bounds of a range.
pub fn owned((low, high): KeyRange<'_>) -> OwnedRange {
    (low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec))
}

/// Borrows the bounds of a range.
pub fn borrowed((low, high): &OwnedRange) -> KeyRange<'_> {
    (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice))
}

/// A key and its value.
pub type Record<'r> = (&'r [u8], &'r [u8]);

/// The two keyspaces of a store. Engines keep metadata of their own (a format version) beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// Records that transactions write.
    Data,
    /// Temporal objects, written by sensor updates only.
    Temporal,
}

/// Storage for ordered records. A thread may have several snapshots at a time, of one commit or of several.
pub trait Engine: Send + Sync {
    /// A read-only view of one commit.
    type Snapshot<'e>: Read
    where
        Self: 'e;
    /// A write transaction; dropping it aborts it.
    type Write<'e>: Write
    where
        Self: 'e;

    /// A view of the latest commit; [`snapshots`](Engine::snapshots) reports `reader` with it.
    ///
    /// # Errors
    /// [`EngineError::ReadersFull`], and failures of the engine.
    fn snapshot_for(&self, reader: Reader) -> Result<Self::Snapshot<'_>, EngineError>;

    /// A view of the latest commit, of a reader of which nothing is known.
    ///
    /// # Errors
    /// Those of [`snapshot_for`](Engine::snapshot_for).
    fn snapshot(&self) -> Result<Self::Snapshot<'_>, EngineError> {
        self.snapshot_for(Reader::UNKNOWN)
    }

    /// The snapshots that are open and have not been ended, in no order.
    fn snapshots(&self) -> Vec<OpenSnapshot>;

    /// Ends a snapshot of age `age`: from now on it keeps nothing from reuse, or, if its thread is inside of a call
    /// right now, from the end of that call on. The reader's next call fails with the reason `why`. Returns false if
    /// the snapshot is no longer open, or an earlier call has ended it so.
    fn end(&self, snapshot: SnapshotId, age: Nanos, why: EndedBecause) -> bool;

    /// Whether even deletes may soon find no room unless snapshots are ended. O(1): called often.
    fn is_tight(&self) -> bool {
        false
    }

    /// Room in the engine, taken and free. Costs time in proportion to the free pages: not for every transaction.
    ///
    /// # Errors
    /// Failures of the engine.
    fn space(&self) -> Result<Space, EngineError>;

    /// Begins a write transaction; waits, without bound, while another one is open. The store's [write
    /// lock](crate::permit) in front of it bounds the wait.
    ///
    /// # Errors
    /// Failures of the engine.
    fn write(&self) -> Result<Self::Write<'_>, EngineError>;

    /// Makes every commit before this call durable.
    ///
    /// # Errors
    /// [`EngineError::Volatile`] for a volatile store, where later commits would undo it; [`EngineError::SyncFailed`],
    /// then and from every later call until the store is opened again. After an error nothing is promised.
    fn sync(&self) -> Result<(), EngineError>;

    /// The durability level that the engine was opened with.
    fn durability(&self) -> Durability;

    /// Path of the records, for messages.
    fn path(&self) -> &Path;

    /// Whether another process writes the records, and this one never does.
    fn is_written_elsewhere(&self) -> bool {
        false
    }
}

/// Reads, from a snapshot or within a write transaction.
pub trait Read {
    /// Records in the order of their keys, ascending or descending. Other reads may come in between.
    type Cursor<'t>: Cursor
    where
        Self: 't;

    /// Calls `look` with the value of `key`, without a copy where the engine allows that, and returns the answer of
    /// `look`; `None` if there is no such record. The bytes stay valid until `look` returns, even if the snapshot is
    /// ended meanwhile. `look` may read from the same snapshot.
    ///
    /// # Errors
    /// [`EngineError::SnapshotEnded`]; failures of the engine.
    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError>;

    /// Begins a scan of the records whose keys lie in `range`, in descending order if `back`.
    ///
    /// # Errors
    /// [`EngineError::SnapshotEnded`]; failures of the engine.
    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<Self::Cursor<'_>, EngineError>;

    /// The value of `key`; `None` if there is no such record.
    ///
    /// # Errors
    /// Those of [`get_with`](Read::get_with).
    #[inline]
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, EngineError> {
        self.get_with(table, key, Value::of)
    }

    /// The records whose keys lie in `range`, in ascending order, each copied.
    ///
    /// # Errors
    /// Those of [`cursor`](Read::cursor).
    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<Scan<Self::Cursor<'_>>, EngineError> {
        self.cursor(table, range, false).map(Scan)
    }

    /// The records whose keys lie in `range`, in descending order, each copied.
    ///
    /// # Errors
    /// Those of [`cursor`](Read::cursor).
    fn scan_back(&self, table: Table, range: KeyRange<'_>) -> Result<Scan<Self::Cursor<'_>>, EngineError> {
        self.cursor(table, range, true).map(Scan)
    }
}

/// A scan that lends one record at a time.
pub trait Cursor {
    /// Steps to the next record; false at the end, and once a step has failed.
    ///
    /// # Errors
    /// [`EngineError::SnapshotEnded`]; failures of the engine.
    fn step(&mut self) -> Result<bool, EngineError>;

    /// Key and value of the record that the last step has reached; nothing if there is none. A cursor of a snapshot
    /// keeps the snapshot's pages while it lends a record: until the next step, or [`release`](Cursor::release).
    fn record(&self) -> Record<'_>;

    /// Lends the record no longer, so that the snapshot may be ended before the next step.
    fn release(&mut self) {}
}

/// The records of a cursor, each copied; the cursor lends none between two of them.
#[derive(Debug)]
pub struct Scan<C>(C);

impl<C: Cursor> Iterator for Scan<C> {
    type Item = Result<(Value, Value), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let stepped = self.0.step().map(|is_there| {
            let (key, value) = self.0.record();
            is_there.then(|| (Value::of(key), Value::of(value)))
        });
        self.0.release();
        stepped.transpose()
    }
}

/// Iterator over a range of a map, forwards or backwards: for engines and views that keep records in maps.
#[derive(Clone, Debug)]
pub enum DirectedRange<I> {
    /// Yields the records from the front of `I`.
    Ascending(I),
    /// Yields the records from the back of `I`.
    Descending(I),
}

impl<I: DoubleEndedIterator> Iterator for DirectedRange<I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        match self {
            DirectedRange::Ascending(records) => records.next(),
            DirectedRange::Descending(records) => records.next_back(),
        }
    }
}

impl<I: DoubleEndedIterator> DirectedRange<I> {
    /// Iterates over `records`, from their end if `back`.
    pub fn new(records: I, back: bool) -> DirectedRange<I> {
        if back {
            DirectedRange::Descending(records)
        } else {
            DirectedRange::Ascending(records)
        }
    }
}

/// Whether `range` can contain no key. `BTreeMap::range` panics on most of these.
pub fn is_empty_range(range: KeyRange<'_>) -> bool {
    match range {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Excluded(low) | Bound::Included(low), Bound::Excluded(high) | Bound::Included(high)) => low >= high,
        _ => false,
    }
}

/// Changes of records. Dropping a write transaction without a commit undoes all of it.
pub trait Write: Read {
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// [`EngineError::KeyLength`], [`EngineError::ValueLength`]: nothing happened, the transaction goes on. After any
    /// other error this transaction is lost and must be dropped (later calls fail with
    /// [`EngineError::TransactionLost`]); other transactions are not affected.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError>;

    /// Removes `key`; true if it was there.
    ///
    /// # Errors
    /// Failures of the engine: the transaction is lost and must be dropped.
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError>;

    /// Makes all changes visible, and as durable as [`Engine::durability`] promises.
    ///
    /// # Errors
    /// After an error nothing of the transaction is visible, now or after reopening.
    fn commit(self) -> Result<(), EngineError>;
}

/// The range of all keys that begin with `prefix`. The upper bound is kept in `end`, a buffer of the caller.
///
/// ```
/// use punctual_store::engine::prefix_range;
/// let mut end = Vec::new();
/// let range = prefix_range(b"room/", &mut end);
/// assert!(std::ops::RangeBounds::<[u8]>::contains(&range, b"room/1".as_slice()));
/// assert!(!std::ops::RangeBounds::<[u8]>::contains(&range, b"roon".as_slice()));
/// ```
pub fn prefix_range<'a>(prefix: &'a [u8], end: &'a mut Vec<u8>) -> KeyRange<'a> {
    // The least key beyond all extensions of the prefix: its last byte that is not 0xff, plus one.
    end.clear();
    end.extend_from_slice(prefix);
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    match end.last_mut() {
        Some(last) => {
            *last += 1;
            (Bound::Included(prefix), Bound::Excluded(end))
        }
        None => (Bound::Included(prefix), Bound::Unbounded),
    }
}
