//! A node's store: execution of batches and application of entries, on any engine and any operating system.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use punctual_os::Os;
use punctual_redis::commands::{Edit, Look, events};
use punctual_store::batch::{Batch, BatchBounds, BatchTransaction, Image, WriteSet};
use punctual_store::engine::{Engine, EngineError};
use punctual_store::temporal::{Creation, Sample};
use punctual_store::watch::Change;
use punctual_store::{Deadline, Freshness, ReadTransaction, Store, StoreError, unless_impossible};
use punctual_units::{Nanos, ObjectName, Seq, Time};

use crate::action::Execution;
use crate::commands::{self, end, left};
use crate::entry::{Entry, KeyEvent, plain_events};
use crate::ids::Revision;
use crate::master::{BATCH_BYTES_MAX, BATCH_MAX};
use crate::message::{
    BATCH_FOUND_BYTES_MAX, ClientCommand, FOUND_BYTES_MAX, Key, Output, RESERVED, Refusal, Reign, Request, Value,
};
use crate::records::{self, RecordAccess, Undo};
use crate::terms::{self, Millis};

/// Most bytes that a change adds to a store's pages beside its own: it splits a leaf, and the branch above.
const CHANGE_BYTES: u64 = 2 * 4096;

/// A store that follows the log.
pub struct Replica<E: Engine, O: Os> {
    store: Store<E, O>,
    horizon: Nanos,
    room: Mutex<Room>,
    /// The wall clock by which records expire; without one, no record expires, and no command is carried out.
    clock: Option<Box<dyn Fn() -> Millis + Send + Sync>>,
    /// No record expires before this; [`Millis::MAX`] if none expires at all.
    next_due: AtomicU64,
    /// The latest time that this node knows of, which its wall clock may not fall behind.
    time: AtomicU64,
}

/// Bound on the records of a store.
struct Room {
    /// Most bytes of pages that records may take; `None` without a bound.
    bytes_max: Option<u64>,
    /// Bytes that can be added without looking at the engine; at 0 the engine is asked.
    left: u64,
}

/// A transaction of a batch, with the federation's view of its records.
struct View<'b, 's, E: Engine + 's, O: Os> {
    transaction: BatchTransaction<'b, 's, E, O>,
    replica: &'b Replica<E, O>,
    is_full: bool,
    now: Millis,
    /// Whether any record may expire, those of the batch included.
    has_terms: &'b Cell<bool>,
    /// Whether the transaction has found a record expired: then the next master must find it expired, too.
    judged: Cell<bool>,
    /// Label of the command that is carried out, see [`Edit::label`]; 0: none is.
    label: u8,
    events: Vec<KeyEvent>,
}

/// A snapshot of the store, with the view that commands have of it.
struct SnapshotView<'r, 's, E: Engine + 's, O: Os> {
    transaction: ReadTransaction<'s, E, O>,
    replica: &'r Replica<E, O>,
    now: Millis,
    has_terms: bool,
}

