//! Snapshots, write transactions and scans of [`Lmdb`].

use std::cell::Cell;
use std::io::Write as _;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Bound;

use heed::types::Bytes;
use heed::{MdbError, PutFlags, RoRange, RoRevRange, RoTxn, RwTxn, WithTls};
use punctual_store::engine::{
    Cursor, EngineError, KEY_MAX_LEN, KeyRange, Read, Reader, Record, Table, VALUE_MAX_LEN, Write,
};

use super::error;
use super::guard::{BaseCommit, JoinedRanges, Reach};
use super::life::Fork;
use super::order::Bytewise;
use super::room::{Allowance, INLINE_MAX};
use super::seats::Seat;
use super::{Lmdb, sum};
use crate::noted::{note, refused};
use crate::slot::{Call, SlotReader, SnapshotSlot, Ticket};

/// A read transaction of LMDB; it keeps the snapshot's pages from reuse.
pub(super) struct Pin {
    transaction: ManuallyDrop<RoTxn<'static, WithTls>>,
    fork: Fork,
}

// SAFETY: a slot lets one thread at a time touch it. LMDB binds a read transaction to its thread in one place only: the
// reader slot, found by a thread-specific key when the transaction begins (`mdb_txn_renew0` in mdb.c). Afterwards the
// transaction holds a pointer to that slot. Aborting it from another thread (`mdb_txn_end`) writes "no snapshot" there,
// and frees the transaction. The reader slot stays with the seat, whose next transaction finds it free (`seats`).
unsafe impl Send for Pin {}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        // In a forked child, the slot that LMDB would mark as empty is the parent's.
        if !self.fork.happened() {
            // SAFETY: dropped only here, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.transaction) };
        }
    }
}

/// A view of one commit. Another thread may end it between two calls.
pub struct LmdbSnapshot<'e> {
    reader: SlotReader<&'e SnapshotSlot<Pin>>,
    engine: &'e Lmdb,
    /// The commit that the snapshot follows, once it was looked up.
    base: Cell<Option<BaseCommit>>,
}

/// A write transaction, bound to its thread: LMDB's write lock must be released by the thread that took it.
pub struct LmdbWrite<'e> {
    /// `None` once it was lost, or has ended.
    transaction: Option<RwTxn<'e>>,
    pub(super) engine: &'e Lmdb,
    pub(super) allowance: Allowance,
    /// The commit that the transaction began from, once it was looked up.
    base: Cell<Option<BaseCommit>>,
    /// For each table, the pages that deletes may have joined; used only in a store opened without a check.
    joined: [JoinedRanges; 2],
    /// Whether a record was changed; an unchanged transaction is committed without a write.
    pub(super) changed: bool,
    _bound_to_thread: PhantomData<*const ()>,
}

/// Records of a write transaction in the order of their keys.
pub struct LmdbScan<'t> {
    records: OrderedRange<'t>,
    table: Table,
    engine: &'t Lmdb,
    transaction: &'t RoTxn<'t>,
    base: &'t Cell<Option<BaseCommit>>,
    near: Near,
    found: Record<'t>,
}

/// Key near which a scan is, in a store that was opened without a check; empty in others.
#[derive(Default)]
struct Near(Vec<u8>);

impl Near {
    /// Key at which a scan of `range` begins.
    fn begin(engine: &Lmdb, (low, high): KeyRange<'_>, back: bool) -> Near {
        if engine.guard.is_none() {
            return Near::default();
        }
        let (bound, open) = if back {
            (high, &[u8::MAX; KEY_MAX_LEN + 1][..])
        } else {
            (low, &[][..])
        };
        Near(match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.to_vec(),
            Bound::Unbounded => open.to_vec(),
        })
    }

    #[inline]
    fn at(&mut self, engine: &Lmdb, key: &[u8]) {
        if engine.guard.is_some() {
            self.0.clear();
            self.0.extend_from_slice(key);
        }
    }
}

