//! What can go wrong in the store.

use punctual_units::{Nanos, ObjectId};

use crate::engine::EngineError;
use crate::permit::WAITERS_MAX;
use crate::updates::OfferError;

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
        "the write lock was not free within {waited}: shorten the other write transactions, or raise lock_wait_max"
    )]
    LockTimeout {
        /// The bound that was met.
        waited: Nanos,
    },
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
}
