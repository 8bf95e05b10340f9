//! The reference engine: two ordered maps in memory.
//!
//! A commit replaces the maps as a whole, so that a snapshot is a shared pointer to them. A write transaction copies a
//! map when it first changes it: slow, but simple enough to trust.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_store::engine::{
    DirectedRange, Durability, EndedBecause, Engine, EngineError, KEY_MAX_LEN, KeyRange, OpenSnapshot, Read, Reader,
    SnapshotId, Space, Table, Write, is_empty_range,
};
use punctual_units::Nanos;

use crate::Blob;
use crate::held::{PinnedSnapshot, Snapshots};
use crate::noted::note;

type Bytes = Box<[u8]>;
type Records = BTreeMap<Bytes, Bytes>;

#[derive(Clone, Debug, Default)]
struct Tables {
    data: Arc<Records>,
    temporal: Arc<Records>,
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
        Arc::make_mut(match table {
            Table::Data => &mut self.data,
            Table::Temporal => &mut self.temporal,
        })
    }

    fn scan(&self, table: Table, range: KeyRange<'_>, back: bool) -> MemoryScan<'_> {
        let records = if is_empty_range(range) {
            btree_map::Range::default()
        } else {
            self.of(table).range::<[u8], _>(range)
        };
        MemoryScan(DirectedRange::new(records, back))
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

/// Records of a snapshot in the order of their keys.
#[derive(Debug)]
pub struct MemorySnapshotScan<'t> {
    snapshot: &'t MemorySnapshot,
    table: Table,
    back: bool,
    /// The range that is left to read; `None` after an error or at the end.
    rest: Option<OwnedRange>,
}

type OwnedRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Records of a write transaction in the order of their keys.
#[derive(Debug)]
pub struct MemoryScan<'t>(DirectedRange<btree_map::Range<'t, Bytes, Bytes>>);

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
        let tables = self.tables().clone();
        let bytes = |records: &Records| {
            records
                .iter()
                .map(|(key, value)| (key.len() + value.len()) as u64)
                .sum::<u64>()
        };
        let data = bytes(&tables.data) + bytes(&tables.temporal);
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

impl<'t> Iterator for MemoryScan<'t> {
    type Item = Result<(&'t [u8], &'t [u8]), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| Ok((&**key, &**value)))
    }
}

impl Read for MemorySnapshot {
    type Bytes<'t> = Blob;
    type Scan<'t> = MemorySnapshotScan<'t>;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Blob>, EngineError> {
        self.get_with(table, key, Blob::of)
    }

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        let inside = self.0.enter()?;
        Ok(inside.with(|tables| tables.of(table).get(key).map(|value| look(value))))
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<MemorySnapshotScan<'_>, EngineError> {
        self.begin_scan(table, range, false)
    }

    fn scan_back(&self, table: Table, range: KeyRange<'_>) -> Result<MemorySnapshotScan<'_>, EngineError> {
        self.begin_scan(table, range, true)
    }
}

impl MemorySnapshot {
    fn begin_scan(
        &self,
        table: Table,
        (low, high): KeyRange<'_>,
        back: bool,
    ) -> Result<MemorySnapshotScan<'_>, EngineError> {
        self.0.enter()?;
        Ok(MemorySnapshotScan {
            snapshot: self,
            table,
            back,
            rest: Some((low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec))),
        })
    }
}

impl Iterator for MemorySnapshotScan<'_> {
    type Item = Result<(Blob, Blob), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (low, high) = self.rest.take()?;
        let inside = match self.snapshot.0.enter() {
            Ok(inside) => inside,
            Err(ended) => return Some(Err(ended)),
        };
        // Seeks anew for each record: between two calls no reference into the maps may exist.
        let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let record = inside.with(|tables| {
            let (key, value) = tables.scan(self.table, range, self.back).0.next()?;
            Some((Blob::of(key), Blob::of(value)))
        })?;
        let passed = Bound::Excluded(record.0.to_vec());
        self.rest = Some(if self.back { (low, passed) } else { (passed, high) });
        Some(Ok(record))
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
        Ok(self.tables.scan(table, range, false))
    }

    fn scan_back(&self, table: Table, range: KeyRange<'_>) -> Result<MemoryScan<'_>, EngineError> {
        Ok(self.tables.scan(table, range, true))
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
            return Ok(false); // without copying the map for nothing
        }
        Ok(self.tables.of_mut(table).remove(key).is_some())
    }

    fn commit(mut self) -> Result<(), EngineError> {
        self.tables.commit += 1;
        *self.engine.tables() = self.tables;
        Ok(())
    }
}
