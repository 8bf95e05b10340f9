//! The engine in memory, with a witness of each step of its write transactions.

use std::path::Path;

use punctual_engines::Memory;
use punctual_store::engine::{
    Cursor, Durability, EndedBecause, Engine, EngineError, KeyRange, OpenSnapshot, Read, Reader, Record, SnapshotId,
    Space, Table, Write,
};
use punctual_units::Nanos;

/// A step of a write transaction.
#[derive(Clone, Copy)]
pub enum Step<'k> {
    Begin,
    Get,
    /// The next record of a scan.
    Next,
    /// A put of this key.
    Put(&'k [u8]),
    Delete,
    Commit,
}

/// Gets each step before it is done.
pub trait Witness: Send + Sync + 'static {
    /// # Errors
    /// The error with which the step fails in place of being done; that of a scan's step is dropped.
    fn before(&self, step: Step<'_>) -> Result<(), EngineError>;
}

/// The engine in memory with a witness.
#[derive(Default)]
pub struct WitnessedEngine<W> {
    engine: Memory,
    pub witness: W,
}

impl<W> WitnessedEngine<W> {
    pub fn new(witness: W) -> Self {
        WitnessedEngine {
            engine: Memory::default(),
            witness,
        }
    }
}

type MemoryWrite<'e> = <Memory as Engine>::Write<'e>;

pub struct WitnessedWrite<'e, W> {
    write: MemoryWrite<'e>,
    witness: &'e W,
}

pub struct WitnessedScan<'t, S, W> {
    scan: S,
    witness: &'t W,
}

impl<S: Cursor, W: Witness> Cursor for WitnessedScan<'_, S, W> {
    fn step(&mut self) -> Result<bool, EngineError> {
        let _ = self.witness.before(Step::Next);
        self.scan.step()
    }

    fn record(&self) -> Record<'_> {
        self.scan.record()
    }
}

impl<W: Witness> Engine for WitnessedEngine<W> {
    type Snapshot<'e> = <Memory as Engine>::Snapshot<'e>;
    type Write<'e> = WitnessedWrite<'e, W>;

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
        self.witness.before(Step::Begin)?;
        Ok(WitnessedWrite {
            write: self.engine.write()?,
            witness: &self.witness,
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

impl<W: Witness> Read for WitnessedWrite<'_, W> {
    type Cursor<'t>
        = WitnessedScan<'t, <MemoryWrite<'t> as Read>::Cursor<'t>, W>
    where
        Self: 't;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        self.witness.before(Step::Get)?;
        self.write.get_with(table, key, look)
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<Self::Cursor<'_>, EngineError> {
        let (scan, witness) = (self.write.cursor(table, range, back)?, self.witness);
        Ok(WitnessedScan { scan, witness })
    }
}

impl<W: Witness> Write for WitnessedWrite<'_, W> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.witness.before(Step::Put(key))?;
        self.write.put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        self.witness.before(Step::Delete)?;
        self.write.delete(table, key)
    }

    fn commit(self) -> Result<(), EngineError> {
        self.witness.before(Step::Commit)?;
        self.write.commit()
    }
}