/// Records in ascending or descending order of keys.
enum OrderedRange<'t> {
    Ascending(RoRange<'t, Bytes, Bytes, Bytewise>),
    Descending(RoRevRange<'t, Bytes, Bytes, Bytewise>),
    /// The scan has ended, or failed once.
    Over,
}

impl<'t> Iterator for OrderedRange<'t> {
    type Item = heed::Result<(&'t [u8], &'t [u8])>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            OrderedRange::Ascending(records) => records.next(),
            OrderedRange::Descending(records) => records.next(),
            OrderedRange::Over => None,
        }
    }
}

/// Records of a snapshot in the order of their keys.
pub struct LmdbSnapshotScan<'t> {
    /// Used inside of a call only, except for the drop: LMDB closes a cursor without a look at its transaction, which
    /// may have ended (`mdb_cursor_close`).
    records: OrderedRange<'static>,
    table: Table,
    snapshot: &'t LmdbSnapshot<'t>,
    near: Near,
    /// The record that it lends, in pages that stay while `lends`; nothing otherwise.
    found: Record<'static>,
    /// Whether it counts among the lenders of its snapshot.
    lends: bool,
}

impl<'e> LmdbSnapshot<'e> {
    #[inline]
    pub(super) fn begin(engine: &'e Lmdb, reader: Reader) -> Result<Self, EngineError> {
        if !engine.life.is_sound() {
            engine.readable()?;
        }
        let Some(seat) = engine.readers.take() else {
            return Err(engine.readers_full());
        };
        Self::begin_in(engine, seat, reader)
    }

    /// Begins a snapshot in a free seat, or in the engine's own seat if all others are taken.
    pub(super) fn begin_own(engine: &'e Lmdb) -> Result<Self, EngineError> {
        match engine.readers.take().or_else(|| engine.readers.take_own()) {
            Some(seat) => Self::begin_in(engine, seat, Reader::UNKNOWN),
            None => Err(engine.readers_full()),
        }
    }

    #[inline]
    fn begin_in(engine: &'e Lmdb, (seat, ticket): (&'e Seat, Ticket), reader: Reader) -> Result<Self, EngineError> {
        let begun = engine.readers.with_reader(seat, || engine.env.read_txn());
        let begun = begun.unwrap_or_else(|refused| Err(heed::Error::Io(refused)));
        let transaction = begun.map_err(|refused| {
            seat.slot.give_back(ticket);
            error::engine(engine.place(), "begin a read transaction")(refused)
        })?;
        let commit = transaction.id() as u64;
        // SAFETY: only the lifetime changes. The transaction borrows the environment, which is closed when all slots
        // are empty (`Seats::end_all`).
        let transaction = unsafe { std::mem::transmute::<RoTxn<'_, WithTls>, RoTxn<'static, WithTls>>(transaction) };
        let pin = Pin {
            transaction: ManuallyDrop::new(transaction),
            // SAFETY: the pin is dropped before the store is (`Seats::end_all`).
            fork: unsafe { engine.life.fork() },
        };
        Ok(LmdbSnapshot {
            reader: SlotReader::open(&seat.slot, ticket, pin, note(reader, commit)),
            engine,
            base: Cell::new(None),
        })
    }

    /// Begins a call of the snapshot's reader.
    #[inline(always)]
    fn enter(&self) -> Result<Call<'_, Pin>, EngineError> {
        if !self.engine.life.is_sound() {
            self.engine.readable()?;
        }
        self.reader.enter().map_err(refused)
    }
}

