//! Several transactions in one commit of the engine, which waits until a log has acknowledged them.
//!
//! **Problem.** The master of a federation must not commit before the log: it executes a batch of transactions, appends
//! their changes to the log, and commits when the log has answered. Each transaction of the batch sees those before it,
//! and a failing one is undone without the others. Replicas commit the same changes, in the order of the log.
//!
//! **Method.** A [`Batch`] is an overlay over one snapshot of the engine: it keeps changes in maps of its own, and
//! looks reads up there first. Closing it returns values, the [`WriteSet`]s of the transactions that were kept.
//! [`Store::apply`] writes such a list in one commit of the engine, with the log's revision inside; the master calls it
//! after the log's answer, and a replica for each entry of the log.
//!
//! **Why not a write transaction of the engine that is held open, with nested ones in it?** It would hold the engine's
//! one write lock while the log answers, and group commits of sensor data would wait for the network. It could not be
//! kept in a state machine as a value, because it belongs to its thread. And the master would commit by other code than
//! its replicas. The overlay uses only what every engine has, so one code serves all engines. Its price: a lookup in
//! two maps for each read within a batch. Transactions outside of batches pay nothing.
//!
//! **Promises.**
//!
//! - Until `apply`, other transactions see the state before the batch. Dropping the batch or its write sets, or a
//!   crash, leaves no trace.
//! - `apply` accepts only the entry that follows the last one: otherwise [`StoreError::AlreadyApplied`],
//!   [`StoreError::NotNext`]. The revision is in the same commit as the records, so this holds after a crash, too.
//! - The records of a store are a function of the entries that were applied to it. To keep this true, a replicated
//!   store ([`StoreOptions::replicated`](crate::StoreOptions::replicated)) refuses write transactions outside of
//!   batches. Temporal objects are not included: each node has its own, and a write set lists the values that were
//!   read.
//!
//! **Objects that are created while it runs.** A transaction of a batch may [create](BatchTransaction::create) a
//! temporal object, under a name that no other object ever has ([`ObjectName`](punctual_units::ObjectName)). The
//! creation is part of the write set, so every node has the object from the same entry of the log on. Its source then
//! sends its readings, [`install_from_peer`](Store::install_from_peer).
//!
//! ```
//! use punctual_engines::Memory;
//! use punctual_store::batch::BatchBounds;
//! use punctual_store::{Deadline, Store, StoreOptions};
//! use punctual_testing::VirtualOs;
//! use punctual_units::Revision;
//!
//! let replica = || StoreOptions { replicated: true, ..StoreOptions::default() };
//! let master = Store::open(Memory::default(), VirtualOs::new(1), replica())?;
//! let slave = Store::open(Memory::default(), VirtualOs::new(2), replica())?;
//!
//! let mut batch = master.batch(BatchBounds::default())?;
//! let mut first = batch.transaction(Deadline::NONE)?;
//! first.put(b"light", b"on")?;
//! first.keep()?;
//! let mut second = batch.transaction(Deadline::NONE)?;
//! assert_eq!(second.get(b"light")?.as_deref(), Some(&b"on"[..]));
//! second.put(b"light", b"off")?;
//! drop(second); // undone, alone
//! let written = batch.close();
//! assert_eq!(master.get(b"light")?, None); // the log has not answered yet
//!
//! let revision = Revision(1); // the log's answer
//! for node in [&master, &slave] {
//!     node.apply(revision, &written)?;
//!     assert_eq!(node.get(b"light")?.as_deref(), Some(&b"on"[..]));
//! }
//! assert!(slave.apply(revision, &written).is_err()); // twice
//! # Ok::<(), punctual_store::StoreError>(())
//! ```

mod apply;
pub mod bytes;
mod create;
mod overlay;
mod writes;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use punctual_os::Os;
use punctual_units::{Nanos, Revision, Seq, Time};

use crate::engine::{Engine, KeyRange, Read, Table};
use crate::expiry::TermView;
use crate::store::Store;
use crate::temporal::Sample;
use crate::transaction::check_key;
use crate::{Deadline, Freshness, StoreError, Value};

