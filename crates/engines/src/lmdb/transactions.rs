//! Snapshots, write transactions and scans of [`Lmdb`].

use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Bound;

use heed::types::Bytes;
use heed::{MdbError, RoRange, RoTxn, RwTxn, WithTls};
use punctual_store::engine::{EngineError, KEY_MAX_LEN, KeyRange, Read, Reader, Table, VALUE_MAX_LEN, Write};

use super::error;
use super::leaving::NoSeat;
use super::life::Fork;
use super::order::Bytewise;
use super::room::Allowance;
use super::{Lmdb, sum};
use crate::Copied;
use crate::noted::{note, refused};
use crate::slot::{Inside, Slot, Ticket};

/// What keeps a snapshot's pages from reuse.
pub(super) struct Pin {
    transaction: ManuallyDrop<RoTxn<'static, WithTls>>,
    fork: Fork,
}

// SAFETY: a slot lets one thread at a time touch it. LMDB binds a read transaction to its thread in one place only: the
// thread's reader slot, found by a thread-specific key when the transaction begins (`mdb_txn_renew0` in mdb.c).
// Afterwards the transaction holds a pointer to that slot. Aborting it from another thread (`mdb_txn_end`) writes "no
// snapshot" there, and frees the transaction. The reader slot stays with the owner, whose next transaction finds it
// free. That it is still the owner's is seen to in `leaving`: a thread's snapshot is ended before its reader slot is
// given to another thread.
unsafe impl Send for Pin {}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        // In a child, the slot that LMDB would mark as empty is the parent's.
        if !self.fork.happened() {
            // SAFETY: dropped here only, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.transaction) };
        }
    }
}

/// A view of one commit, bound to its thread. Another thread may end it between two calls.
pub struct LmdbSnapshot<'e> {
    slot: &'e Slot<Pin>,
    ticket: Ticket,
    engine: &'e Lmdb,
    _bound_to_thread: PhantomData<*const ()>,
}

/// A write transaction, bound to its thread: LMDB's write lock must be released by the thread that took it.
pub struct LmdbWrite<'e> {
    pub(super) transaction: ManuallyDrop<RwTxn<'e>>,
    pub(super) engine: &'e Lmdb,
    pub(super) allowance: Allowance,
    /// An empty transaction is committed without a write.
    changed: bool,
    _bound_to_thread: PhantomData<*const ()>,
}

/// Records of a write transaction in ascending order of keys.
pub struct LmdbScan<'t> {
    records: Option<RoRange<'t, Bytes, Bytes, Bytewise>>,
    table: Table,
    engine: &'t Lmdb,
}

/// Records of a snapshot in ascending order of keys, each copied.
pub struct LmdbSnapshotScan<'t> {
    /// Touched inside of a call only, but for being dropped: LMDB closes a cursor without a look at its transaction,
    /// which may have ended (`mdb_cursor_close`). None where there is nothing to read any more.
    records: Option<RoRange<'static, Bytes, Bytes, Bytewise>>,
    table: Table,
    snapshot: &'t LmdbSnapshot<'t>,
}

impl<'e> LmdbSnapshot<'e> {
    #[inline]
    pub(super) fn begin(engine: &'e Lmdb, reader: Reader) -> Result<Self, EngineError> {
        if !engine.life.is_sound() {
            return Err(engine.unusable());
        }
        let slot = engine.readers.enter().map_err(|why| no_seat(engine, why))?;
        // LMDB would say so, too, unless that snapshot was ended this very moment.
        if !slot.is_vacant() {
            return Err(EngineError::SnapshotHeld);
        }
        let begun = engine.env.read_txn();
        let transaction = begun.map_err(error::engine(engine.place(), "begin a read transaction"))?;
        let commit = transaction.id() as u64;
        // SAFETY: only the lifetime changes. The transaction borrows the environment, which is closed when all slots
        // are empty (`Readers::end_all`).
        let transaction = unsafe { std::mem::transmute::<RoTxn<'_, WithTls>, RoTxn<'static, WithTls>>(transaction) };
        let pin = Pin {
            transaction: ManuallyDrop::new(transaction),
            // SAFETY: the pin is dropped before the store is (`Readers::end_all`).
            fork: unsafe { engine.life.fork() },
        };
        Ok(LmdbSnapshot {
            slot,
            ticket: slot.open(pin, note(reader, commit)),
            engine,
            _bound_to_thread: PhantomData,
        })
    }

    /// Begins a call.
    #[inline(always)]
    fn enter(&self) -> Result<Inside<'_, Pin>, EngineError> {
        if !self.engine.life.is_sound() {
            return Err(self.engine.unusable());
        }
        self.slot.enter(self.ticket).map_err(refused)
    }
}

impl Drop for LmdbSnapshot<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.close(self.ticket);
    }
}

#[cold]
fn no_seat(engine: &Lmdb, why: NoSeat) -> EngineError {
    let place = engine.place();
    match why {
        // A thread reads from the destructor of one of its thread locals.
        NoSeat::AboutToEnd => {
            let ending = io::Error::other("this thread is about to end: read before its thread locals are dropped");
            error::io(place.path, "begin a read transaction")(ending)
        }
        NoSeat::Full => EngineError::ReadersFull {
            path: place.path.to_path_buf(),
            max: place.readers_max,
        },
    }
}

impl<'e> LmdbWrite<'e> {
    pub(super) fn begin(engine: &'e Lmdb) -> Result<Self, EngineError> {
        if !engine.life.is_sound() {
            return Err(engine.unusable());
        }
        match engine.env.write_txn() {
            Ok(transaction) => Ok(LmdbWrite {
                transaction: ManuallyDrop::new(transaction),
                engine,
                allowance: Allowance::begin(&engine.room),
                changed: false,
                _bound_to_thread: PhantomData,
            }),
            Err(refused) => Err(error::engine(engine.place(), "begin a write transaction")(refused)),
        }
    }
}