impl LmdbSnapshot<'_> {
    /// Refuses a snapshot that has been ended.
    pub(super) fn is_open(&self) -> Result<(), EngineError> {
        self.enter().map(drop)
    }

    fn begin_scan(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<LmdbSnapshotScan<'_>, EngineError> {
        let inside = self.enter()?;
        let records = inside.with(|pin| {
            let records = scan(self.engine, &pin.transaction, table, range, back)?;
            // SAFETY: only the lifetime changes. The records are read inside of calls of this snapshot only.
            let records = unsafe { std::mem::transmute::<OrderedRange<'_>, OrderedRange<'static>>(records) };
            Ok::<_, EngineError>(records)
        })?;
        Ok(LmdbSnapshotScan {
            records,
            table,
            snapshot: self,
            near: Near::begin(self.engine, range, back),
            found: NOTHING,
            lends: false,
        })
    }
}

impl Drop for LmdbSnapshot<'_> {
    #[inline]
    fn drop(&mut self) {
        self.reader.close();
    }
}

impl<'e> LmdbWrite<'e> {
    pub(super) fn begin(engine: &'e Lmdb) -> Result<Self, EngineError> {
        if !engine.life.is_sound() {
            return Err(engine.unusable());
        }
        match engine.env.write_txn() {
            Ok(transaction) if engine.room.is_to_turn_over() => LmdbWrite::of(engine, transaction).turned_over(),
            Ok(transaction) => Ok(LmdbWrite::of(engine, transaction)),
            Err(refused) => Err(error::engine(engine.place(), "begin a write transaction")(refused)),
        }
    }

    #[inline]
    fn of(engine: &'e Lmdb, transaction: RwTxn<'e>) -> Self {
        LmdbWrite {
            transaction: Some(transaction),
            engine,
            allowance: Allowance::begin(&engine.room),
            base: Cell::new(None),
            joined: Default::default(),
            changed: false,
            _bound_to_thread: PhantomData,
        }
    }

    /// As [`turn_over`](LmdbWrite::turn_over), for a transaction that begins: whatever another writer has committed in
    /// between, it has read nothing before.
    #[cold]
    fn turned_over(mut self) -> Result<Self, EngineError> {
        self.begin_behind_an_empty_commit()?;
        Ok(self)
    }

    /// Makes an empty commit and begins anew behind it, so that the pages which the commit before has freed are usable.
    /// For a transaction that has not changed anything yet.
    ///
    /// # Errors
    /// [`EngineError::TransactionLost`] if another writer came in between, so that earlier reads may be of another
    /// state: only where the engine is used without the store's write lock. Those of a commit.
    #[cold]
    pub(super) fn turn_over(&mut self) -> Result<(), EngineError> {
        if self.begin_behind_an_empty_commit()? {
            return Ok(());
        }
        self.transaction = None;
        Err(self.engine.transaction_lost())
    }

    /// Returns whether no other writer came in between.
    fn begin_behind_an_empty_commit(&mut self) -> Result<bool, EngineError> {
        let engine = self.engine;
        let mut empty = self.transaction.take().ok_or_else(|| engine.transaction_lost())?;
        let number = empty.id();
        sum::name_commit(engine.main, &mut empty)
            .map_err(|refused| engine.change_refused(refused, "write a record"))?;
        empty.commit().map_err(|refused| engine.commit_refused(refused))?;
        let next = engine.env.write_txn();
        let next = next.map_err(error::engine(engine.place(), "begin a write transaction"))?;
        let follows = next.id() == number + 1;
        self.transaction = Some(next);
        self.allowance = Allowance::begin(&engine.room);
        self.base = Cell::new(None);
        Ok(follows)
    }
}

impl<'e> LmdbWrite<'e> {
    /// Refuses a call in a forked child, where LMDB would write the parent's pages, and in a broken store.
    #[inline]
    fn usable(&self) -> Result<(), EngineError> {
        if self.engine.life.is_sound() {
            return Ok(());
        }
        Err(self.engine.unusable())
    }