/// The methods of [`Look`] that are the same in both views: each has `term`, `now`, `transaction` and `replica`.
macro_rules! looks_by_terms {
    () => {
        fn life_left(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError> {
            Ok(self.term(key)?.map(|end| left(end, self.now)))
        }

        fn wall(&self) -> Nanos {
            left(self.now, 0)
        }

        fn fresh(&self, key: &[u8], max_age: Nanos) -> Result<Freshness<Vec<u8>>, StoreError> {
            let found = self
                .transaction
                .get_fresh(key, max_age.min(self.replica.horizon))?;
            Ok(found.map(punctual_store::Value::into_owned))
        }

        fn keys(&self, from: Bound<&[u8]>, mut visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), StoreError> {
            let range = (terms::from_first(from), Bound::Unbounded);
            self.transaction.scan(range, |key, _| visit(key))
        }

        fn is_hidden(&self, key: &[u8]) -> Result<bool, StoreError> {
            Ok(key.first() == Some(&RESERVED) || self.life_left(key)? == Some(Nanos::ZERO))
        }
    };
}

impl<E: Engine, O: Os> SnapshotView<'_, '_, E, O> {
    fn value(&self, key: &[u8], max_age: Nanos) -> Result<Option<Value>, StoreError> {
        match self.fresh(key, max_age) {
            Ok(Freshness::Fresh { value, .. }) => Ok(Some(value)),
            Ok(Freshness::Stale { .. } | Freshness::NotFound) => Ok(None),
            Err(StoreError::NotTemporal { .. }) => {
                Ok(unless_impossible(self.transaction.get(key))?.map(punctual_store::Value::into_owned))
            }
            Err(error) => Err(error),
        }
    }

    /// The instant at which the record `key` expires; `None`: never.
    fn term(&self, key: &[u8]) -> Result<Option<Millis>, StoreError> {
        if !self.has_terms {
            return Ok(None);
        }
        let found = self.transaction.get_with(terms::term_key(key), terms::instant);
        Ok(unless_impossible(found)?.flatten())
    }
}

impl<E: Engine, O: Os> Look for SnapshotView<'_, '_, E, O> {
    fn bytes<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        Ok(self.value(key, Nanos::MAX)?.map(|value| look(&value)))
    }

    looks_by_terms!();
}

impl<E: Engine, O: Os> View<'_, '_, E, O> {
    fn found(&self, key: &[u8]) -> Result<Option<punctual_store::Value>, StoreError> {
        unless_impossible(self.transaction.get(key))
    }

    /// The instant at which the record `key` expires; `None`: never.
    fn term(&self, key: &[u8]) -> Result<Option<Millis>, StoreError> {
        if !self.has_terms.get() || key.first() == Some(&RESERVED) {
            return Ok(None);
        }
        let found = self.found(&terms::term_key(key))?;
        let end = found.and_then(|end| terms::instant(&end));
        if end.is_some_and(|end| end <= self.now) {
            self.judged.set(true);
        }
        Ok(end)
    }

    /// Sets a record, which expires at `term`; `None`: never.
    fn set(&mut self, key: &[u8], value: &[u8], term: Option<Millis>) -> Result<(), StoreError> {
        if self.is_full {
            return Err(self.replica.full());
        }
        self.replace(key, value)?;
        term.map_or(Ok(()), |end| self.remember(key, end))
    }

    /// Sets a record that never expires; reports that one before it has expired.
    fn replace(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.transaction.put(key, value)?;
        if self.forget(key)? {
            self.note(&Change::Expired { key }, 0);
        }
        Ok(())
    }

    /// Removes a record, whether it has expired or not, and reports that; returns whether there was one that had not.
    fn remove(&mut self, key: &[u8], label: u8) -> Result<bool, StoreError> {
        let is_over = self.forget(key)?;
        let is_removed = unless_impossible(self.transaction.delete(key))?;
        match (is_removed, is_over) {
            (true, true) => self.note(&Change::Expired { key }, 0),
            (true, false) => self.note(&Change::Deleted { key }, label),
            (false, _) => {}
        }
        Ok(is_removed && !is_over)
    }

    /// Adds the events of a change of a client's key.
    fn note(&mut self, change: &Change<'_>, label: u8) {
        if let Some(key) = events::key(change)
            && key.first() != Some(&RESERVED)
        {
            let event = |name: &&str| KeyEvent {
                name: events::number(name),
                key: key.to_vec(),
            };
            self.events.extend(events::names(change, label).iter().map(event));
        }
    }

    /// Whether the record has expired, so that it counts as missing.
    fn is_over(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(self.term(key)?.is_some_and(|end| end <= self.now))
    }

    /// Removes the expiry of a record; returns whether it has expired.
    fn forget(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        let Some(end) = self.term(key)? else { return Ok(false) };
        self.transaction.delete(&terms::due_key(end, key))?;
        self.transaction.delete(&terms::term_key(key))?;
        Ok(end <= self.now)
    }

