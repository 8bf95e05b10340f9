//! The reference engine: two ordered maps in memory.
//!
//! A commit replaces the maps as a whole, so that a snapshot is a shared pointer to them. The maps are persistent
//! trees: a change copies the path to its record and shares all other records with the snapshots before it.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_store::engine::{
    DirectedRange, Durability, EndedBecause, Engine, EngineError, KEY_MAX_LEN, KeyRange, OpenSnapshot, Read, Reader,
    SnapshotId, Space, Table, Write, is_empty_range,
};
use punctual_store::{OpenEngine, Value};
use punctual_units::Nanos;
use rpds::RedBlackTreeMapSync;

use crate::held::{PinnedSnapshot, Snapshots};
use crate::noted::note;
use crate::seek::{Chunk, Find, SeekCursor};

type Bytes = Box<[u8]>;
type Records = RedBlackTreeMapSync<Bytes, Bytes>;

#[derive(Clone, Debug, Default)]
struct Tables {
    data: Records,
    temporal: Records,
    /// Bytes of all keys and values.
    bytes: u64,
    /// Number of earlier commits.
    commit: u64,
}

impl Tables {
    fn of(&self, table: Table) -> &Records {
        match table {
            Table::Data => &self.data,
            Table::Temporal => &self.temporal,
        }
    }

    fn of_mut(&mut self, table: Table) -> &mut Records {
        match table {
            Table::Data => &mut self.data,
            Table::Temporal => &mut self.temporal,
        }
    }

    /// Removes the record of a key, and returns whether there was one.
    fn remove(&mut self, table: Table, key: &[u8]) -> bool {
        let Some(len) = self.of(table).get(key).map(|value| key.len() + value.len()) else {
            return false;
        };
        self.bytes -= len as u64;
        self.of_mut(table).remove_mut(key)
    }

    fn first(&self, table: Table, range: KeyRange<'_>, back: bool) -> Option<(Value, Value)> {
        if is_empty_range(range) {
            return None;
        }
        let (key, value) = DirectedRange::new(self.of(table).range::<[u8], _>(range), back).next()?;
        Some((Value::of(key), Value::of(value)))
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
/// assert_eq!(engine.snapshot()?.get(Table::Data, b"door")?.as_deref(), Some(&b"open"[..]));
/// # Ok::<(), punctual_store::engine::EngineError>(())
/// ```
#[derive(Debug, Default)]
pub struct Memory {
    committed: Mutex<Tables>,
    writer: Mutex<()>,
    snapshots: Snapshots<Tables>,
}

/// A view of one commit. Keeps the maps of that commit until it is dropped or ended.
#[derive(Debug)]
pub struct MemorySnapshot(PinnedSnapshot<Tables>);

/// A write transaction: a private copy of the tables that it changed.
#[derive(Debug)]
pub struct MemoryWrite<'e> {
    tables: Tables,
    engine: &'e Memory,
    _turn: MutexGuard<'e, ()>,
}

impl Memory {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        // The tables change by one assignment: a panic elsewhere cannot leave them half changed.
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for Memory {
    type Snapshot<'e> = MemorySnapshot;
    type Write<'e> = MemoryWrite<'e>;

    fn snapshot_for(&self, reader: Reader) -> Result<MemorySnapshot, EngineError> {
        let tables = self.tables().clone();
        let note = note(reader, tables.commit);
        Ok(MemorySnapshot(self.snapshots.open(tables, note)))
    }

    fn snapshots(&self) -> Vec<OpenSnapshot> {
        self.snapshots.all()
    }

    fn end(&self, snapshot: SnapshotId, age: Nanos, why: EndedBecause) -> bool {
        self.snapshots.end(snapshot, age, why)
    }

    fn space(&self) -> Result<Space, EngineError> {
        let data = self.tables().bytes;
        Ok(Space {
            taken: data,
            data,
            ..Space::default()
        })
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

impl OpenEngine for Memory {
    type Options = ();

    fn in_folder(folder: &Path, (): (), _: Option<Durability>, _: Option<usize>) -> Result<Memory, EngineError> {
        Err(EngineError::Setting {
            path: folder.to_path_buf(),
            setting: "engine",
            value: "the one in memory".to_owned(),
            remedy: "open LMDB there, or a store in memory",
        })
    }

    fn in_memory() -> Memory {
        Memory::default()
    }
}

impl Find for MemorySnapshot {
    fn find(&self, table: Table, range: KeyRange<'_>, back: bool, chunk: &mut Chunk) -> Result<bool, EngineError> {
        Ok(chunk.only(self.0.enter()?.with(|tables| tables.first(table, range, back))))
    }
}

impl Find for MemoryWrite<'_> {
    fn find(&self, table: Table, range: KeyRange<'_>, back: bool, chunk: &mut Chunk) -> Result<bool, EngineError> {
        Ok(chunk.only(self.tables.first(table, range, back)))
    }
}

impl Read for MemorySnapshot {
    type Cursor<'t> = SeekCursor<'t, Self>;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        let inside = self.0.enter()?;
        Ok(inside.with(|tables| tables.of(table).get(key).map(|value| look(value))))
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<SeekCursor<'_, Self>, EngineError> {
        self.0.enter()?;
        Ok(SeekCursor::begin(self, table, range, back))
    }
}

impl Read for MemoryWrite<'_> {
    type Cursor<'t>
        = SeekCursor<'t, Self>
    where
        Self: 't;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        Ok(self.tables.of(table).get(key).map(|value| look(value)))
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<SeekCursor<'_, Self>, EngineError> {
        Ok(SeekCursor::begin(self, table, range, back))
    }
}

impl Write for MemoryWrite<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        if key.is_empty() || key.len() > KEY_MAX_LEN {
            return Err(EngineError::KeyLength { len: key.len() });
        }
        self.tables.remove(table, key);
        self.tables.bytes += (key.len() + value.len()) as u64;
        self.tables.of_mut(table).insert_mut(key.into(), value.into());
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        Ok(self.tables.remove(table, key))
    }

    fn commit(mut self) -> Result<(), EngineError> {
        self.tables.commit += 1;
        *self.engine.tables() = self.tables;
        Ok(())
    }
}
