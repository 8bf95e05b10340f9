//! The real-time key/value store: deadlines, freshness, tables, watches, admission of sensor updates; and copies and
//! checks of its files.
//!
//! [`Store::builder`](Store) opens a store in a folder, `Store::in_memory` one in memory, and both have this module's
//! type: a program and its tests call the same functions.

use punctual_os::LinuxOs;

pub use punctual_engines::lmdb::{
    CheckNote, LmdbOptions, Look, Protection, Verify, VerifyProgress, Visiting, Visitor, last_check, transfer,
};
pub use punctual_engines::{AnyEngine, Lmdb, Memory};
pub use punctual_os::MappedMedium;
pub use punctual_store::engine::Durability;
pub use punctual_store::engine::{EndedBecause, Engine, EngineError, Holder, KEY_MAX_LEN, Space, VALUE_MAX_LEN};
pub use punctual_store::sensors::Offer;
pub use punctual_store::temporal::{ClockOrigin, ObjectSpec, ReadingBuffer, Sample};
pub use punctual_store::updates::{AdmissionOptions, OfferError, Receipt, Reconciliation, UpdateCounts};
pub use punctual_store::watch::{Change, WatchTarget};
pub use punctual_store::{
    Codec, Deadline, Encode, FlushResult, Freshness, LockHolder, OBJECT_BYTES_MAX, OBJECT_LEN_MAX, Postcard, Records,
    Split, StoreBuilder, StoreError, StoreOptions, Table, TableRecords, Together, UpdateMode, Value,
};
pub use punctual_units::{ObjectId, SensorId, Seq};

/// The store of a program on this machine. [`StoreBuilder`] opens it.
pub type Store = punctual_store::Store<AnyEngine, LinuxOs>;

/// Notices of changes in such a store.
pub type Watch = punctual_store::watch::Watch<LinuxOs>;

/// A read transaction on such a store.
pub type ReadTransaction<'s> = punctual_store::ReadTransaction<'s, AnyEngine, LinuxOs>;

/// A write transaction on such a store.
pub type WriteTransaction<'s> = punctual_store::WriteTransaction<'s, AnyEngine, LinuxOs>;

/// The store of another process, for its reads; see [`Visiting::store`].
pub type VisitedStore = punctual_store::Store<Visiting, LinuxOs>;

/// A read transaction on any store.
pub use punctual_store::ReadTransaction as AnyReadTransaction;
/// A store on any engine and any clock: for a virtual clock in tests, see [`StoreBuilder::clock`].
pub use punctual_store::Store as AnyStore;
/// A write transaction on any store.
pub use punctual_store::WriteTransaction as AnyWriteTransaction;
/// Notices of changes in any store.
pub use punctual_store::watch::Watch as AnyWatch;