    fn remember(&mut self, key: &[u8], end: Millis) -> Result<(), StoreError> {
        self.transaction.put(&terms::due_key(end, key), &[])?;
        self.transaction.put(&terms::term_key(key), &end.to_be_bytes())?;
        self.has_terms.set(true);
        self.write_time()
    }

    /// Records the time of this decision, so that no later master judges by an earlier one.
    fn write_time(&mut self) -> Result<(), StoreError> {
        self.transaction.put(&terms::CLOCK, &self.now.to_be_bytes())
    }
}

impl<E: Engine, O: Os> Look for View<'_, '_, E, O> {
    fn bytes<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        Ok(self.found(key)?.map(|value| look(&value)))
    }

    looks_by_terms!();
}

impl<E: Engine, O: Os> Edit for View<'_, '_, E, O> {
    fn label(&mut self, label: u8) {
        self.label = label;
    }

    fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
        self.set(key, bytes, None)?;
        self.note(&Change::Put { key }, self.label);
        Ok(())
    }

    fn put_for(&mut self, key: &[u8], bytes: &[u8], life: Nanos) -> Result<(), StoreError> {
        self.set(key, bytes, Some(end(self.now, life)))?;
        self.note(&Change::Put { key }, self.label);
        self.note(&Change::Expiry { key, expires: true }, self.label);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        self.remove(key, self.label)
    }

    fn set_life(&mut self, key: &[u8], life: Option<Nanos>) -> Result<bool, StoreError> {
        let is_there = self.found(key)?.is_some();
        if is_there {
            // A sweep could not remove an object, whose records the store keeps from transactions.
            match self.transaction.get_fresh(key, Nanos::ZERO) {
                Err(StoreError::NotTemporal { .. }) => {}
                found => return Err(found.err().unwrap_or(StoreError::Temporal { key: key.to_vec() })),
            }
            self.forget(key)?;
            life.map_or(Ok(()), |life| self.remember(key, end(self.now, life)))?;
            let expires = life.is_some();
            self.note(&Change::Expiry { key, expires }, self.label);
        }
        Ok(is_there)
    }
}

