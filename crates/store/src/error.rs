//! Errors of the store, each with its remedy.

use std::fmt;
use std::path::PathBuf;

use punctual_os::{Refusal, Tid};
use punctual_units::{Nanos, ObjectId, Revision};

use crate::batch::BatchBounds;
use crate::engine::{EngineError, KEY_MAX_LEN, TransferError};
use crate::permit::{WAITERS_MAX, WaitedFor};
use crate::store::{OBJECT_BYTES_MAX, OBJECT_LEN_MAX};
use crate::tables::NAME_MAX_LEN;
use crate::updates::OfferError;
use crate::watch::WATCHES_MAX;

/// The thread that holds the write lock, as a message shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Kernel thread id of the holder.
    pub thread: Tid,
    /// The thread's name, if the system reports one: the threads of a run have the names of their tasks.
    pub name: Option<String>,
    /// For how long it has held the lock.
    pub held: Nanos,
    /// The thread that kept the waiting one longest: this holder, or an earlier one.
    pub longest: WaitedFor,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {}", self.thread)?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        write!(f, " has held it for {}", self.held)?;
        let WaitedFor { thread, held, .. } = self.longest;
        if thread != self.thread {
            write!(f, ", thread {thread} held it before for {held}")?;
        }
        write!(f, ";")
    }
}

impl StoreError {
    /// An error that is not the store's, to pass through [`update`](crate::Store::update) and
    /// [`view`](crate::Store::view).
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
        StoreError::Other(error.into())
    }
}