    /// The engine's transaction.
    #[inline]
    pub(super) fn open(&self) -> Result<&RwTxn<'_>, EngineError> {
        self.transaction.as_ref().ok_or_else(|| self.engine.transaction_lost())
    }

    /// The engine, and its transaction for a change.
    #[inline]
    fn open_mut(&mut self) -> Result<(&Lmdb, &mut RwTxn<'e>), EngineError> {
        let engine = self.engine;
        let transaction = self.transaction.as_mut().ok_or_else(|| engine.transaction_lost())?;
        Ok((engine, transaction))
    }

    /// Checks the pages that a change of `key`'s record may meet, in a store that was opened without a check.
    #[inline(always)]
    fn guard_change(&mut self, table: Table, key: &[u8], delete: bool) -> Result<(), EngineError> {
        match self.engine.guard {
            None => Ok(()),
            Some(_) => self.guard_change_by(table, key, delete),
        }
    }

    #[inline(never)]
    fn guard_change_by(&mut self, table: Table, key: &[u8], delete: bool) -> Result<(), EngineError> {
        let reach = match delete {
            true => Reach::Joins(&mut self.joined[table as usize]),
            false => Reach::Beside,
        };
        let transaction = self
            .transaction
            .as_ref()
            .ok_or_else(|| self.engine.transaction_lost())?;
        self.engine.guard(transaction, &self.base, table, key, reach)?;
        // A large value with a wrong checksum may be another record's: a change would free that record's pages.
        match self.engine.table(table).get(transaction, key) {
            Ok(Some(stored)) if stored.len() > INLINE_MAX => value(self.engine, table, key, stored).map(drop),
            _ => Ok(()),
        }
    }
}

impl LmdbWrite<'_> {
    /// Puts a record behind all others of its table, so that no page stays half full. For a store that is being made:
    /// does not keep the reserve.
    pub(super) fn append(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        check_lengths(key, value)?;
        self.changed = true;
        let (engine, transaction) = self.open_mut()?;
        let table_at = engine.table(table);
        let written = if engine.sums.has(table) {
            let stored = [value, &sum::of(key, value)].concat();
            table_at.put_with_flags(transaction, PutFlags::APPEND, key, &stored)
        } else {
            table_at.put_with_flags(transaction, PutFlags::APPEND, key, value)
        };
        written.map_err(|refused| engine.change_refused(refused, "write a record"))
    }
}

fn check_lengths(key: &[u8], value: &[u8]) -> Result<(), EngineError> {
    if key.is_empty() || key.len() > KEY_MAX_LEN {
        return Err(EngineError::KeyLength { len: key.len() });
    }
    if value.len() > VALUE_MAX_LEN {
        return Err(EngineError::ValueLength { len: value.len() });
    }
    Ok(())
}

impl Drop for LmdbWrite<'_> {
    fn drop(&mut self) {
        // In a forked child, the lock that LMDB would release is the parent's.
        if self.engine.life.is_forked() {
            std::mem::forget(self.transaction.take());
        }
    }
}

#[inline(always)]
fn get<'t>(
    engine: &Lmdb,
    transaction: &'t RoTxn<'_>,
    table: Table,
    key: &[u8],
) -> Result<Option<&'t [u8]>, EngineError> {
    match engine.table(table).get(transaction, key) {
        Ok(Some(stored)) => value(engine, table, key, stored).map(Some),
        Ok(None) => Ok(None),
        Err(refused) => no_such_key(engine, refused).map(|()| None),
    }
}

/// Strips the checksum from the bytes `stored` under `key`, after comparing it.
#[inline(always)]
fn value<'t>(engine: &Lmdb, table: Table, key: &[u8], stored: &'t [u8]) -> Result<&'t [u8], EngineError> {
    if !engine.sums.has(table) {
        return Ok(stored);
    }
    sum::checked(key, stored).ok_or_else(|| sum::damaged(engine.place(), key))
}

/// Answers "no record" for the empty key, which LMDB refuses; other errors stay errors.
#[cold]
fn no_such_key(engine: &Lmdb, refused: heed::Error) -> Result<(), EngineError> {
    match refused {
        heed::Error::Mdb(MdbError::BadValSize) => Ok(()),
        refused => Err(error::engine(engine.place(), "read a record")(refused)),
    }
}

