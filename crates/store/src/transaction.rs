//! Transactions: a deadline, a consistent view, and an account of their time.
//!
//! Each call stamps the clock when it is entered and when it returns; the time between calls is computation. A stamp
//! costs more than it seems: it waits for all loads before it, so a read cannot overlap with the following
//! instructions. A read transaction therefore begins with its first call, which takes the snapshot (as PostgreSQL
//! does), and ends with the return of the last: one that reads a single record stamps the clock twice. The time of a
//! job before and after is the job's own, not the transaction's.

use std::cell::{Cell, OnceCell};
use std::ops::ControlFlow;

use punctual_os::Os;
use punctual_units::{Nanos, Time};

use crate::engine::{Engine, EngineError, KeyRange, Read, Table, Write, prefix_range};
use crate::expiry::{SWEPT_FOR_ONE, Sweep, TermView, check_expiring};
use crate::permit::{Permit, WaitedFor};
use crate::records::{MergedRecords, Records};
use crate::store::{Freshness, Store};
use crate::tables::{NamedTable, REGION};
use crate::watch::ChangeKind;
use crate::{Deadline, Split, StoreError, Value};

/// The value that a read transaction returns.
type SnapshotValue<'t, 's, E> = Value<<<E as Engine>::Snapshot<'s> as Read>::Bytes<'t>>;
/// The value that a write transaction returns.
type WriteValue<'t, 's, E> = Value<<<E as Engine>::Write<'s> as Read>::Bytes<'t>>;

/// The account of a running transaction's time.
pub(crate) struct Meter<'s, O> {
    os: &'s O,
    deadline: Deadline,
    /// Begin of the transaction; `None` for a read transaction before its first call.
    began: Cell<Option<Time>>,
    /// Return of the last call.
    returned: Cell<Time>,
    lock: Nanos,
    waited_for: Option<WaitedFor>,
    data: Cell<Nanos>,
    /// Whether a call is under way: calls from within its visitor are part of it.
    inside: Cell<bool>,
    /// Whether calls are timed even without a deadline.
    always: bool,
}

impl<'s, O: Os> Meter<'s, O> {
    /// An account that begins with the first call.
    #[inline]
    fn new(os: &'s O, deadline: Deadline) -> Self {
        let (began, returned, data) = (Cell::new(None), Cell::new(Time::ZERO), Cell::new(Nanos::ZERO));
        Meter {
            os,
            deadline,
            began,
            returned,
            lock: Nanos::ZERO,
            waited_for: None,
            data,
            inside: Cell::new(false),
            always: false,
        }
    }

    /// Runs a store call and books its time as `data`, unless a firm deadline has passed.
    #[inline]
    fn call<T>(&self, call: impl FnOnce(Time) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let entered = self.os.now();
        self.deadline.check(entered)?;
        let outermost = !self.inside.replace(true);
        let answer = call(entered);
        if outermost {
            self.book_data(entered, self.os.now());
        }
        answer
    }

    /// Reads one record of an iterator: timed as the transaction's other reads are.
    #[inline]
    pub(crate) fn step<T>(&self, call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.always {
            self.call(|_| call())
        } else {
            self.read_call(call)
        }
    }

    /// As [`call`](Meter::call), for the calls of a read transaction, of which there may be very many: timed with the
    /// clock's cheaper stamps, and not at all without a deadline.
    #[inline(always)]
    fn read_call<T>(&self, call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.deadline == Deadline::NONE {
            return call();
        }
        if self.deadline.is_firm() {
            self.deadline.check(self.os.now())?;
        }
        if self.inside.replace(true) {
            return call();
        }
        let entered = self.os.stamp();
        let answer = call();
        self.book_data(entered, self.os.stamp());
        answer
    }

    #[inline]
    fn book_data(&self, entered: Time, returned: Time) {
        self.inside.set(false);
        if self.began.get().is_none() {
            self.began.set(Some(entered));
        }
        self.data.set(self.data.get() + returned.since(entered));
        self.returned.set(returned);
    }