/// Reason for which the store refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The engine failed or refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The store was not copied.
    #[error(transparent)]
    Transfer(Box<TransferError>),
    /// The update was refused.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// A firm deadline has passed; the transaction is undone.
    #[error("the transaction's firm deadline passed {late} ago: give it more time, or make the deadline soft")]
    DeadlinePassed {
        /// Time since the deadline, in nanoseconds.
        late: Nanos,
    },
    /// Other writers held the write lock for longer than the wait's bound.
    #[error(
        "the write lock was not free within {waited}: {holder} shorten its write transactions, or raise lock_wait_max"
    )]
    LockTimeout {
        /// The bound of the wait, which passed.
        waited: Nanos,
        /// The thread that held the lock when the wait ended.
        holder: LockHolder,
    },
    /// This thread has a write transaction open, or is within another call that changes the store: it would wait for
    /// itself.
    #[error("this thread has a write transaction of the store open already: commit it, or drop it, first")]
    NestedWrite,
    /// More than `WAITERS_MAX` threads would wait for the write lock.
    #[error("{WAITERS_MAX} threads wait for the write lock already: use fewer writing threads")]
    TooManyWaiters,
    /// The function that is called for each reader that is ended has panicked.
    #[error("the alarm for readers has panicked ({message}) and is not called again: mend it, and set it anew")]
    AlarmPanicked {
        /// Message of the panic.
        message: String,
    },
    /// A temporal object can only be changed by its sensor.
    #[error(
        "key {key}: this is a temporal object, its value comes from its sensor: offer a reading instead",
        key = key.escape_ascii()
    )]
    Temporal {
        /// Key of the temporal object.
        key: Vec<u8>,
    },
    /// Freshness was asked of a plain record, which has no age.
    #[error(
        "key {key}: this is no temporal object, so it has no age: register it when the store is opened, or use get",
        key = key.escape_ascii()
    )]
    NotTemporal {
        /// Key of the plain record.
        key: Vec<u8>,
    },
    /// No temporal object has this number.
    #[error("there is no temporal object {0}: use the ids that this store hands out")]
    UnknownObject(ObjectId),
    /// Two temporal objects were registered with one key.
    #[error("temporal object {key} is registered twice: give each its own key", key = key.escape_ascii())]
    DuplicateObject {
        /// The key that both have.
        key: Vec<u8>,
    },
    /// The engine holds a value of this temporal object that is longer than its registered maximum.
    #[error(
        "temporal object {key} holds {len} bytes and is registered for {max_len}: raise that (`max_len`, or `max_bytes` in the file of a server)",
        key = key.escape_ascii()
    )]
    ValueTooLong {
        /// Key of the temporal object.
        key: Vec<u8>,
        /// The length of the value in the engine, in bytes.
        len: usize,
        /// The registered maximum, in bytes.
        max_len: usize,
    },
    /// A key in the region of the store's own records.
    #[error(
        "key {key}: keys that begin with a zero byte and \"punctual/\" belong to the store: use another",
        key = key.escape_ascii()
    )]
    ReservedKey {
        /// The refused key, as it was given.
        key: Vec<u8>,
    },
    /// More temporal objects were created than the store has slots for.
    #[error(
        "there is room for {max} objects more than it was opened with: raise created_max (objects_max in files), on all nodes alike"
    )]
    TooManyObjects {
        /// Slots for objects created after the store was opened.
        max: usize,
    },
    /// More values in one call than can be installed together.
    #[error("at most {max} values are installed together: split them up, or put them into fewer objects")]
    TooManyTogether {
        /// Most values in one call.
        max: usize,
    },
    /// More than `WATCHES_MAX` watches would be open.
    #[error("there are {WATCHES_MAX} watches already: drop some, or watch a prefix in place of several keys")]
    TooManyWatches,
    /// A key whose length a record that expires cannot have.
    #[error("a record that expires has a key of 1 to {max} bytes, this one has {len}: use another, or put")]
    ExpiringKey {
        /// The key's length in bytes.
        len: usize,
        /// The longest allowed key, in bytes.
        max: usize,
    },
    /// A name that is empty, too long, or contains a zero byte.
    #[error(
        "table {name}: a name has 1 to {NAME_MAX_LEN} bytes, none of them zero: use another",
        name = name.escape_default()
    )]
    TableName {
        /// The refused name of the table.
        name: String,
    },
    /// A key whose length a record of this named table cannot have.
    #[error("a key of this table has 1 to {max} bytes, this one has {len}: use another, or a table of a shorter name")]
    TableKey {
        /// The key's length in bytes.
        len: usize,
        /// The longest key that this table allows, in bytes.
        max: usize,
    },
    /// A write transaction was begun on a store whose records come from a log.
    #[error("the records of this store come from a federation's log: write in a batch on its master")]
    Replicated,
    /// A batch or an entry of the log was given to a store whose records do not come from a log.
    #[error("this store is no replica: open it with `replicated`, or use a write transaction")]
    NotReplicated,
    /// The update mode would have the sensors of a replicated store write to its engine, out of the log's order.
    #[error("a replicated store takes its sensors' updates into memory: open it with update mode memory-first")]
    NotMemoryFirst,
    /// The file for the values of temporal objects cannot be used.
    #[error(transparent)]
    Mapped(#[from] Refusal),
    /// A mapped file was given to a store whose updates do not go into memory, or that may create objects.
    #[error("mapped objects need update mode memory-first, created_max 0, no replica: set that, or leave out the file")]
    CannotMap,
    /// The store is part of an unfinished copy from another node, and was opened as a whole one.
    #[error(
        "{path}: a part of a node's records, whose copy has not ended: start that node again, or take another node's store",
        path = path.display()
    )]
    Part {
        /// Folder of the unfinished store.
        path: PathBuf,
    },
    /// The image does not begin at the key where this store's records end.
    #[error("the image does not begin where this store ends: ask for the one behind {}",
        upto.as_ref().map_or("nothing".into(), |key| key.escape_ascii().to_string()))]
    Elsewhere {
        /// Last key up to which records are here; `None`: all records are.
        upto: Option<Vec<u8>>,
    },
    /// An entry of the log was given for a second time.
    #[error("the store is at revision {at}, revision {revision} has been applied already: leave it out")]
    AlreadyApplied {
        /// Revision of the entry that was applied last.
        at: Revision,
        /// Revision of the refused entry.
        revision: Revision,
    },
    /// Entries of the log are missing.
    #[error("the store is at revision {at}, revision {revision} does not follow: apply {} first", at.next())]
    NotNext {
        /// Revision of the entry that was applied last.
        at: Revision,
        /// Revision of the refused entry.
        revision: Revision,
    },
    /// The batch would exceed its bounds with this transaction.
    #[error(
        "{transactions} transactions with {bytes} bytes do not fit into a batch of at most {} transactions and {} \
         bytes: begin another batch, or write less in one transaction",
        bounds.transactions, bounds.bytes
    )]
    BatchFull {
        /// Number of transactions, this one included.
        transactions: usize,
        /// Bytes of their write sets, this one's included.
        bytes: usize,
        /// The bounds that the batch was begun with.
        bounds: BatchBounds,
    },
    /// A temporal object whose values would take more memory than one object may.
    #[error(
        "temporal object {key}: {history} values of {max_len} bytes are too much for one object: use at most {len} \
         bytes for a value and {all} bytes for all that it keeps",
        key = key.escape_ascii(), len = OBJECT_LEN_MAX, all = OBJECT_BYTES_MAX
    )]
    ObjectSize {
        /// Key of the object.
        key: Vec<u8>,
        /// Its longest value, in bytes.
        max_len: usize,
        /// Number of values that it keeps.
        history: usize,
    },
    /// A temporal object was registered under the key of a plain record, which it would hide.
    #[error(
        "key {key}: there is a plain record, which a temporal object would hide: delete it, or give the object another \
         key",
        key = key.escape_ascii()
    )]
    PlainRecord {
        /// Key of the record.
        key: Vec<u8>,
    },
    /// The lower bound of a range lies behind its upper bound.
    #[error("the range begins at {low} and ends before that, at {high}: exchange its bounds", low = low.escape_ascii(), high = high.escape_ascii())]
    ReversedRange {
        /// The lower bound, as a key of the table.
        low: Vec<u8>,
        /// The upper bound, as a key of the table.
        high: Vec<u8>,
    },
    /// A table was opened with other types than before.
    #[error("table {table} has the types {found}, not {wanted}: use those, or another table")]
    TableTypes {
        /// Name of the table.
        table: String,
        /// Names of its key's and value's types.
        found: String,
        /// The types that were asked for.
        wanted: String,
    },
    /// Bytes could not be read as the type of a table's keys or values, or a value could not be written as such.
    #[error("table {table}: a {part} is no {codec} ({why}): use the type that the record was written with")]
    Codec {
        /// Name of the table.
        table: String,
        /// The part that failed: key or value.
        part: &'static str,
        /// Name of the type.
        codec: &'static str,
        /// Reason of the failure.
        why: String,
    },
    /// The caller's own error, from within a transaction.
    #[error("{0}")]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// A temporal object without a validity and without a period.
    #[error(
        "temporal object {key}: neither valid_for nor period is set: say for how long a reading is valid",
        key = key.escape_ascii()
    )]
    ObjectTime {
        /// Key of the object.
        key: Vec<u8>,
    },
    /// A temporal object whose key is empty or too long for a record, so that the engine could never keep it.
    #[error(
        "temporal object {key}: a key has 1 to {KEY_MAX_LEN} bytes, this one has {len}: give it another",
        key = key.escape_ascii(), len = key.len()
    )]
    ObjectKey {
        /// The refused key of the object.
        key: Vec<u8>,
    },
}