fn scan<'t>(
    engine: &'t Lmdb,
    transaction: &'t RoTxn<'_>,
    table: Table,
    range: KeyRange<'_>,
    back: bool,
) -> Result<OrderedRange<'t>, EngineError> {
    let records = engine.table(table);
    let records = match (searchable(range), back) {
        (None, _) => Ok(OrderedRange::Over),
        (Some(range), false) => records.range(transaction, &range).map(OrderedRange::Ascending),
        (Some(range), true) => records.rev_range(transaction, &range).map(OrderedRange::Descending),
    };
    records.map_err(error::engine(engine.place(), "begin a scan"))
}

impl LmdbWrite<'_> {
    fn begin_scan(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<LmdbScan<'_>, EngineError> {
        let transaction = self.open()?;
        Ok(LmdbScan {
            records: scan(self.engine, transaction, table, range, back)?,
            table,
            engine: self.engine,
            transaction,
            base: &self.base,
            near: Near::begin(self.engine, range, back),
            found: NOTHING,
        })
    }
}

/// The range without the empty key, which LMDB does not search for; `None` if nothing lies below it.
fn searchable((low, high): KeyRange<'_>) -> Option<KeyRange<'_>> {
    let low = match low {
        Bound::Included([]) | Bound::Excluded([]) => Bound::Unbounded,
        other => other,
    };
    match high {
        Bound::Included([]) | Bound::Excluded([]) => None,
        other => Some((low, other)),
    }
}

impl Read for LmdbSnapshot<'_> {
    type Cursor<'t>
        = LmdbSnapshotScan<'t>
    where
        Self: 't;

    #[inline(always)]
    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        let inside = self.enter()?;
        inside.with(|pin| {
            self.engine
                .guard(&pin.transaction, &self.base, table, key, Reach::Leaf)?;
            Ok(get(self.engine, &pin.transaction, table, key)?.map(look))
        })
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<LmdbSnapshotScan<'_>, EngineError> {
        self.begin_scan(table, range, back)
    }
}

impl Read for LmdbWrite<'_> {
    type Cursor<'t>
        = LmdbScan<'t>
    where
        Self: 't;

    #[inline]
    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        let transaction = self.open()?;
        self.engine.guard(transaction, &self.base, table, key, Reach::Leaf)?;
        Ok(get(self.engine, transaction, table, key)?.map(look))
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<LmdbScan<'_>, EngineError> {
        self.begin_scan(table, range, back)
    }
}

impl Write for LmdbWrite<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        check_lengths(key, value)?;
        self.usable()?;
        self.guard_change(table, key, false)?;
        self.take(table, key, Some(value.len() + sum::LEN))?;
        self.changed = true;
        let (engine, transaction) = self.open_mut()?;
        let written = if engine.sums.has(table) {
            let sum = sum::of(key, value);
            engine
                .table(table)
                .put_reserved(transaction, key, value.len() + sum::LEN, |room| {
                    room.write_all(value)?;
                    room.write_all(&sum)
                })
        } else {
            engine.table(table).put(transaction, key, value)
        };
        written.map_err(|refused| engine.change_refused(refused, "write a record"))
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        self.usable()?;
        self.guard_change(table, key, true)?;
        self.take(table, key, None)?;
        let (engine, transaction) = self.open_mut()?;
        match engine.table(table).delete(transaction, key) {
            Ok(was_there) => {
                self.changed |= was_there;
                Ok(was_there)
            }
            Err(heed::Error::Mdb(MdbError::BadValSize)) => Ok(false), // no record has the empty key
            Err(refused) => Err(self.engine.change_refused(refused, "delete a record")),
        }
    }

    fn commit(mut self) -> Result<(), EngineError> {
        self.usable()?;
        let engine = self.engine;
        let mut transaction = self.transaction.take().ok_or_else(|| engine.transaction_lost())?;
        if self.changed {
            let quota = engine.room.to_note();
            let named = quota.map_or(Ok(()), |quota| sum::put_quota(engine.main, &mut transaction, quota));
            let named = named.and_then(|()| sum::name_commit(engine.main, &mut transaction));
            named.map_err(|refused| engine.change_refused(refused, "write a record"))?;
        }
        transaction.commit().map_err(|refused| engine.commit_refused(refused))?;
        if self.changed {
            self.allowance.commit(&engine.room);
        }
        Ok(())
    }
}

