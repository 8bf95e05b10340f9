//! Transactions: a deadline, a consistent view, and an account of their time.
//!
//! Each call stamps the clock when it is entered and when it returns; the time between calls is computation. A stamp
//! costs more than it seems: it waits for all loads before it, so a read cannot overlap with the following
//! instructions. A read transaction therefore begins with its first call, which takes the snapshot (as PostgreSQL
//! does), and ends with the return of the last: one that reads a single record stamps the clock twice. The time of a
//! job before and after is the job's own, not the transaction's.

use std::cell::{Cell, OnceCell};
use std::ops::{ControlFlow, RangeBounds};

use punctual_os::Os;
use punctual_units::{Nanos, Time};

use crate::engine::{
    Engine, EngineError, KEY_MAX_LEN, KeyRange, OwnedRange, Read, Table, Write, borrowed, owned, prefix_range,
};
use crate::expiry::{SWEPT_FOR_ONE, Sweep, TermView, check_expiring};
use crate::permit::{Permit, WaitedFor};
use crate::records::{MergedRecords, Records};
use crate::shared::OthersChanges;
use crate::store::{Freshness, Store};
use crate::tables::{REGION, key_range};
use crate::watch::ChangeKind;
use crate::{Deadline, Split, StoreError, Value};

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

/// A transaction: what both kinds read, each from its own [state](TransactionState).
pub struct Transaction<'s, E: Engine + 's, O: Os, S> {
    store: &'s Store<E, O>,
    meter: Meter<'s, O>,
    pub(crate) state: S,
}

/// Source of a transaction's reads: a snapshot, or its own changes above the last commit.
pub trait TransactionState<'s, E: Engine + 's, O: Os> {
    /// The engine's snapshot or write transaction.
    type Read: Read;

    #[doc(hidden)]
    fn read(&self, store: &'s Store<E, O>, deadline: Deadline) -> Result<(&Self::Read, TermView), StoreError>;

    #[doc(hidden)]
    fn has_own_terms(&self) -> bool;
}

/// A read-only transaction on one snapshot, which the first read takes. Dropping it ends it as well.
///
/// A transaction that stays open for too long loses its snapshot, see [`readers`](crate::readers): its next call fails
/// with [`EngineError::SnapshotEnded`](crate::engine::EngineError::SnapshotEnded), and so do all that follow. Values
/// that it returned before stay readable.
///
/// In memory-first mode temporal objects are read from memory, each as it is at that moment; the snapshot covers all
/// other records. A thread may have several open, each with its own snapshot.
pub type ReadTransaction<'s, E, O> = Transaction<'s, E, O, ReadState<'s, E>>;

/// A write transaction; dropping it undoes it.
pub type WriteTransaction<'s, E, O> = Transaction<'s, E, O, WriteState<'s, E, O>>;

/// The snapshot of a read transaction.
pub struct ReadState<'s, E: Engine + 's> {
    /// For the view of records that expire, see [`TermView::Snapshot`].
    raised: u64,
    snapshot: OnceCell<E::Snapshot<'s>>,
}

impl<'s, E: Engine, O: Os> TransactionState<'s, E, O> for ReadState<'s, E> {
    type Read = E::Snapshot<'s>;

    #[inline(always)]
    fn read(&self, store: &'s Store<E, O>, deadline: Deadline) -> Result<(&E::Snapshot<'s>, TermView), StoreError> {
        let snapshot = match self.snapshot.get() {
            Some(snapshot) => snapshot,
            None => {
                let taken = store.snapshot(deadline)?;
                self.snapshot.get_or_init(|| taken)
            }
        };
        Ok((snapshot, TermView::Snapshot(self.raised)))
    }

    fn has_own_terms(&self) -> bool {
        false
    }
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
        let state = ReadState {
            raised: store.expiry.raised(),
            snapshot: OnceCell::new(),
        };
        Ok(Transaction { store, meter, state })
    }

    pub(crate) fn with_snapshot<T>(
        &self,
        look: impl FnOnce(&Store<E, O>, &E::Snapshot<'s>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.look(|store, snapshot, _| look(store, snapshot))
    }

    /// Ends the transaction; returns the split of its time, from the begin of its first call to the return of the last.
    /// All zero without a deadline ([`Deadline::NONE`]): such a transaction is not timed. Releasing the snapshot
    /// afterwards takes neither lock nor system call.
    #[inline]
    pub fn finish(self) -> Split {
        self.meter.split(Nanos::ZERO, self.meter.returned.get())
    }
}