pub use apply::{Image, is_reserved, revision_of, tells_of_a_part};
pub(crate) use apply::{read_revision, read_upto};
pub(crate) use create::read_created;
use overlay::{BatchOverlay, Overlay};
use writes::change_bytes;
pub use writes::{BatchBounds, TemporalRead, WriteSet};

/// Transactions to be committed together. Bound to its thread as a snapshot of the engine is, and holds no lock.
/// Dropping it undoes all of them.
pub struct Batch<'s, E: Engine + 's, O: Os> {
    store: &'s Store<E, O>,
    base: BatchOverlay<E::Snapshot<'s>>,
    revision: Revision,
    bounds: BatchBounds,
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Begins a batch on the latest commit.
    ///
    /// # Errors
    /// [`StoreError::NotReplicated`] for a store that is not replicated; [`StoreError::Engine`].
    pub fn batch(&self, bounds: BatchBounds) -> Result<Batch<'_, E, O>, StoreError> {
        self.require_replicated()?;
        let snapshot = self.snapshot(Deadline::NONE)?;
        let revision = read_revision(&snapshot, self.engine.path())?;
        let (changes, kept) = (BTreeMap::new(), Vec::new());
        Ok(Batch {
            store: self,
            base: BatchOverlay {
                snapshot,
                changes,
                kept,
                bytes: 0,
            },
            revision,
            bounds,
        })
    }
}

impl<'s, E: Engine, O: Os> Batch<'s, E, O> {
    /// The last revision that its transactions see. Its write sets may only be applied as the next one.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Number of transactions kept so far.
    pub fn kept(&self) -> usize {
        self.base.kept.len()
    }

    /// Bytes of the kept write sets, see [`WriteSet::bytes`].
    pub fn bytes(&self) -> usize {
        self.base.bytes
    }

