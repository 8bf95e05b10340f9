//! The reference engine: two ordered maps in memory.
//!
//! A commit replaces the maps as a whole, so that a snapshot is a shared pointer to them. A write transaction copies a
//! map when it first changes it: simple enough to be believed, and far from fast.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_store::engine::{Durability, Engine, EngineError, KEY_MAX_LEN, KeyRange, Read, Table, Write};

type Bytes = Box<[u8]>;
type Records = BTreeMap<Bytes, Bytes>;

#[derive(Clone, Debug, Default)]
struct Tables {
    data: Arc<Records>,
    temporal: Arc<Records>,
}

impl Tables {
    fn of(&self, table: Table) -> &Records {
        match table {
            Table::Data => &self.data,
            Table::Temporal => &self.temporal,
        }
    }

    fn of_mut(&mut self, table: Table) -> &mut Records {
        Arc::make_mut(match table {
            Table::Data => &mut self.data,
            Table::Temporal => &mut self.temporal,
        })
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> MemoryScan<'_> {
        // `BTreeMap::range` panics on a range that ends before it begins.
        let none = match range {
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Excluded(low) | Bound::Included(low), Bound::Excluded(high) | Bound::Included(high)) => low >= high,
            _ => false,
        };
        MemoryScan((!none).then(|| self.of(table).range::<[u8], _>(range)))
    }
}

/// An engine in memory; its records live as long as the value, so every commit is as durable as it can be.
///
/// ```
/// use punctual_engines::Memory;
/// use punctual_store::engine::{Engine, Read, Table, Write};
/// let engine = Memory::default();
/// let mut transaction = engine.write()?;
/// transaction.put(Table::Data, b"door", b"open")?;
/// transaction.commit()?;
/// assert_eq!(engine.snapshot()?.get(Table::Data, b"door")?, Some(&b"open"[..]));
/// # Ok::<(), punctual_store::engine::EngineError>(())
/// ```
#[derive(Debug, Default)]
pub struct Memory {
    committed: Mutex<Tables>,
    writer: Mutex<()>,
}

/// A view of one commit.
#[derive(Debug)]
pub struct MemorySnapshot(Tables);

/// A write transaction: a private copy of what it changed.
#[derive(Debug)]
pub struct MemoryWrite<'e> {
    tables: Tables,
    engine: &'e Memory,
    _turn: MutexGuard<'e, ()>,
}

/// Records in ascending order of keys.
#[derive(Debug)]
pub struct MemoryScan<'t>(Option<btree_map::Range<'t, Bytes, Bytes>>);

impl Memory {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        // The tables change by one assignment: a panic elsewhere cannot leave them half changed.
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for Memory {
    type Snapshot<'e> = MemorySnapshot;
    type Write<'e> = MemoryWrite<'e>;

    fn snapshot(&self) -> Result<MemorySnapshot, EngineError> {
        Ok(MemorySnapshot(self.tables().clone()))
    }

    fn write(&self) -> Result<MemoryWrite<'_>, EngineError> {
        let turn = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(MemoryWrite {
            tables: self.tables().clone(),
            engine: self,
            _turn: turn,
        })
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::Durable
    }

    fn path(&self) -> &Path {
        Path::new("(memory)")
    }
}

impl<'t> Iterator for MemoryScan<'t> {
    type Item = Result<(&'t [u8], &'t [u8]), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.as_mut()?.next().map(|(key, value)| Ok((&**key, &**value)))
    }
}

impl Read for MemorySnapshot {
    type Bytes<'t> = &'t [u8];
    type Scan<'t> = MemoryScan<'t>;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        Ok(self.0.of(table).get(key).map(|value| &**value))
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<MemoryScan<'_>, EngineError> {
        Ok(self.0.scan(table, range))
    }
}

impl Read for MemoryWrite<'_> {
    type Bytes<'t>
        = &'t [u8]
    where
        Self: 't;
    type Scan<'t>
        = MemoryScan<'t>
    where
        Self: 't;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        Ok(self.tables.of(table).get(key).map(|value| &**value))
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<MemoryScan<'_>, EngineError> {
        Ok(self.tables.scan(table, range))
    }
}

impl Write for MemoryWrite<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        if key.is_empty() || key.len() > KEY_MAX_LEN {
            return Err(EngineError::KeyLength { len: key.len() });
        }
        self.tables.of_mut(table).insert(key.into(), value.into());
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        if !self.tables.of(table).contains_key(key) {
            return Ok(false); // and no copy of the map for nothing
        }
        Ok(self.tables.of_mut(table).remove(key).is_some())
    }

    fn commit(self) -> Result<(), EngineError> {
        *self.engine.tables() = self.tables;
        Ok(())
    }
}