/// Refuses a key that no plain record can have: for reads and writes alike.
#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<(), StoreError> {
    match key {
        [0, ..] => refuse_reserved(key)?,
        [_, ..] => {}
        [] => return Err(EngineError::KeyLength { len: 0 }.into()),
    }
    if key.len() > KEY_MAX_LEN {
        return Err(EngineError::KeyLength { len: key.len() }.into());
    }
    Ok(())
}

/// The answer of a call by key, for programs whose clients choose the keys: nothing is there under one that no
/// record can have, for its length or because it is the store's own.
///
/// # Errors
/// All others of `answer`.
pub fn unless_impossible<T: Default>(answer: Result<T, StoreError>) -> Result<T, StoreError> {
    match answer {
        Err(StoreError::Engine(EngineError::KeyLength { .. }) | StoreError::ReservedKey { .. }) => Ok(T::default()),
        answer => answer,
    }
}

impl<'s, E: Engine, O: Os, S: TransactionState<'s, E, O>> Transaction<'s, E, O, S> {
    /// Reads within the account of time and the deadline.
    #[inline(always)]
    fn look<'t, T>(
        &'t self,
        call: impl FnOnce(&'t Store<E, O>, &'t S::Read, TermView) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.meter.step(|| {
            let (read, terms) = self.state.read(self.store, self.meter.deadline)?;
            call(self.store, read, terms)
        })
    }

    /// As [`get_with`](Transaction::get_with), by a key of the engine's.
    #[inline(always)]
    pub(crate) fn look_at<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        self.look(|store, read, terms| store.value_with(read, terms, key, look))
    }

    /// The value of `key`, own changes included: copied.
    ///
    /// # Errors
    /// [`EngineError::KeyLength`] and [`StoreError::ReservedKey`] for a key that no record can have;
    /// [`StoreError::DeadlinePassed`]; [`StoreError::Engine`], for example if the snapshot was ended.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, StoreError> {
        self.get_with(key, Value::of)
    }

    /// Calls `look` with the value of `key`, without a copy; returns the answer of `look`, or `None` if there is no
    /// value. The bytes stay valid until `look` returns, even if the snapshot is ended meanwhile. The time in `look`
    /// counts as data time: copy or compare in it, and compute afterwards.
    ///
    /// # Errors
    /// Those of [`get`](Transaction::get).
    #[inline(always)]
    pub fn get_with<T>(&self, key: impl AsRef<[u8]>, look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        check_key(key.as_ref())?;
        self.look_at(key.as_ref(), look)
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// Those of [`get`](Transaction::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, StoreError> {
        Ok(self.get_with(key, |_| ())?.is_some())
    }

    /// The value of the temporal object `key` if it is not older than `max_age`.
    ///
    /// # Errors
    /// [`StoreError::NotTemporal`], [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn get_fresh(&self, key: impl AsRef<[u8]>, max_age: Nanos) -> Result<Freshness<Value>, StoreError> {
        let now = self.meter.os.since_boot();
        let reading = self.look(|store, read, _| store.reading(read, key.as_ref()));
        Ok(Freshness::of(reading?, max_age, now))
    }

    /// Calls `visit` with the records in `range` in ascending order, own changes included, until it breaks. The time in
    /// `visit` counts as data time: copy the needed bytes, and compute afterwards. `visit` may read this transaction.
    ///
    /// # Errors
    /// Those of [`records`](Transaction::records).
    pub fn scan(
        &self,
        range: KeyRange<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.look(|store, read, terms| store.scan_readings(read, terms, range, |key, value, _| visit(key, value)))
    }

    /// The records with keys in `range`, own changes included; see [`Records`].
    ///
    /// ```
    /// # use {punctual_engines::Memory, punctual_store::{Store, StoreOptions}, punctual_testing::VirtualOs};
    /// # let store = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default())?;
    /// for room in ["room/1", "room/2", "room/3"] {
    ///     store.put(room, "warm")?;
    /// }
    /// let transaction = store.begin_read()?;
    /// assert_eq!(transaction.range("room/1".."room/3")?.count(), 2);
    /// assert_eq!(transaction.range("room/2"..)?.rev().count(), 2);
    /// # Ok::<(), punctual_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// [`StoreError::ReversedRange`], and those of [`records`](Transaction::records).
    pub fn range<Q: AsRef<[u8]>>(&self, range: impl RangeBounds<Q>) -> Result<Records<'_, E, O, S::Read>, StoreError> {
        let range = key_range(&range, |key| Ok(key.as_ref().to_vec()))?;
        self.records_at(&range, &[])
    }

    /// The records with keys in `range`, whose bounds are a tuple; an empty or reversed range has none.
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn records(&self, range: KeyRange<'_>) -> Result<Records<'_, E, O, S::Read>, StoreError> {
        self.records_at(&owned(range), &[])
    }

    /// The records whose keys begin with `prefix`, own changes included.
    ///
    /// # Errors
    /// Those of [`records`](Transaction::records).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Records<'_, E, O, S::Read>, StoreError> {
        self.records(prefix_range(prefix.as_ref(), &mut Vec::new()))
    }

    /// The records in a range of the engine's keys, which begin with `prefix`.
    pub(crate) fn records_at(
        &self,
        range: &OwnedRange,
        prefix: &[u8],
    ) -> Result<Records<'_, E, O, S::Read>, StoreError> {
        self.look(|store, read, terms| {
            Ok(Records {
                merged: MergedRecords::new(store, read, terms, borrowed(range), prefix),
                meter: &self.meter,
            })
        })
    }

    /// As [`records_at`](Transaction::records_at), with the records that are due and were not swept yet.
    pub(crate) fn records_and_due(
        &self,
        range: &OwnedRange,
        prefix: &[u8],
    ) -> Result<Records<'_, E, O, S::Read>, StoreError> {
        let mut records = self.records_at(range, prefix)?;
        records.merged.terms = TermView::All;
        Ok(records)
    }

    /// The thread that it waited for longest: for the write lock, or for one that held it while it had to install
    /// updates first. `None` if it waited for none.
    pub fn waited_for(&self) -> Option<WaitedFor> {
        self.meter.waited_for
    }

    /// Time for which the record `key` will still be kept: `None` if it does not expire, or does not exist; zero if it
    /// is due and has not been swept yet. See [`expiry`](crate::expiry).
    ///
    /// # Errors
    /// Those of [`get`](Transaction::get).
    #[inline]
    pub fn life_left(&self, key: impl AsRef<[u8]>) -> Result<Option<Nanos>, StoreError> {
        check_key(key.as_ref())?;
        self.life_left_at(key.as_ref())
    }

    #[inline]
    pub(crate) fn life_left_at(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError> {
        let own = self.state.has_own_terms();
        self.look(|store, read, _| Ok(store.term_left(read, key, own)?))
    }

    pub(crate) fn store(&self) -> &'s Store<E, O> {
        self.store
    }
}

