//! LMDB in a folder or a map in memory, chosen when the store is opened: one type for a program and its tests.

use std::io;
use std::path::Path;

use punctual_store::OpenEngine;
use punctual_store::engine::{
    CopyCount, Cursor, Durability, EndedBecause, Engine, EngineError, FileEngine, KeyRange, OpenSnapshot, Read, Reader,
    Record, SnapshotId, Space, Table, TransferError, Write,
};
use punctual_units::{Nanos, Share};

use crate::lmdb::{LmdbOptions, LmdbSnapshot, LmdbWrite};
use crate::memory::{MemorySnapshot, MemoryWrite};
use crate::{Lmdb, Memory};

/// Either of two engines, or of their transactions and scans.
pub enum Either<L, M> {
    /// LMDB, or a part of it.
    Lmdb(L),
    /// The engine in memory, or a part of it.
    Memory(M),
}

/// An engine in a folder or in memory.
pub type AnyEngine = Either<Lmdb, Memory>;

/// Does the same with whichever it is.
macro_rules! either {
    ($of:expr, $it:pat => $do:expr) => {
        match $of {
            Either::Lmdb($it) => $do,
            Either::Memory($it) => $do,
        }
    };
    ($of:expr, $it:pat => wrap $do:expr) => {
        Ok(match $of {
            Either::Lmdb($it) => Either::Lmdb($do?),
            Either::Memory($it) => Either::Memory($do?),
        })
    };
}

impl OpenEngine for AnyEngine {
    type Options = LmdbOptions;

    fn in_folder(
        folder: &Path,
        mut options: LmdbOptions,
        durability: Option<Durability>,
        quota: Option<usize>,
    ) -> Result<Self, EngineError> {
        options.durability = durability.unwrap_or(options.durability);
        options.quota = quota.unwrap_or(options.quota);
        options.open(folder).map(Either::Lmdb)
    }

    fn in_memory() -> Self {
        Either::Memory(Memory::default())
    }
}

impl Engine for AnyEngine {
    type Snapshot<'e> = Either<LmdbSnapshot<'e>, MemorySnapshot>;
    type Write<'e> = Either<LmdbWrite<'e>, MemoryWrite<'e>>;

    #[inline]
    fn snapshot_for(&self, reader: Reader) -> Result<Self::Snapshot<'_>, EngineError> {
        either!(self, engine => wrap engine.snapshot_for(reader))
    }

    fn snapshots(&self) -> Vec<OpenSnapshot> {
        either!(self, engine => engine.snapshots())
    }

    fn end(&self, snapshot: SnapshotId, age: Nanos, why: EndedBecause) -> bool {
        either!(self, engine => engine.end(snapshot, age, why))
    }

    fn is_tight(&self) -> bool {
        either!(self, engine => engine.is_tight())
    }

    fn space(&self) -> Result<Space, EngineError> {
        either!(self, engine => engine.space())
    }

    fn write(&self) -> Result<Self::Write<'_>, EngineError> {
        either!(self, engine => wrap engine.write())
    }

    fn sync(&self) -> Result<(), EngineError> {
        either!(self, engine => engine.sync())
    }

    fn durability(&self) -> Durability {
        either!(self, engine => engine.durability())
    }

    fn path(&self) -> &Path {
        either!(self, engine => engine.path())
    }
}

impl FileEngine for AnyEngine {
    fn backup(&self, to: &Path, share: Share) -> Result<CopyCount, TransferError> {
        self.on_disk()?.backup(to, share)
    }

    fn export(&self, to: &mut dyn io::Write) -> Result<CopyCount, TransferError> {
        self.on_disk()?.export(to)
    }
}

impl AnyEngine {
    fn on_disk(&self) -> Result<&Lmdb, EngineError> {
        match self {
            Either::Lmdb(engine) => Ok(engine),
            Either::Memory(engine) => Err(EngineError::Io {
                path: engine.path().to_path_buf(),
                action: "look for the store's file",
                source: io::Error::new(io::ErrorKind::Unsupported, "it is in memory; open one in a folder"),
            }),
        }
    }
}

impl<L: Read, M: Read> Read for Either<L, M> {
    type Cursor<'t>
        = Either<L::Cursor<'t>, M::Cursor<'t>>
    where
        Self: 't;

    #[inline(always)]
    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        either!(self, read => read.get_with(table, key, look))
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<Self::Cursor<'_>, EngineError> {
        either!(self, read => wrap read.cursor(table, range, back))
    }
}

impl<L: Cursor, M: Cursor> Cursor for Either<L, M> {
    #[inline]
    fn step(&mut self) -> Result<bool, EngineError> {
        either!(self, cursor => cursor.step())
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        either!(self, cursor => cursor.record())
    }

    fn release(&mut self) {
        either!(self, cursor => cursor.release())
    }
}

impl<L: Write, M: Write> Write for Either<L, M> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        either!(self, write => write.put(table, key, value))
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        either!(self, write => write.delete(table, key))
    }

    fn commit(self) -> Result<(), EngineError> {
        either!(self, write => write.commit())
    }
}