    /// Begins the next transaction, which sees all that were kept before. Sensor updates that are pending now are
    /// installed first, see [`crate::sensors`].
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`]; [`StoreError::BatchFull`] if the batch has its maximum of transactions.
    pub fn transaction<'b>(&'b mut self, deadline: Deadline) -> Result<BatchTransaction<'b, 's, E, O>, StoreError> {
        let now = self.store.os.now();
        deadline.check(now)?;
        self.bounds.admit(self.base.kept.len() + 1, self.base.bytes)?;
        let pending = self.store.to_install_first();
        if pending > 0 {
            self.store.help(pending, deadline, now);
        }
        let bytes = self.base.bytes + WriteSet::default().bytes();
        Ok(BatchTransaction {
            store: self.store,
            deadline,
            bounds: self.bounds,
            account: RefCell::new(TransactionUsage {
                read: Vec::new(),
                bytes,
            }),
            view: Overlay {
                base: &mut self.base,
                own: BTreeMap::new(),
                created: Vec::new(),
            },
        })
    }

    /// The write sets of the kept transactions, in their order.
    pub fn close(self) -> Vec<WriteSet> {
        self.base.kept
    }
}

/// A transaction of a [`Batch`]; dropping it undoes it, and no other.
pub struct BatchTransaction<'b, 's, E: Engine + 's, O: Os> {
    store: &'s Store<E, O>,
    deadline: Deadline,
    bounds: BatchBounds,
    account: RefCell<TransactionUsage>,
    view: Overlay<'b, E::Snapshot<'s>>,
}

/// The temporal values that a transaction has read, and the size of the batch with it, in bytes.
struct TransactionUsage {
    read: Vec<TemporalRead>,
    bytes: usize,
}

impl<'s, E: Engine, O: Os> BatchTransaction<'_, 's, E, O> {
    /// The value of `key`; sees own changes and those of kept transactions.
    ///
    /// # Errors
    /// [`KeyLength`](crate::engine::EngineError::KeyLength) and [`StoreError::ReservedKey`] for a key that no record
    /// can have; [`StoreError::DeadlinePassed`], [`StoreError::BatchFull`], [`StoreError::Engine`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        check_key(key)?;
        let now = self.aged()?;
        let Some(object) = self.store.objects.find(key) else {
            return Ok(self.view.get(Table::Data, key)?);
        };
        let reading = self.store.temporal(&self.view, object)?;
        self.account(&reading, key, now)?;
        Ok(reading.map(|(_, value)| value))
    }

    /// The value of the temporal object `key` if it is not older than `max_age`.
    ///
    /// # Errors
    /// [`StoreError::NotTemporal`], and those of [`get`](BatchTransaction::get).
    pub fn get_fresh(&self, key: &[u8], max_age: Nanos) -> Result<Freshness<Value>, StoreError> {
        let now = self.aged()?;
        let reading = self.store.reading(&self.view, key)?;
        self.account(&reading, key, now)?;
        Ok(Freshness::of(reading, max_age, now))
    }

    /// Calls `visit` with the records in `range` in ascending order until it breaks; sees own changes and those of kept
    /// transactions.
    ///
    /// # Errors
    /// Those of [`get`](BatchTransaction::get).
    pub fn scan(
        &self,
        range: KeyRange<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let now = self.aged()?;
        let mut full = None;
        self.store
            .scan_readings(&self.view, TermView::All, range, |key, value, sample| {
                if let Some(sample) = sample
                    && let Err(error) = self.note(key, Some((sample, value)), now)
                {
                    full = Some(error);
                    return ControlFlow::Break(());
                }
                visit(key, value)
            })?;
        full.map_or(Ok(()), Err)
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// [`StoreError::Temporal`], and those of [`get`](BatchTransaction::get); the record stays as it was.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.now()?;
        self.refuse_temporal(key)?;
        self.change(key, Some(value))
    }

    /// Removes `key`; true if it was there.
    ///
    /// # Errors
    /// [`StoreError::Temporal`], and those of [`get`](BatchTransaction::get).
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        self.now()?;
        self.refuse_temporal(key)?;
        let was_there = self.view.get(Table::Data, key)?.is_some();
        if was_there {
            self.change(key, None)?;
        }
        Ok(was_there)
    }

    /// Ends the transaction: its changes join the batch.
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`]: the transaction is undone.
    pub fn keep(self) -> Result<(), StoreError> {
        self.now()?;
        let Overlay { base, own, created } = self.view;
        let TransactionUsage { read, bytes } = self.account.into_inner();
        base.changes
            .extend(own.iter().map(|(key, value)| (key.clone(), value.clone())));
        base.kept.push(WriteSet {
            changes: own,
            created,
            read,
        });
        base.bytes = bytes;
        Ok(())
    }

    fn refuse_temporal(&self, key: &[u8]) -> Result<(), StoreError> {
        check_key(key)?;
        if self.view.creations().any(|creation| creation.spec.key == key) {
            return Err(StoreError::Temporal { key: key.to_vec() });
        }
        self.store.refuse_temporal(key)
    }

    /// The current instant on the clock of ages.
    fn aged(&self) -> Result<Time, StoreError> {
        self.now()?;
        Ok(self.store.os.since_boot())
    }

    fn now(&self) -> Result<Time, StoreError> {
        let now = self.store.os.now();
        self.deadline.check(now)?;
        Ok(now)
    }

    fn change(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        let before = self
            .view
            .own
            .get(key)
            .map_or(0, |old| change_bytes(key, old.as_deref()));
        let account = self.account.get_mut();
        let bytes = account.bytes - before + change_bytes(key, value);
        self.bounds.admit(self.view.base.kept.len() + 1, bytes)?;
        account.bytes = bytes;
        self.view.own.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        Ok(())
    }

    fn account(&self, reading: &Option<(Sample, Value)>, key: &[u8], now: Time) -> Result<(), StoreError> {
        let seen = reading.as_ref().map(|(sample, value)| (*sample, &**value));
        self.note(key, seen, now)
    }

    /// Records a temporal value that was read.
    fn note(&self, key: &[u8], seen: Option<(Sample, &[u8])>, now: Time) -> Result<(), StoreError> {
        let read = TemporalRead {
            key: key.to_vec(),
            seq: seen.map_or(Seq(0), |(sample, _)| sample.seq),
            age: seen.map_or(Nanos::MAX, |(sample, _)| sample.age(now)),
            value: seen.map(|(_, value)| value.to_vec()),
        };
        let mut account = self.account.borrow_mut();
        let bytes = account.bytes + read.bytes();
        self.bounds.admit(self.view.base.kept.len() + 1, bytes)?;
        account.bytes = bytes;
        account.read.push(read);
        Ok(())
    }
}