/// The changes of a write transaction.
pub struct WriteState<'s, E: Engine + 's, O: Os> {
    // Before `permit`: fields are dropped in order, and the engine's lock must be free when the next thread gets the
    // store's.
    engine: E::Write<'s>,
    pub(crate) permit: Permit<'s, O>,
    /// The changes that watches get notes of: keys that were set or deleted.
    changes: Vec<(Vec<u8>, ChangeKind)>,
    label: u8,
    /// Whether any watch was open when it began; a watch waits for the transactions that began before it.
    watched: bool,
    /// Changes to the state of expiry.
    pub(crate) swept: Sweep,
    pub(crate) others: OthersChanges,
}

impl<'s, E: Engine, O: Os> TransactionState<'s, E, O> for WriteState<'s, E, O> {
    type Read = E::Write<'s>;

    fn read(&self, store: &'s Store<E, O>, _: Deadline) -> Result<(&E::Write<'s>, TermView), StoreError> {
        Ok((&self.engine, store.expiry.writing(&self.swept)))
    }

    fn has_own_terms(&self) -> bool {
        self.swept.has_own()
    }
}

impl<'s, E: Engine, O: Os> WriteTransaction<'s, E, O> {
    /// `sweep`: number of due records to remove first; `None`: this transaction's share.
    pub(crate) fn begin(store: &'s Store<E, O>, deadline: Deadline, sweep: Option<usize>) -> Result<Self, StoreError> {
        let begun = Self::begin_by(store, deadline, sweep, |now| store.permit(deadline, now).map(Some))?;
        Ok(begun.unwrap_or_else(|| unreachable!("it has the permit")))
    }