    /// Rebooks a wait for the write lock, which was booked as data.
    #[cold]
    fn waited(&mut self, waited: LockWait) {
        let lock = waited.lock.min(self.data.get());
        self.data.set(self.data.get() - lock);
        (self.lock, self.waited_for) = (lock, waited.longest);
    }

    /// The split of the time up to `ended`. Computation is the time that is not booked otherwise, so that the parts add
    /// up to the elapsed time exactly. The caller fills in the time before the begin of the transaction, and how long
    /// the thread was preempted.
    #[inline]
    fn split(&self, commit: Nanos, ended: Time) -> Split {
        let (lock, data) = (self.lock, self.data.get());
        let elapsed = self.began.get().map_or(Nanos::ZERO, |began| ended.since(began));
        Split {
            lock,
            data,
            computation: elapsed - lock - data - commit,
            commit,
            ..Split::default()
        }
    }
}

/// A wait for the write lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LockWait {
    pub lock: Nanos,
    pub longest: Option<WaitedFor>,
}

/// A read-only transaction on one snapshot, which the first read takes. Dropping it ends it as well.
///
/// A transaction that stays open for too long loses its snapshot, see [`readers`](crate::readers): its next call fails
/// with [`EngineError::SnapshotEnded`](crate::engine::EngineError::SnapshotEnded), and so do all that follow. Values
/// that it returned before stay readable.
///
/// In memory-first mode temporal objects are read from memory, each as it is at that moment; the snapshot covers all
/// other records. A thread may have several open, each with its own snapshot.
pub struct ReadTransaction<'s, E: Engine + 's, O: Os> {
    store: &'s Store<E, O>,
    meter: Meter<'s, O>,
    /// For the view of records that expire, see [`TermView::Snapshot`].
    raised: u64,
    snapshot: OnceCell<E::Snapshot<'s>>,
}

impl<'s, E: Engine, O: Os> ReadTransaction<'s, E, O> {
    #[inline]
    pub(crate) fn begin(store: &'s Store<E, O>, deadline: Deadline) -> Result<Self, StoreError> {
        let mut meter = Meter::new(&store.os, deadline);
        let pending = store.to_install_first();
        if pending > 0 || deadline.is_firm() {
            let waited = meter.read_call(|| Ok(store.help(pending, deadline, store.os.now())))?;
            meter.waited(waited);
        }
        Ok(ReadTransaction {
            store,
            meter,
            raised: store.expiry.raised(),
            snapshot: OnceCell::new(),
        })
    }

