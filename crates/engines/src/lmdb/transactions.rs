//! Snapshots, write transactions and scans of [`Lmdb`].

use std::io;
use std::marker::PhantomData;
use std::ops::Bound;

use heed::types::Bytes;
use heed::{MdbError, RoRange, RoTxn, RwTxn, WithTls};
use punctual_store::engine::{EngineError, KEY_MAX_LEN, KeyRange, Read, Table, VALUE_MAX_LEN, Write};

use super::Lmdb;
use super::error;

/// A view of one commit, bound to its thread.
pub struct LmdbSnapshot<'e> {
    transaction: RoTxn<'e, WithTls>,
    engine: &'e Lmdb,
}

/// A write transaction, bound to its thread: LMDB's write lock must be released by the thread that took it.
pub struct LmdbWrite<'e> {
    transaction: RwTxn<'e>,
    engine: &'e Lmdb,
    _bound_to_thread: PhantomData<*const ()>,
}

/// Records in ascending order of keys.
pub struct LmdbScan<'t> {
    records: Option<RoRange<'t, Bytes, Bytes>>,
    engine: &'t Lmdb,
}

impl<'e> LmdbSnapshot<'e> {
    #[inline]
    pub(super) fn begin(engine: &'e Lmdb) -> Result<Self, EngineError> {
        if !engine.readers.enter() {
            return Err(about_to_end(engine));
        }
        match engine.env.read_txn() {
            Ok(transaction) => Ok(LmdbSnapshot { transaction, engine }),
            Err(refused) => Err(error::engine(engine.place(), "begin a read transaction")(refused)),
        }
    }
}

/// A thread reads from the destructor of one of its thread locals.
#[cold]
fn about_to_end(engine: &Lmdb) -> EngineError {
    let ending = io::Error::other("this thread is about to end: read before its thread locals are dropped");
    error::io(engine.place().path, "begin a read transaction")(ending)
}

impl<'e> LmdbWrite<'e> {
    pub(super) fn begin(engine: &'e Lmdb) -> Result<Self, EngineError> {
        match engine.env.write_txn() {
            Ok(transaction) => Ok(LmdbWrite {
                transaction,
                engine,
                _bound_to_thread: PhantomData,
            }),
            Err(refused) => Err(error::engine(engine.place(), "begin a write transaction")(refused)),
        }
    }
}

#[inline]
fn get<'t>(
    engine: &Lmdb,
    transaction: &'t RoTxn<'_>,
    table: Table,
    key: &[u8],
) -> Result<Option<&'t [u8]>, EngineError> {
    match engine.table(table).get(transaction, key) {
        Ok(value) => Ok(value),
        Err(refused) => no_such_key(engine, refused).map(|()| None),
    }
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
        return Ok(LmdbScan { records: None, engine });
    };
    let records = engine.table(table).range(transaction, &range);
    let records = records.map_err(error::engine(engine.place(), "begin a scan"))?;
    Ok(LmdbScan {
        records: Some(records),
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
        let written = self.engine.table(table).put(&mut self.transaction, key, value);
        written.map_err(error::engine(self.engine.place(), "write a record"))
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        match self.engine.table(table).delete(&mut self.transaction, key) {
            Ok(was_there) => Ok(was_there),
            Err(refused) => no_such_key(self.engine, refused).map(|()| false),
        }
    }

    fn commit(self) -> Result<(), EngineError> {
        self.transaction
            .commit()
            .map_err(error::engine(self.engine.place(), "commit a transaction"))
    }
}

impl<'t> Iterator for LmdbScan<'t> {
    type Item = Result<(&'t [u8], &'t [u8]), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.records.as_mut()?.next()?;
        Some(record.map_err(error::engine(self.engine.place(), "scan records")))
    }
}
