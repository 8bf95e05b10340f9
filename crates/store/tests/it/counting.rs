//! The engine in memory, with a count of what write transactions ask of it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_engines::Memory;
use punctual_store::engine::{
    Durability, EndedBecause, Engine, EngineError, KeyRange, OpenSnapshot, Read, Reader, SnapshotId, Space, Table,
    Write,
};
use punctual_units::Nanos;

type MemoryWrite<'e> = <Memory as Engine>::Write<'e>;

/// Counts a step for each get, put and delete of a write transaction, and for each record of its scans.
#[derive(Default)]
pub struct Counting {
    engine: Memory,
    steps: AtomicU64,
}

impl Counting {
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

pub struct CountingWrite<'e> {
    write: MemoryWrite<'e>,
    steps: &'e AtomicU64,
}

pub struct CountingScan<'t, S> {
    scan: S,
    steps: &'t AtomicU64,
}

impl<S: Iterator> Iterator for CountingScan<'_, S> {
    type Item = S::Item;

    fn next(&mut self) -> Option<S::Item> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.scan.next()
    }
}

impl CountingWrite<'_> {
    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }
}

impl Engine for Counting {
    type Snapshot<'e> = <Memory as Engine>::Snapshot<'e>;
    type Write<'e> = CountingWrite<'e>;

    fn snapshot_for(&self, reader: Reader) -> Result<Self::Snapshot<'_>, EngineError> {
        self.engine.snapshot_for(reader)
    }

    fn snapshots(&self) -> Vec<OpenSnapshot> {
        self.engine.snapshots()
    }

    fn end(&self, snapshot: SnapshotId, age: Nanos, why: EndedBecause) -> bool {
        self.engine.end(snapshot, age, why)
    }

    fn space(&self) -> Result<Space, EngineError> {
        self.engine.space()
    }

    fn write(&self) -> Result<Self::Write<'_>, EngineError> {
        Ok(CountingWrite {
            write: self.engine.write()?,
            steps: &self.steps,
        })
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.engine.sync()
    }

    fn durability(&self) -> Durability {
        self.engine.durability()
    }

    fn path(&self) -> &Path {
        self.engine.path()
    }
}

impl Read for CountingWrite<'_> {
    type Bytes<'t>
        = &'t [u8]
    where
        Self: 't;
    type Scan<'t>
        = CountingScan<'t, <MemoryWrite<'t> as Read>::Scan<'t>>
    where
        Self: 't;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        self.step();
        self.write.get(table, key)
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<Self::Scan<'_>, EngineError> {
        let (scan, steps) = (self.write.scan(table, range)?, self.steps);
        Ok(CountingScan { scan, steps })
    }

    fn scan_back(&self, table: Table, range: KeyRange<'_>) -> Result<Self::Scan<'_>, EngineError> {
        let (scan, steps) = (self.write.scan_back(table, range)?, self.steps);
        Ok(CountingScan { scan, steps })
    }
}

impl Write for CountingWrite<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.step();
        self.write.put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        self.step();
        self.write.delete(table, key)
    }

    fn commit(self) -> Result<(), EngineError> {
        self.write.commit()
    }
}