    /// As [`begin`](Transaction::begin), with a wait for the write lock of the caller's; `None` if that has none.
    pub(crate) fn begin_by(
        store: &'s Store<E, O>,
        deadline: Deadline,
        sweep: Option<usize>,
        permit: impl FnOnce(Time) -> Result<Option<(Permit<'s, O>, Nanos)>, StoreError>,
    ) -> Result<Option<Self>, StoreError> {
        if store.replicated {
            return Err(StoreError::Replicated);
        }
        let began = store.os.now();
        deadline.check(began)?;
        store.look_at_readers(began);
        let pending = store.to_install_first();
        let Some((permit, lock)) = permit(began)? else {
            return Ok(None);
        };
        if pending > 0 {
            store.help_holding(pending, deadline, &permit);
        }
        if store.expiry.is_starved() {
            store.sweep_apart()?;
        }
        Self::begin_holding(store, deadline, sweep, began, (permit, lock)).map(Some)
    }

    /// Begins a transaction of the thread that has the write lock.
    pub(crate) fn begin_holding(
        store: &'s Store<E, O>,
        deadline: Deadline,
        sweep: Option<usize>,
        began: Time,
        (permit, lock): (Permit<'s, O>, Nanos),
    ) -> Result<Self, StoreError> {
        permit.commits(None);
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
        let state = WriteState {
            engine,
            permit,
            changes,
            label: 0,
            watched,
            swept,
            others: OthersChanges::default(),
        };
        Ok(Transaction { store, meter, state })
    }

    /// Sets or removes a record by its key of the engine's; true if a removed record was there.
    pub(crate) fn change_at(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<bool, StoreError> {
        match value {
            Some(value) => self.set_at(key, value, None).map(|()| false),
            None => self.delete_at(key),
        }
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// [`StoreError::Temporal`], [`EngineError::KeyLength`] and [`StoreError::ReservedKey`] for a key that no plain
    /// record can have; [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), StoreError> {
        self.store.check_plain(key.as_ref())?;
        self.set_at(key.as_ref(), value.as_ref(), None)
    }

    /// Sets `key` to `value` for the time `life`: afterwards no read finds it, see [`expiry`](crate::expiry).
    ///
    /// # Errors
    /// [`StoreError::ExpiringKey`], and those of [`put`](Transaction::put). If the quota is met, the record may
    /// have its value and no expiry.
    pub fn put_for(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, life: Nanos) -> Result<(), StoreError> {
        self.store.check_plain(key.as_ref())?;
        self.set_at(key.as_ref(), value.as_ref(), Some(life))
    }

    /// Sets a record by a key of the engine's, of any table.
    pub(crate) fn set_at(&mut self, key: &[u8], value: &[u8], life: Option<Nanos>) -> Result<(), StoreError> {
        if life.is_some() {
            check_expiring(key)?;
        }
        let Self {
            store,
            meter,
            state:
                WriteState {
                    engine,
                    swept,
                    changes,
                    watched,
                    ..
                },
        } = self;
        meter.call(|_| {
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
        let label = self.state.label;
        self.note(key, ChangeKind::Put(label));
        if life.is_some() {
            self.note(key, ChangeKind::Expiry(true, label));
        }
        Ok(())
    }

    /// Labels the changes from here on for watches, see [`Watch::wait_labelled`](crate::watch::Watch::wait_labelled).
    pub fn label(&mut self, label: u8) {
        self.state.label = label;
    }

    #[inline]
    fn note(&mut self, key: &[u8], kind: ChangeKind) {
        if self.state.watched && self.store.watches.want(key) {
            self.state.changes.push((key.to_vec(), kind));
        }
    }

    /// Removes `key`; true if it was there.
    ///
    /// # Errors
    /// Those of [`put`](Transaction::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool, StoreError> {
        self.store.check_plain(key.as_ref())?;
        self.delete_at(key.as_ref())
    }

    /// Removes a record by a key of the engine's, of any table.
    pub(crate) fn delete_at(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        let Self {
            store,
            meter,
            state: WriteState { engine, swept, .. },
        } = self;
        let (was_there, was_due) = meter.call(|_| {
            let was_due = store.is_due(store.expiry.writing(swept), engine, key)?;
            let was_there = engine.delete(Table::Data, key)?;
            store.end_term(engine, key, swept)?;
            Ok((was_there, was_due))
        })?;
        if was_there {
            let removed = ChangeKind::Deleted(self.state.label);
            self.note(key, if was_due { ChangeKind::Expired } else { removed });
        }
        Ok(was_there && !was_due)
    }

    /// Replaces the expiry of the record `key`: it lives for `life` from now on, or without limit if `None`; false if
    /// there is no such record.
    ///
    /// # Errors
    /// [`StoreError::ExpiringKey`], and those of [`put`](Transaction::put).
    pub fn set_life(&mut self, key: impl AsRef<[u8]>, life: Option<Nanos>) -> Result<bool, StoreError> {
        self.store.check_plain(key.as_ref())?;
        self.set_life_at(key.as_ref(), life)
    }

    pub(crate) fn set_life_at(&mut self, key: &[u8], life: Option<Nanos>) -> Result<bool, StoreError> {
        if life.is_some() {
            check_expiring(key)?;
        }
        let Self {
            store,
            meter,
            state: WriteState { engine, swept, .. },
        } = self;
        let is_there = meter.call(|_| {
            if engine.get_with(Table::Data, key, |_| ())?.is_none()
                || store.is_due(store.expiry.writing(swept), engine, key)?
            {
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
            self.note(key, ChangeKind::Expiry(life.is_some(), self.state.label));
        }
        Ok(is_there)
    }

    /// Commits; returns the split of the transaction's time. After the return, the changes are visible, and as durable
    /// as [`Store::durability`] says.
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`], [`StoreError::Engine`]; the transaction is undone.
    pub fn commit(self) -> Result<Split, StoreError> {
        self.commit_or_hold().map_err(|refused| refused.0)
    }

    /// As [`commit`](Transaction::commit); the write lock is not released if it fails.
    pub(crate) fn commit_or_hold(self) -> Result<Split, Box<(StoreError, Permit<'s, O>)>> {
        let Self { store, meter, state } = self;
        let WriteState {
            engine,
            permit,
            changes,
            swept,
            others,
            ..
        } = state;
        let entered = meter.os.now();
        if let Err(passed) = meter.deadline.check(entered) {
            drop(engine);
            return Err(Box::new((passed, permit)));
        }
        permit.commits(Some(entered));
        store.expiry.announce(&swept);
        if let Err(refused) = engine.commit() {
            return Err(Box::new((refused.into(), permit)));
        }
        store.expiry.committed(swept);
        let woken = store.watches.note_all(&changes);
        others.committed();
        drop(permit);
        store.watches.wake(woken);
        let ended = meter.os.now();
        Ok(meter.split(ended.since(entered), ended))
    }

    /// Undoes the transaction; the write lock is not released.
    pub(crate) fn undo_and_hold(self) -> Permit<'s, O> {
        drop(self.state.engine);
        self.state.permit
    }

    /// Undoes the transaction; returns the split of its time.
    pub fn abort(self) -> Split {
        let Self { meter, state, .. } = self;
        let entered = meter.os.now();
        drop((state.engine, state.permit));
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
    /// Refuses a key that no plain record of the default table can have.
    pub(crate) fn check_plain(&self, key: &[u8]) -> Result<(), StoreError> {
        check_key(key)?;
        self.refuse_temporal(key)
    }

    pub(crate) fn refuse_temporal(&self, key: &[u8]) -> Result<(), StoreError> {
        match self.objects.find(key) {
            Some(_) => Err(StoreError::Temporal { key: key.to_vec() }),
            None => Ok(()),
        }
    }
}
