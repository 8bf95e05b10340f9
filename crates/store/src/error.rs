//! What can go wrong in the store.

use std::fmt;
use std::path::PathBuf;

use punctual_os::Tid;
use punctual_units::{Nanos, ObjectId, Revision};

use crate::batch::BatchBounds;
use crate::engine::{EngineError, KEY_MAX_LEN};
use crate::permit::{WAITERS_MAX, WaitedFor};
use crate::tables::NAME_MAX_LEN;
use crate::updates::OfferError;
use crate::watch::WATCHES_MAX;

/// The thread that holds the write lock, as a message shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// The thread.
    pub thread: Tid,
    /// What it is called, where the system tells: the threads of a run have the names of their tasks.
    pub name: Option<String>,
    /// For how long it has held the lock.
    pub held: Nanos,
    /// Which thread kept the waiting one longest: this one, or one that had its turn before.
    pub longest: WaitedFor,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {}", self.thread)?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        write!(f, " has had it for {}", self.held)?;
        let WaitedFor { thread, held, .. } = self.longest;
        if thread != self.thread {
            write!(f, ", thread {thread} had it before for {held}")?;
        }
        write!(f, ";")
    }
}

/// Why the store did not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The engine failed or refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The update was refused.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// A firm deadline has passed; the transaction is undone.
    #[error("the transaction's firm deadline passed {late} ago: give it more time, or make the deadline soft")]
    DeadlinePassed {
        /// How long ago.
        late: Nanos,
    },
    /// Other writers did not finish in time.
    #[error(
        "the write lock was not free within {waited}: {holder} shorten its write transactions, or raise lock_wait_max"
    )]
    LockTimeout {
        /// The bound that was met.
        waited: Nanos,
        /// Which thread had it then.
        holder: LockHolder,
    },
    /// This thread has a write transaction open, or changes the store by another call meanwhile: it would wait for
    /// itself.
    #[error("this thread has a write transaction of the store open already: commit it, or drop it, first")]
    NestedWrite,
    /// Too many writers.
    #[error("{WAITERS_MAX} threads wait for the write lock already: use fewer writing threads")]
    TooManyWaiters,
    /// A temporal object can only be changed by its sensor.
    #[error(
        "key {key}: this is a temporal object, its value comes from its sensor: offer an update instead",
        key = key.escape_ascii()
    )]
    Temporal {
        /// The key.
        key: Vec<u8>,
    },
    /// Freshness was asked of a record that has none.
    #[error(
        "key {key}: this is no temporal object, so it has no age: register it when the store is opened, or use get",
        key = key.escape_ascii()
    )]
    NotTemporal {
        /// The key.
        key: Vec<u8>,
    },
    /// No object has this number.
    #[error("there is no temporal object {0}: use the ids that this store hands out")]
    UnknownObject(ObjectId),
    /// Two temporal objects with one key.
    #[error("temporal object {key} is registered twice: give each its own key", key = key.escape_ascii())]
    DuplicateObject {
        /// The key.
        key: Vec<u8>,
    },
    /// A temporal object whose kept value does not fit.
    #[error(
        "temporal object {key} holds {len} bytes and is registered for {max_len}: raise its max_len",
        key = key.escape_ascii()
    )]
    ValueTooLong {
        /// Its key.
        key: Vec<u8>,
        /// The length of the value in the engine, in bytes.
        len: usize,
        /// The registered maximum, in bytes.
        max_len: usize,
    },
    /// A key that the store itself uses.
    #[error(
        "key {key}: keys that begin with a zero byte and \"punctual/\" belong to the store: use another",
        key = key.escape_ascii()
    )]
    ReservedKey {
        /// The key.
        key: Vec<u8>,
    },
    /// More temporal objects were created than there is room for.
    #[error("there is room for {max} objects more than it was opened with: raise created_max, on all nodes alike")]
    TooManyObjects {
        /// The room.
        max: usize,
    },
    /// More values than are installed together.
    #[error("at most {max} values are installed together: split them up, or put them into fewer objects")]
    TooManyTogether {
        /// The bound.
        max: usize,
    },
    /// More watches than there is room for.
    #[error("there are {WATCHES_MAX} watches already: drop some, or watch a prefix in place of several keys")]
    TooManyWatches,
    /// A key that no record that expires can have.
    #[error("a record that expires has a key of 1 to {max} bytes, this one has {len}: use another, or put")]
    ExpiringKey {
        /// The key's length in bytes.
        len: usize,
        /// The longest one, in bytes.
        max: usize,
    },
    /// A name that no table can have.
    #[error(
        "table {name}: a name has 1 to {NAME_MAX_LEN} bytes, none of them zero: use another",
        name = name.escape_default()
    )]
    TableName {
        /// The name.
        name: String,
    },
    /// A key that no record of a named table can have.
    #[error("a key of this table has 1 to {max} bytes, this one has {len}: use another, or a table of a shorter name")]
    TableKey {
        /// The key's length in bytes.
        len: usize,
        /// The longest key of the table, in bytes.
        max: usize,
    },
    /// A write transaction on a store whose records come from a log.
    #[error("the records of this store come from a federation's log: write in a batch on its master")]
    Replicated,
    /// A batch for a store whose records do not come from a log.
    #[error("this store is no replica: open it with `replicated`, or use a write transaction")]
    NotReplicated,
    /// A replicated store whose sensors would write to its engine out of the log's order.
    #[error("a replicated store takes its sensors' updates into memory: open it with update mode memory-first")]
    NotMemoryFirst,
    /// The store of a node that was being given a copy, opened as one that is whole.
    #[error(
        "{path}: a part of a node's records: its copy from another node has not ended; start that node again, or take          another node's store",
        path = path.display()
    )]
    Part {
        /// The store's folder.
        path: PathBuf,
    },
    /// An image that does not begin where the records end.
    #[error("the image begins elsewhere than this store ends: ask for the one behind {}",
        upto.as_ref().map_or("nothing".into(), |key| key.escape_ascii().to_string()))]
    Elsewhere {
        /// Up to which key its records are here; `None`: all of them are.
        upto: Option<Vec<u8>>,
    },
    /// An entry of the log came for a second time.
    #[error("the store is at revision {at}, revision {revision} has been applied already: leave it out")]
    AlreadyApplied {
        /// The last one that was applied.
        at: Revision,
        /// The one that came.
        revision: Revision,
    },
    /// Entries of the log are missing.
    #[error("the store is at revision {at}, revision {revision} does not follow: apply {} first", at.next())]
    NotNext {
        /// The last one that was applied.
        at: Revision,
        /// The one that came.
        revision: Revision,
    },
    /// A batch with this transaction would be larger than it may be.
    #[error(
        "{transactions} transactions with {bytes} bytes do not fit into a batch of at most {} transactions and {} \
         bytes: begin another batch, or write less in one transaction",
        bounds.transactions, bounds.bytes
    )]
    BatchFull {
        /// How many transactions there would be.
        transactions: usize,
        /// How many bytes their write sets would have.
        bytes: usize,
        /// The bounds of the batch.
        bounds: BatchBounds,
    },
    /// A temporal object whose key no record can have: it could never be kept.
    #[error(
        "temporal object {key}: a key has 1 to {KEY_MAX_LEN} bytes, this one has {len}: give it another",
        key = key.escape_ascii(), len = key.len()
    )]
    ObjectKey {
        /// The key.
        key: Vec<u8>,
    },
}