    #[inline(always)]
    fn snapshot(&self) -> Result<&E::Snapshot<'s>, StoreError> {
        match self.snapshot.get() {
            Some(snapshot) => Ok(snapshot),
            None => {
                let taken = self.store.snapshot(self.meter.deadline)?;
                Ok(self.snapshot.get_or_init(|| taken))
            }
        }
    }

    pub(crate) fn with_snapshot<T>(
        &self,
        look: impl FnOnce(&Store<E, O>, &E::Snapshot<'s>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.meter.read_call(|| look(self.store, self.snapshot()?))
    }

    /// The value of `key`: of the engine's own type, or copied from memory.
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`]; [`StoreError::Engine`], for example if the snapshot was ended.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<SnapshotValue<'_, 's, E>>, StoreError> {
        self.meter
            .read_call(|| self.store.value(self.snapshot()?, TermView::Snapshot(self.raised), key))
    }

    /// Calls `look` with the value of `key`, without a copy; returns the answer of `look`, or `None` if there is no
    /// value. The bytes stay valid until `look` returns, even if the snapshot is ended meanwhile. The time in `look`
    /// counts as data time: copy or compare in it, and compute afterwards.
    ///
    /// # Errors
    /// Those of [`get`](ReadTransaction::get).
    #[inline(always)]
    pub fn get_with<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        self.meter.read_call(|| {
            self.store
                .value_with(self.snapshot()?, TermView::Snapshot(self.raised), key, look)
        })
    }

    /// The value of the temporal object `key` if it is not older than `max_age`.
    ///
    /// # Errors
    /// [`StoreError::NotTemporal`], [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn get_fresh(&self, key: &[u8], max_age: Nanos) -> Result<Freshness<SnapshotValue<'_, 's, E>>, StoreError> {
        let now = self.meter.os.since_boot();
        self.meter
            .read_call(|| self.store.fresh_value(self.snapshot()?, key, max_age, now))
    }

    /// Calls `visit` with the records in `range` in ascending order, until it breaks. The time in `visit` counts as
    /// data time: copy the needed bytes, and compute afterwards. `visit` may read this transaction.
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn scan(
        &self,
        range: KeyRange<'_>,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.meter.read_call(|| {
            self.store
                .scan_values(self.snapshot()?, TermView::Snapshot(self.raised), range, visit)
        })
    }

    /// The records in `range`, one after the other; see [`Records`].
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn records(&self, range: KeyRange<'_>) -> Result<Records<'_, E, O, E::Snapshot<'s>>, StoreError> {
        self.meter.read_call(|| {
            Ok(Records {
                merged: MergedRecords::new(self.store, self.snapshot()?, TermView::Snapshot(self.raised), range),
                meter: &self.meter,
            })
        })
    }

    /// The records whose keys begin with `prefix`.
    ///
    /// # Errors
    /// Those of [`records`](ReadTransaction::records).
    pub fn records_with_prefix(&self, prefix: &[u8]) -> Result<Records<'_, E, O, E::Snapshot<'s>>, StoreError> {
        self.records(prefix_range(prefix, &mut Vec::new()))
    }

    /// The value of `key` in a named table; `None` if there is none.
    ///
    /// # Errors
    /// Those of [`get`](ReadTransaction::get).
    pub fn get_in(&self, table: &NamedTable, key: &[u8]) -> Result<Option<SnapshotValue<'_, 's, E>>, StoreError> {
        let Ok(key) = table.key(key) else { return Ok(None) };
        let read = || Ok(self.snapshot()?.get(Table::Data, &key)?.map(Value::of_record));
        self.meter.read_call(read)
    }

    /// The records of a named table, see [`Records`].
    ///
    /// # Errors
    /// Those of [`records`](ReadTransaction::records).
    pub fn records_in(
        &self,
        table: &NamedTable,
        range: KeyRange<'_>,
    ) -> Result<Records<'_, E, O, E::Snapshot<'s>>, StoreError> {
        self.meter.read_call(|| {
            Ok(Records {
                merged: MergedRecords::in_table(self.store, self.snapshot()?, table, range),
                meter: &self.meter,
            })
        })
    }

    /// The thread that it waited for longest, if it had to install updates first and another thread held the write
    /// lock.
    pub fn waited_for(&self) -> Option<WaitedFor> {
        self.meter.waited_for
    }

    /// Time for which the record `key` will still be kept: `None` if it does not expire, or does not exist; zero if it
    /// is due and has not been swept yet. See [`expiry`](crate::expiry).
    ///
    /// # Errors
    /// Those of [`get`](ReadTransaction::get).
    #[inline]
    pub fn life_left(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError> {
        self.meter
            .read_call(|| Ok(self.store.term_left(self.snapshot()?, key, false)?))
    }

    /// Ends the transaction; returns the split of its time, from the begin of its first call to the return of the last.
    /// All zero without a deadline ([`Deadline::NONE`]): such a transaction is not timed. Releasing the snapshot
    /// afterwards takes neither lock nor system call.
    #[inline]
    pub fn finish(self) -> Split {
        self.meter.split(Nanos::ZERO, self.meter.returned.get())
    }
}

/// A write transaction; dropping it undoes it.
pub struct WriteTransaction<'s, E: Engine + 's, O: Os> {
    store: &'s Store<E, O>,
    meter: Meter<'s, O>,
    // Before `permit`: fields are dropped in order, and the engine's lock must be free when the next thread gets the
    // store's.
    engine: E::Write<'s>,
    permit: Permit<'s, O>,
    /// The changes that watches get notes of: keys that were set or deleted.
    changes: Vec<(Vec<u8>, ChangeKind)>,
    label: u8,
    /// Whether any watch was open when it began; a watch waits for the transactions that began before it.
    watched: bool,
    /// Changes to the state of expiry.
    pub(crate) swept: Sweep,
}

impl<'s, E: Engine, O: Os> WriteTransaction<'s, E, O> {
    /// `sweep`: number of due records to remove first; `None`: this transaction's share.
    pub(crate) fn begin(store: &'s Store<E, O>, deadline: Deadline, sweep: Option<usize>) -> Result<Self, StoreError> {
        if store.replicated {
            return Err(StoreError::Replicated);
        }
        let began = store.os.now();
        deadline.check(began)?;
        store.look_at_readers(began);
        let pending = store.to_install_first();
        let (permit, lock) = store.permit(deadline, began)?;
        if pending > 0 {
            store.help_holding(pending, deadline, &permit);
        }
        if store.expiry.is_starved() {
            store.sweep_apart()?;
        }
        let mut engine = store.engine.write()?;
        let watched = store.watches.any();
        let mut changes = Vec::new();
        let swept = store.sweep_first(&mut engine, sweep, |key| {
            if watched && store.watches.want(&key) {
                changes.push((key, ChangeKind::Expired));
            }
        })?;
        let meter = Meter {
            lock,
            waited_for: permit.waited_for(),
            always: true,
            ..Meter::new(&store.os, deadline)
        };
        meter.began.set(Some(began));
        meter.book_data(began + lock, store.os.now());
        Ok(WriteTransaction {
            store,
            meter,
            engine,
            permit,
            changes,
            label: 0,
            watched,
            swept,
        })
    }

    #[inline]
    fn terms(&self) -> TermView {
        self.store.expiry.writing(&self.swept)
    }

    /// The value of `key`; sees own changes.
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn get(&self, key: &[u8]) -> Result<Option<WriteValue<'_, 's, E>>, StoreError> {
        self.meter.call(|_| self.store.value(&self.engine, self.terms(), key))
    }

    /// The value of the temporal object `key` if it is not older than `max_age`.
    ///
    /// # Errors
    /// [`StoreError::NotTemporal`], [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn get_fresh(&self, key: &[u8], max_age: Nanos) -> Result<Freshness<WriteValue<'_, 's, E>>, StoreError> {
        self.meter.call(|_| {
            self.store
                .fresh_value(&self.engine, key, max_age, self.store.os.since_boot())
        })
    }

    /// Calls `visit` with the records in `range` in ascending order, own changes included, until it breaks. The time in
    /// `visit` counts as data time.
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn scan(
        &self,
        range: KeyRange<'_>,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.meter
            .call(|_| self.store.scan_values(&self.engine, self.terms(), range, visit))
    }

    /// The records in `range`, own changes included, one after the other; see [`Records`].
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`].
    pub fn records(&self, range: KeyRange<'_>) -> Result<Records<'_, E, O, E::Write<'s>>, StoreError> {
        self.meter.call(|_| {
            Ok(Records {
                merged: MergedRecords::new(self.store, &self.engine, self.terms(), range),
                meter: &self.meter,
            })
        })
    }

    /// The records whose keys begin with `prefix`, own changes included.
    ///
    /// # Errors
    /// Those of [`records`](WriteTransaction::records).
    pub fn records_with_prefix(&self, prefix: &[u8]) -> Result<Records<'_, E, O, E::Write<'s>>, StoreError> {
        self.records(prefix_range(prefix, &mut Vec::new()))
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// [`StoreError::Temporal`], [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.set(key, value, None)
    }

    /// Sets `key` to `value` for the time `life`: afterwards no read finds it, see [`expiry`](crate::expiry).
    ///
    /// # Errors
    /// [`StoreError::ExpiringKey`], and those of [`put`](WriteTransaction::put). If the quota is met, the record may
    /// have its value and no expiry.
    pub fn put_for(&mut self, key: &[u8], value: &[u8], life: Nanos) -> Result<(), StoreError> {
        check_expiring(key)?;
        self.set(key, value, Some(life))
    }

    fn set(&mut self, key: &[u8], value: &[u8], life: Option<Nanos>) -> Result<(), StoreError> {
        let Self {
            store,
            meter,
            engine,
            swept,
            changes,
            watched,
            ..
        } = self;
        meter.call(|_| {
            refuse_reserved(key)?;
            store.refuse_temporal(key)?;
            if life.is_some() {
                store.sweep(engine, SWEPT_FOR_ONE, swept, |key| {
                    if *watched && store.watches.want(&key) {
                        changes.push((key, ChangeKind::Expired));
                    }
                })?;
            }
            if *watched && store.watches.want(key) && store.is_due(store.expiry.writing(swept), engine, key)? {
                changes.push((key.to_vec(), ChangeKind::Expired));
            }
            let put = match engine.put(Table::Data, key, value) {
                Err(EngineError::QuotaFull { .. }) if store.end_processes() => engine.put(Table::Data, key, value),
                put => put,
            };
            let term = put.and_then(|()| {
                store.end_term(engine, key, swept)?;
                match life {
                    Some(life) => store.begin_term(engine, key, life, swept),
                    None => Ok(()),
                }
            });
            term.map_err(|error| store.refused(error))
        })?;
        self.note(key, ChangeKind::Put(self.label));
        if life.is_some() {
            self.note(key, ChangeKind::Expiry(true, self.label));
        }
        Ok(())
    }

    /// Labels the changes from here on for watches, see [`Watch::wait_labelled`](crate::watch::Watch::wait_labelled).
    pub fn label(&mut self, label: u8) {
        self.label = label;
    }

    #[inline]
    fn note(&mut self, key: &[u8], kind: ChangeKind) {
        if self.watched && self.store.watches.want(key) {
            self.changes.push((key.to_vec(), kind));
        }
    }

    /// Removes `key`; true if it was there.
    ///
    /// # Errors
    /// Those of [`put`](WriteTransaction::put).
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        let Self {
            store,
            meter,
            engine,
            swept,
            ..
        } = self;
        let (was_there, was_due) = meter.call(|_| {
            refuse_reserved(key)?;
            store.refuse_temporal(key)?;
            let was_due = store.is_due(store.expiry.writing(swept), engine, key)?;
            let was_there = engine.delete(Table::Data, key)?;
            store.end_term(engine, key, swept)?;
            Ok((was_there, was_due))
        })?;
        if was_there {
            let removed = ChangeKind::Deleted(self.label);
            self.note(key, if was_due { ChangeKind::Expired } else { removed });
        }
        Ok(was_there && !was_due)
    }

    /// Time for which the record `key` will still be kept, own changes included; see [`ReadTransaction::life_left`].
    ///
    /// # Errors
    /// Those of [`get`](WriteTransaction::get).
    pub fn life_left(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError> {
        let own = self.swept.has_own();
        self.meter.call(|_| Ok(self.store.term_left(&self.engine, key, own)?))
    }

    /// Replaces the expiry of the record `key`: it lives for `life` from now on, or without limit if `None`; false if
    /// there is no such record.
    ///
    /// # Errors
    /// [`StoreError::ExpiringKey`], and those of [`put`](WriteTransaction::put).
    pub fn set_life(&mut self, key: &[u8], life: Option<Nanos>) -> Result<bool, StoreError> {
        if life.is_some() {
            check_expiring(key)?;
        }
        let Self {
            store,
            meter,
            engine,
            swept,
            ..
        } = self;
        let is_there = meter.call(|_| {
            refuse_reserved(key)?;
            store.refuse_temporal(key)?;
            if engine.get(Table::Data, key)?.is_none() || store.is_due(store.expiry.writing(swept), engine, key)? {
                return Ok(false);
            }
            let term = store.end_term(engine, key, swept).and_then(|()| match life {
                Some(life) => store.begin_term(engine, key, life, swept),
                None => Ok(()),
            });
            term.map_err(|error| store.refused(error))?;
            Ok(true)
        })?;
        if is_there {
            self.note(key, ChangeKind::Expiry(life.is_some(), self.label));
        }
        Ok(is_there)
    }

    /// The value of `key` in a named table; sees own changes.
    ///
    /// # Errors
    /// Those of [`get`](WriteTransaction::get).
    pub fn get_in(&self, table: &NamedTable, key: &[u8]) -> Result<Option<WriteValue<'_, 's, E>>, StoreError> {
        let Ok(key) = table.key(key) else { return Ok(None) };
        let read = |_| Ok(self.engine.get(Table::Data, &key)?.map(Value::of_record));
        self.meter.call(read)
    }

    /// The records of a named table, own changes included, see [`Records`].
    ///
    /// # Errors
    /// Those of [`records`](WriteTransaction::records).
    pub fn records_in(
        &self,
        table: &NamedTable,
        range: KeyRange<'_>,
    ) -> Result<Records<'_, E, O, E::Write<'s>>, StoreError> {
        self.meter.call(|_| {
            Ok(Records {
                merged: MergedRecords::in_table(self.store, &self.engine, table, range),
                meter: &self.meter,
            })
        })
    }

    /// Sets `key` to `value` in a named table. Watches get no note.
    ///
    /// # Errors
    /// [`StoreError::TableKey`], [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn put_in(&mut self, table: &NamedTable, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let Self {
            store, meter, engine, ..
        } = self;
        meter.call(|_| {
            let put = engine.put(Table::Data, &table.key(key)?, value);
            put.map_err(|error| store.refused(error))
        })
    }

    /// Removes `key` from a named table; true if it was there. Watches get no note.
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn delete_in(&mut self, table: &NamedTable, key: &[u8]) -> Result<bool, StoreError> {
        let Ok(key) = table.key(key) else { return Ok(false) };
        let Self { meter, engine, .. } = self;
        meter.call(|_| Ok(engine.delete(Table::Data, &key)?))
    }

    /// The thread that it waited for longest; `None` if the write lock was free.
    pub fn waited_for(&self) -> Option<WaitedFor> {
        self.meter.waited_for
    }

    /// Commits; returns the split of the transaction's time. After the return, the changes are visible, and as durable
    /// as [`Store::durability`] says.
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`], [`StoreError::Engine`]; the transaction is undone.
    pub fn commit(self) -> Result<Split, StoreError> {
        let Self {
            store,
            meter,
            engine,
            permit,
            changes,
            swept,
            ..
        } = self;
        let entered = meter.os.now();
        meter.deadline.check(entered)?;
        permit.commits(entered);
        store.expiry.announce(&swept);
        engine.commit()?;
        store.expiry.committed(swept);
        let woken = store.watches.note_all(&changes);
        drop(permit);
        store.watches.wake(woken);
        let ended = meter.os.now();
        Ok(meter.split(ended.since(entered), ended))
    }

    /// Undoes the transaction; returns the split of its time.
    pub fn abort(self) -> Split {
        let Self {
            meter, engine, permit, ..
        } = self;
        let entered = meter.os.now();
        drop((engine, permit));
        let ended = meter.os.now();
        meter.book_data(entered, ended);
        meter.split(Nanos::ZERO, ended)
    }
}

/// Refuses a plain key in the store's own region.
pub(crate) fn refuse_reserved(key: &[u8]) -> Result<(), StoreError> {
    if key.starts_with(REGION) {
        return Err(StoreError::ReservedKey { key: key.to_vec() });
    }
    Ok(())
}

impl<E: Engine, O: Os> Store<E, O> {
    pub(crate) fn refuse_temporal(&self, key: &[u8]) -> Result<(), StoreError> {
        match self.objects.find(key) {
            Some(_) => Err(StoreError::Temporal { key: key.to_vec() }),
            None => Ok(()),
        }
    }
}