impl LmdbWrite<'_> {
    /// In a child, LMDB would write the parent's pages.
    #[inline]
    fn usable(&self) -> Result<(), EngineError> {
        if self.engine.life.is_sound() {
            return Ok(());
        }
        Err(self.engine.unusable())
    }
}

impl Drop for LmdbWrite<'_> {
    fn drop(&mut self) {
        // In a child, the lock that LMDB would give back is the parent's.
        if !self.engine.life.is_forked() {
            // SAFETY: dropped here, or taken by `commit`, which forgets the rest.
            unsafe { ManuallyDrop::drop(&mut self.transaction) };
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

/// The value in what is stored.
#[inline(always)]
fn value<'t>(engine: &Lmdb, table: Table, key: &[u8], stored: &'t [u8]) -> Result<&'t [u8], EngineError> {
    if !engine.sums.has(table) {
        return Ok(stored);
    }
    sum::checked(key, stored).ok_or_else(|| sum::damaged(engine.place(), key))
}

/// LMDB refuses the empty key, which no record has.
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
) -> Result<LmdbScan<'t>, EngineError> {
    let Some(range) = searchable(range) else {
        let records = None;
        return Ok(LmdbScan { records, table, engine });
    };
    let records = engine.table(table).range(transaction, &range);
    let records = records.map_err(error::engine(engine.place(), "begin a scan"))?;
    Ok(LmdbScan {
        records: Some(records),
        table,
        engine,
    })
}

/// The range without the empty key, which LMDB does not search for; `None` where nothing lies below it.
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
    type Bytes<'t>
        = Copied
    where
        Self: 't;
    type Scan<'t>
        = LmdbSnapshotScan<'t>
    where
        Self: 't;

    #[inline]
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Copied>, EngineError> {
        self.get_with(table, key, Copied::of)
    }

    #[inline(always)]
    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        let inside = self.enter()?;
        inside.with(|pin| Ok(get(self.engine, &pin.transaction, table, key)?.map(look)))
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<LmdbSnapshotScan<'_>, EngineError> {
        let inside = self.enter()?;
        let records = inside.with(|pin| {
            let scan = scan(self.engine, &pin.transaction, table, range)?;
            // SAFETY: only the lifetime changes. The records are read inside of calls of this snapshot only.
            let forever = |records| unsafe {
                std::mem::transmute::<RoRange<'_, Bytes, Bytes, Bytewise>, RoRange<'static, Bytes, Bytes, Bytewise>>(
                    records,
                )
            };
            Ok::<_, EngineError>(scan.records.map(forever))
        })?;
        Ok(LmdbSnapshotScan {
            records,
            table,
            snapshot: self,
        })
    }
}

impl Read for LmdbWrite<'_> {
    type Bytes<'t>
        = &'t [u8]
    where
        Self: 't;
    type Scan<'t>
        = LmdbScan<'t>
    where
        Self: 't;

    #[inline]
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        get(self.engine, &self.transaction, table, key)
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<LmdbScan<'_>, EngineError> {
        scan(self.engine, &self.transaction, table, range)
    }
}

impl Write for LmdbWrite<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        if key.is_empty() || key.len() > KEY_MAX_LEN {
            return Err(EngineError::KeyLength { len: key.len() });
        }
        if value.len() > VALUE_MAX_LEN {
            return Err(EngineError::ValueLength { len: value.len() });
        }
        self.usable()?;
        self.take(table, Some(value.len() + sum::LEN))?;
        self.changed = true;
        let (engine, transaction) = (self.engine, &mut self.transaction);
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
        self.take(table, None)?;
        match self.engine.table(table).delete(&mut self.transaction, key) {
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
        if self.changed {
            let named = sum::name_commit(engine.main, &mut self.transaction);
            named.map_err(|refused| engine.change_refused(refused, "write a record"))?;
        }
        let mut rest = ManuallyDrop::new(self);
        // SAFETY: taken once; the rest has nothing to drop but this.
        let transaction = unsafe { ManuallyDrop::take(&mut rest.transaction) };
        transaction.commit().map_err(|refused| engine.commit_refused(refused))?;
        if rest.changed {
            rest.allowance.commit(&engine.room);
        }
        Ok(())
    }
}

/// A record as the caller sees it.
#[inline]
fn record<'r>(
    engine: &Lmdb,
    table: Table,
    read: heed::Result<(&'r [u8], &'r [u8])>,
) -> Result<(&'r [u8], &'r [u8]), EngineError> {
    let (key, stored) = read.map_err(error::engine(engine.place(), "scan records"))?;
    Ok((key, value(engine, table, key, stored)?))
}

impl<'t> Iterator for LmdbScan<'t> {
    type Item = Result<(&'t [u8], &'t [u8]), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(record(self.engine, self.table, self.records.as_mut()?.next()?))
    }
}

impl Iterator for LmdbSnapshotScan<'_> {
    type Item = Result<(Copied, Copied), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let records = self.records.as_mut()?;
        let read = self.snapshot.enter().map(|_inside| {
            let (key, value) = match record(self.snapshot.engine, self.table, records.next()?) {
                Ok(record) => record,
                Err(error) => return Some(Err(error)),
            };
            Some(Ok((Copied::of(key), Copied::of(value))))
        });
        if read.is_err() {
            self.records = None;
        }
        read.unwrap_or_else(|ended| Some(Err(ended)))
    }
}