/// The record of a scan that has none.
const NOTHING: Record<'static> = (&[], &[]);

impl<'t> OrderedRange<'t> {
    /// The next key and its value without the checksum; the scan is over after the last record and after an error.
    #[inline(always)]
    fn read(&mut self, engine: &Lmdb, table: Table) -> Result<Option<Record<'t>>, EngineError> {
        let read = match self.next() {
            Some(Ok((key, stored))) => value(engine, table, key, stored).map(|value| Some((key, value))),
            Some(Err(refused)) => Err(error::engine(engine.place(), "scan records")(refused)),
            None => Ok(None),
        };
        if !matches!(read, Ok(Some(_))) {
            *self = OrderedRange::Over;
        }
        read
    }
}

impl Cursor for LmdbScan<'_> {
    #[inline]
    fn step(&mut self) -> Result<bool, EngineError> {
        self.found = NOTHING;
        let near = &self.near.0;
        let guarded = self
            .engine
            .guard(self.transaction, self.base, self.table, near, Reach::Beside);
        if let Err(damaged) = guarded {
            self.records = OrderedRange::Over;
            return Err(damaged);
        }
        let Some(found) = self.records.read(self.engine, self.table)? else {
            return Ok(false);
        };
        self.near.at(self.engine, found.0);
        self.found = found;
        Ok(true)
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        self.found
    }
}

impl LmdbSnapshotScan<'_> {
    /// Reads the next record, inside of a call.
    #[inline(always)]
    fn read(&mut self) -> Result<Option<Record<'static>>, EngineError> {
        let (engine, snapshot) = (self.snapshot.engine, self.snapshot);
        if engine.guard.is_some() {
            let near = &self.near.0;
            let inside = snapshot.enter()?;
            inside.with(|pin| engine.guard(&pin.transaction, &snapshot.base, self.table, near, Reach::Beside))?;
        }
        let found = self.records.read(engine, self.table)?;
        if let Some((key, _)) = found {
            self.near.at(engine, key);
        }
        Ok(found)
    }
}

impl Cursor for LmdbSnapshotScan<'_> {
    #[inline]
    fn step(&mut self) -> Result<bool, EngineError> {
        if matches!(self.records, OrderedRange::Over) {
            self.release();
            return Ok(false);
        }
        // The call goes on with the next record, unless another thread wants the snapshot's pages.
        if self.lends && (self.snapshot.reader.is_asked() || !self.snapshot.engine.life.is_sound()) {
            self.release();
        }
        if !self.lends {
            match self.snapshot.enter() {
                // The call ends with `release`.
                Ok(call) => call.stay(),
                Err(ended) => {
                    self.records = OrderedRange::Over;
                    return Err(ended);
                }
            }
            self.lends = true;
        }
        match self.read() {
            Ok(Some(found)) => {
                self.found = found;
                Ok(true)
            }
            ended => {
                self.records = OrderedRange::Over;
                self.release();
                ended.map(|_| false)
            }
        }
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        self.found
    }

    #[inline]
    fn release(&mut self) {
        self.found = NOTHING;
        if std::mem::take(&mut self.lends) {
            self.snapshot.reader.leave();
        }
    }
}

impl Drop for LmdbSnapshotScan<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