impl<E: Engine, O: Os> RecordAccess for View<'_, '_, E, O> {
    type Error = StoreError;

    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        if self.is_over(key)? {
            return Ok(None);
        }
        Ok(self.found(key)?.map(punctual_store::Value::into_owned))
    }

    fn fresh(&self, key: &[u8], max_age: Nanos) -> Result<Option<Value>, StoreError> {
        match Look::fresh(self, key, max_age) {
            Ok(Freshness::Fresh { value, .. }) => Ok(Some(value)),
            Ok(Freshness::Stale { .. } | Freshness::NotFound) => Ok(None),
            Err(StoreError::NotTemporal { .. }) => self.get(key),
            Err(error) => Err(error),
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Undo<StoreError>> {
        // The federation's own records are few, and a delete writes them, too.
        if self.is_full && key.first() != Some(&RESERVED) {
            return Err(Undo::Refused(Refusal::StoreFull));
        }
        self.replace(key, value).map_err(undo)?;
        self.note(&Change::Put { key }, 0);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Undo<StoreError>> {
        self.remove(key, 0).map_err(undo).map(drop)
    }

    fn run(&mut self, command: &ClientCommand) -> Result<Value, Undo<StoreError>> {
        if self.replica.clock.is_none() {
            return Err(Undo::Refused(Refusal::NoCommands));
        }
        commands::change(self, command).map_err(undo)
    }

    fn sweep(&mut self, max: usize) -> Result<(), Undo<StoreError>> {
        if self.replica.next_due() > self.now {
            return Ok(());
        }
        let (mut due, (first, behind)): (Vec<Key>, _) = (Vec::new(), terms::due_range(self.now));
        let range = (Bound::Included(&first[..]), Bound::Excluded(&behind[..]));
        let scanned = self.transaction.scan(range, |entry, _| {
            due.extend(terms::of_due(entry).map(|(_, key)| key.to_vec()));
            match due.len() < max {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        scanned.map_err(undo)?;
        for key in &due {
            match self.remove(key, 0) {
                // An earlier version gave an object a term, which is forgotten now.
                Err(StoreError::Temporal { .. }) => {}
                removed => drop(removed.map_err(undo)?),
            }
        }
        Ok(())
    }

    fn create(&mut self, creation: &Creation) -> Result<(), Undo<StoreError>> {
        if self.is_full {
            return Err(Undo::Refused(Refusal::StoreFull));
        }
        let key = &creation.spec.key;
        // An object would hide the record.
        if let Err(StoreError::NotTemporal { .. }) = self.transaction.get_fresh(key, Nanos::ZERO)
            && self.get(key)?.is_some()
        {
            let why = "it holds an ordinary record: remove that first, or give the object another key".into();
            let key = key.clone();
            return Err(Undo::Refused(Refusal::NotCreated { key, why }));
        }
        self.transaction.create(creation.clone()).map_err(|error| match error {
            StoreError::DuplicateObject { .. } | StoreError::ReservedKey { .. } | StoreError::TooManyObjects { .. } => {
                Undo::Refused(Refusal::NotCreated {
                    key: creation.spec.key.clone(),
                    why: error.to_string(),
                })
            }
            error => Undo::Failed(error),
        })
    }
}

/// Reason to undo a transaction whose write the store refused.
fn undo(error: StoreError) -> Undo<StoreError> {
    match error {
        StoreError::Temporal { key } => Undo::Refused(Refusal::Temporal { key }),
        StoreError::ReservedKey { .. } => Undo::Refused(Refusal::ReservedKey),
        StoreError::NotTemporal { key } => Undo::Refused(Refusal::NotTemporal { key }),
        StoreError::Engine(EngineError::KeyLength { len }) => Undo::Refused(Refusal::KeyLength { len }),
        StoreError::Engine(EngineError::QuotaFull { .. }) => Undo::Refused(Refusal::StoreFull),
        error => Undo::Failed(error),
    }
}

impl<E: Engine, O: Os> Replica<E, O> {
    /// Wraps a store that was opened as a replicated one. A reading older than `horizon` counts as none.
    pub fn new(store: Store<E, O>, horizon: Nanos) -> Replica<E, O> {
        let room = Mutex::new(Room {
            bytes_max: None,
            left: 0,
        });
        Replica {
            store,
            horizon,
            room,
            clock: None,
            next_due: AtomicU64::new(Millis::MAX),
            time: AtomicU64::new(0),
        }
    }

    /// Sets the wall clock by which records expire, and has the replica carry out commands.
    ///
    /// # Errors
    /// Those of the store.
    pub fn with_clock(self, clock: impl Fn() -> Millis + Send + Sync + 'static) -> Result<Replica<E, O>, StoreError> {
        let clock = Some(Box::new(clock) as Box<_>);
        let replica = Replica { clock, ..self };
        replica.read_terms()?;
        Ok(replica)
    }

    /// The time by which expiry is judged now.
    fn now(&self) -> Millis {
        let Some(clock) = &self.clock else { return 0 };
        let now = clock();
        self.time.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// The instant at which the next record expires; [`Millis::MAX`] if none does.
    pub fn next_due(&self) -> Millis {
        self.next_due.load(Ordering::Acquire)
    }

    /// Whether expired records wait to be removed.
    pub fn is_due(&self) -> bool {
        self.has_terms() && self.next_due() <= self.now()
    }

    fn has_terms(&self) -> bool {
        self.next_due() < Millis::MAX
    }

    /// Looks up the first record to expire, and the latest time that a master has recorded.
    fn read_terms(&self) -> Result<(), StoreError> {
        if self.clock.is_none() {
            self.next_due.store(Millis::MAX, Ordering::Release);
            return Ok(());
        }
        let transaction = self.store.read_transaction(Deadline::NONE)?;
        let (mut next, (first, behind)) = (Millis::MAX, terms::due_range(Millis::MAX - 1));
        let range = (Bound::Included(&first[..]), Bound::Excluded(&behind[..]));
        transaction.scan(range, |entry, _| {
            next = terms::of_due(entry).map_or(next, |(end, _)| end);
            ControlFlow::Break(())
        })?;
        let time = transaction.get_with(terms::CLOCK, terms::instant)?.flatten();
        self.time.fetch_max(time.unwrap_or_default(), Ordering::Relaxed);
        self.next_due.store(next, Ordering::Release);
        Ok(())
    }

    /// The error of a write that the bound refuses.
    fn full(&self) -> StoreError {
        let room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        StoreError::Engine(EngineError::QuotaFull {
            path: self.store.engine().path().to_path_buf(),
            quota: room.bytes_max.unwrap_or_default(),
            holder: None,
        })
    }

    /// Refuses transactions that put or create something once records take `bytes_max` bytes of pages; deletes go on.
    /// The bound is checked before each batch, so the engine needs room for one batch more: an entry in the log must be
    /// applied, whatever it takes.
    pub fn bounded(self, bytes_max: u64) -> Replica<E, O> {
        let room = Mutex::new(Room {
            bytes_max: Some(bytes_max),
            left: 0,
        });
        Replica { room, ..self }
    }

    fn is_full(&self) -> Result<bool, StoreError> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bytes_max) = room.bytes_max else {
            return Ok(false);
        };
        if room.left == 0 {
            room.left = bytes_max.saturating_sub(self.store.engine().space()?.data);
        }
        Ok(room.left == 0)
    }

    /// Revision up to which the log is applied.
    pub fn revision(&self) -> Revision {
        self.store.revision()
    }

    /// The term at that revision.
    ///
    /// # Errors
    /// Those of the store.
    pub fn reign(&self) -> Result<Reign, StoreError> {
        records::reign(|key| self.store.get(key))
    }

    /// Executes requests one after the other, each undone alone; none of their changes is visible.
    ///
    /// # Errors
    /// Those of the store.
    pub fn execute(&self, revision: Revision, requests: &[Request]) -> Result<Vec<Execution>, StoreError> {
        let (transactions, bytes) = (BATCH_MAX, BATCH_BYTES_MAX);
        let bounds = BatchBounds { transactions, bytes };
        let (is_full, now, has_terms) = (self.is_full()?, self.now(), Cell::new(self.has_terms()));
        let mut batch = self.store.batch(bounds)?;
        let mut outcomes = Vec::with_capacity(requests.len());
        // With this bound no transaction that is begun can exceed the bytes that a batch may read.
        let (mut found, most) = (0, BATCH_FOUND_BYTES_MAX - FOUND_BYTES_MAX);
        for request in requests {
            if found > most {
                outcomes.push(Outcome::Undone(Execution::NotRun));
                continue;
            }
            let outcome = execute(&mut batch, request, revision, self, (is_full, now, &has_terms))?;
            if let Outcome::Kept(output, _) = &outcome {
                found += output.bytes();
            }
            outcomes.push(outcome);
        }
        let mut sets = batch.close().into_iter();
        let performed = outcomes.into_iter().map(|outcome| match outcome {
            Outcome::Kept(output, events) => {
                let set = sets.next().unwrap_or_default();
                let events = if events == plain_events(&set) {
                    Vec::new()
                } else {
                    events
                };
                Execution::Done { output, set, events }
            }
            Outcome::Undone(performed) => performed,
        });
        Ok(performed.collect())
    }

    /// Applies an entry of the log in one commit of the engine.
    ///
    /// # Errors
    /// Those of the store.
    pub fn apply(&self, revision: Revision, entry: &Entry) -> Result<(), StoreError> {
        self.apply_sets(revision, &records::sets(entry))
    }

    /// Applies the changes of an entry of the log, transaction by transaction.
    ///
    /// # Errors
    /// Those of the store.
    pub fn apply_sets(&self, revision: Revision, sets: &[WriteSet]) -> Result<(), StoreError> {
        let changes = sets.iter().flat_map(|set| &set.changes);
        let bytes = changes.map(|(key, value)| CHANGE_BYTES + (key.len() + value.as_ref().map_or(0, Vec::len)) as u64);
        let bytes: u64 = bytes.sum();
        let terms = || sets.iter().flat_map(|set| set.changes.keys());
        // The recorded time of the master changes as well: a transaction's verdicts on expiry must hold for the next
        // master, too.
        let is_of_terms = |key: &Key| terms::of_due(key).is_some() || key[..] == terms::CLOCK[..];
        let changes_terms = self.clock.is_some() && terms().any(is_of_terms);
        if changes_terms {
            // Before other threads see the records: then they look for expiries, too.
            let first = terms().filter_map(|key| terms::of_due(key)).map(|(end, _)| end).min();
            self.next_due.fetch_min(first.unwrap_or(Millis::MAX), Ordering::AcqRel);
        }
        self.store.apply(revision, sets)?;
        if changes_terms {
            self.read_terms()?;
        }
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        room.left = room.left.saturating_sub(bytes);
        Ok(())
    }

    /// Counts an entry as applied without its changes: a planted fault.
    ///
    /// # Errors
    /// Those of the store.
    pub fn skip(&self, revision: Revision) -> Result<(), StoreError> {
        self.store.apply(revision, &[])
    }

    /// Installs a reading of an object; returns false if the object was not created here.
    ///
    /// # Errors
    /// Those of the store.
    pub fn install_reading(
        &self,
        object: ObjectName,
        seq: Seq,
        sampled_at: Option<Time>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let Some(object) = self.store.object_made(object) else {
            return Ok(false);
        };
        let sample = Sample { seq, sampled_at };
        self.store.install_from_peer(object, sample, value)?;
        Ok(true)
    }

    /// Whether the object of that name was created here.
    pub fn has_object(&self, object: ObjectName) -> bool {
        self.store.object_made(object).is_some()
    }

    /// The key of each temporal object that was created, and its present name.
    pub fn created(&self) -> Vec<(Key, ObjectName)> {
        self.store.created()
    }

    /// Counts a start of this node, see [`Store::count_boot`].
    ///
    /// # Errors
    /// Those of the store.
    pub fn count_boot(&self, at_least: u64) -> Result<u64, StoreError> {
        self.store.count_boot(at_least)
    }

    /// Copies the latest reading of a temporal object into `value`, from memory alone; returns its age as the store has
    /// it. `None` if there is no such object, `Some(None)` if it has no reading yet.
    ///
    /// # Errors
    /// Those of the store.
    pub fn latest(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Option<Nanos>>, StoreError> {
        let Some(object) = self.store.object(key) else {
            return Ok(None);
        };
        let sample = self.store.read(object, value)?;
        Ok(Some(sample.map(|sample| sample.age(self.store.os().since_boot()))))
    }

    /// Age of a temporal object's latest reading, as the store has it; `None` if there is no reading.
    ///
    /// # Errors
    /// Those of the store.
    pub fn age(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError> {
        let Some(object) = self.store.object(key) else {
            return Ok(None);
        };
        let sample = self.store.sample(object)?;
        Ok(sample.map(|sample| sample.age(self.store.os().since_boot())))
    }

    /// The latest reading of a temporal object.
    ///
    /// # Errors
    /// Those of the store.
    pub fn reading(&self, object: &[u8]) -> Result<Option<Value>, StoreError> {
        self.store.get(object)
    }

    /// Reads records from one snapshot, and readings of at most that age.
    ///
    /// # Errors
    /// Those of the store.
    pub fn query(&self, keys: &[Key], max_age: Nanos) -> Result<(Revision, Vec<Option<Value>>), StoreError> {
        let seen = self.seen()?;
        let is_over = |key: &Key| Ok::<_, StoreError>(seen.term(key)?.is_some_and(|end| end <= seen.now));
        let read = |key: &Key| match is_over(key)? {
            true => Ok(None),
            false => seen.value(key, max_age),
        };
        let values = keys.iter().map(read).collect::<Result<_, StoreError>>()?;
        Ok((seen.transaction.revision()?, values))
    }

    /// Carries out a command that changes nothing, on one snapshot.
    ///
    /// # Errors
    /// Those of the store.
    pub fn look(&self, command: &ClientCommand) -> Result<(Revision, Vec<Option<Value>>), StoreError> {
        let seen = self.seen()?;
        let reply = self
            .clock
            .as_ref()
            .map(|_| commands::look(&seen, command))
            .transpose()?;
        Ok((seen.transaction.revision()?, vec![reply]))
    }

    fn seen(&self) -> Result<SnapshotView<'_, '_, E, O>, StoreError> {
        // The last expiry may be removed, or the first one set, while the snapshot is taken.
        let had_terms = self.has_terms();
        let transaction = self.store.read_transaction(Deadline::NONE)?;
        Ok(SnapshotView {
            transaction,
            replica: self,
            now: self.now(),
            has_terms: had_terms || self.has_terms(),
        })
    }

    /// Syncs to the medium; returns the revision up to which all entries are there.
    ///
    /// # Errors
    /// Those of the store.
    pub fn sync(&self) -> Result<Revision, StoreError> {
        let revision = self.revision();
        self.store.flush()?;
        Ok(revision)
    }

    /// Last key up to which records are here, see [`Store::upto`].
    pub fn upto(&self) -> Option<Key> {
        self.store.upto()
    }

    /// All records, from one snapshot.
    ///
    /// # Errors
    /// Those of the store.
    pub fn image(&self) -> Result<Image, StoreError> {
        self.store.image()
    }

    /// The records behind a key, approximately `bytes_max` bytes of them, from one snapshot.
    ///
    /// # Errors
    /// Those of the store.
    pub fn image_from(&self, after: Option<&[u8]>, bytes_max: usize) -> Result<Image, StoreError> {
        self.store.image_from(after, bytes_max)
    }

    /// Replaces the records in an image's range by the image.
    ///
    /// # Errors
    /// Those of the store.
    pub fn install(&self, image: &Image) -> Result<(), StoreError> {
        // Until it is known otherwise, any record may expire.
        self.next_due.store(0, Ordering::Release);
        self.store.install_image(image)?;
        self.read_terms()?;
        self.room.lock().unwrap_or_else(PoisonError::into_inner).left = 0;
        Ok(())
    }
}

/// Outcome of one request.
enum Outcome {
    /// The write set of the request is part of the batch; the events of its keys.
    Kept(Output, Vec<KeyEvent>),
    Undone(Execution),
}

fn execute<E: Engine, O: Os>(
    batch: &mut Batch<'_, E, O>,
    request: &Request,
    revision: Revision,
    replica: &Replica<E, O>,
    (is_full, now, has_terms): (bool, Millis, &Cell<bool>),
) -> Result<Outcome, StoreError> {
    let full = |len| match len {
        0 => Outcome::Undone(Execution::NotRun),
        len => Outcome::Undone(Execution::Refused(Refusal::WritesTooLong { len })),
    };
    let first = batch.kept() == 0;
    let transaction = match batch.transaction(Deadline::NONE) {
        Ok(transaction) => transaction,
        Err(StoreError::BatchFull { .. }) => return Ok(full(0)),
        Err(error) => return Err(error),
    };
    let mut view = View {
        transaction,
        replica,
        is_full,
        now,
        has_terms,
        judged: Cell::new(false),
        label: 0,
        events: Vec::new(),
    };
    let performed = records::perform(&mut view, request.id, &request.work, revision);
    let performed = performed.and_then(|output| match view.judged.get() {
        true => view.write_time().map(|()| output).map_err(undo),
        false => Ok(output),
    });
    match performed {
        Ok(output) => {
            view.transaction.keep()?;
            Ok(Outcome::Kept(output, view.events))
        }
        Err(Undo::Refused(refusal)) => Ok(Outcome::Undone(Execution::Refused(refusal))),
        // If it was the first, it would not fit alone either.
        Err(Undo::Failed(StoreError::BatchFull { bytes, .. })) => Ok(full(if first { bytes } else { 0 })),
        Err(Undo::Failed(error)) => Err(error),
    }
}
