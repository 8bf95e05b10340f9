//! A store of another process as an engine: for a store with all reads, and no writes.
//!
//! **Problem.** A second process wants a store's own reads: tables with types, ranges from both ends, lives, ages of
//! temporal objects. A [`Visitor`] has bytes.
//!
//! **Method.** Each snapshot of this engine is a [`Visitor`], so a store on it ([`Visiting::store`]) reads with the
//! same calls as the owner's, and sees the newest commit at the begin of each transaction. Temporal objects are as the
//! owner's last group commit wrote them, with their true ages within one boot. A cursor reads a [`CHUNK`] of records at
//! a time: the owner waits for nothing, and may end the snapshot ([`EngineError::SnapshotEnded`]).
//!
//! **Notice of changes** is by a poll of [`Visiting::commit`], two small reads of the file.

use std::path::{Path, PathBuf};

use punctual_os::{LinuxOs, Os as _};
use punctual_store::engine::{
    Durability, EndedBecause, Engine, EngineError, KeyRange, OpenSnapshot, Read, Reader, SnapshotId, Space, Table,
};
use punctual_store::temporal::{ClockOrigin, ObjectSpec};
use punctual_store::{Store, StoreError, StoreOptions, UpdateMode, Value};
use punctual_units::Nanos;

use super::LmdbWrite;
use super::check::Meta;
use super::visitor::{Visitor, open_file};
use crate::seek::{Chunk, Find, SeekCursor};

/// Bytes of records that a cursor reads at a time, at least one record.
const CHUNK: usize = 64 << 10;

/// Reads the store in a folder, which another process may have open.
#[derive(Debug)]
pub struct Visiting {
    directory: PathBuf,
}

impl Visiting {
    /// Finds the store in `directory`.
    ///
    /// # Errors
    /// Those of [`Visitor::open`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Visiting, EngineError> {
        // Absolute, because each transaction opens the file anew, also after a chdir(2).
        let directory = std::path::absolute(&directory).unwrap_or_else(|_| directory.as_ref().to_path_buf());
        drop(Visitor::open(&directory)?);
        Ok(Visiting { directory })
    }

    /// Opens the store in `directory` for its reads; writes end with [`EngineError::ReadOnly`]. `objects` are those of
    /// the owner that are to be read as temporal objects.
    ///
    /// ```
    /// use punctual_engines::lmdb::{LmdbOptions, Visiting};
    /// use punctual_store::{Store, StoreOptions};
    /// let folder = tempfile::tempdir()?;
    /// let engine = LmdbOptions::default().open(folder.path())?;
    /// let owner = Store::open(engine, punctual_os::LinuxOs, StoreOptions::default())?;
    /// owner.table("visits")?.typed::<str, u64>()?.put("kitchen", 3)?;
    /// drop(owner); // or, in another process, beside it:
    /// let store = Visiting::store(folder.path(), [])?;
    /// let visits = store.table("visits")?;
    /// let seen = store.engine().commit()?;
    /// store.view(|tx| {
    ///     let visits = tx.table("visits")?.typed::<str, u64>()?;
    ///     assert_eq!(visits.get("kitchen")?, Some(3));
    ///     Ok(())
    /// })?;
    /// if store.engine().commit()? != seen {
    ///     // something has changed meanwhile: read again
    /// }
    /// assert!(visits.put("kitchen", "4").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Visitor::open`] and [`Store::open`]; [`StoreError::NotMemoryFirst`] for a store of a cluster's node,
    /// which answers reads itself.
    pub fn store(
        directory: impl AsRef<Path>,
        objects: impl IntoIterator<Item = ObjectSpec>,
    ) -> Result<Store<Visiting, LinuxOs>, StoreError> {
        let origin = LinuxOs.clock_origin();
        let options = StoreOptions {
            objects: objects.into_iter().collect(),
            // Temporal objects are read from each snapshot, and none is kept in memory.
            update_mode: UpdateMode::Transaction,
            clock_origin: origin.map_or(ClockOrigin::UNKNOWN, |name| ClockOrigin::named(name.as_bytes())),
            ..StoreOptions::default()
        };
        Store::open(Visiting::open(directory)?, LinuxOs, options)
    }

    /// Number of the newest commit: another one than before means that something may have changed.
    ///
    /// # Errors
    /// [`EngineError::NoStore`], [`EngineError::Io`], [`EngineError::Corrupt`].
    pub fn commit(&self) -> Result<u64, EngineError> {
        let newest = Meta::newest(&open_file(&self.directory)?);
        newest
            .map(|meta| meta.transaction)
            .map_err(super::damaged(&self.directory))
    }

    fn refused<T>(&self) -> Result<T, EngineError> {
        let path = self.directory.clone();
        Err(EngineError::ReadOnly { path })
    }
}

impl Engine for Visiting {
    type Snapshot<'e> = VisitSnapshot;
    /// None is ever begun.
    type Write<'e> = LmdbWrite<'e>;

    fn snapshot_for(&self, _: Reader) -> Result<VisitSnapshot, EngineError> {
        Visitor::open(&self.directory).map(VisitSnapshot)
    }

    /// None: the owner has them in its list.
    fn snapshots(&self) -> Vec<OpenSnapshot> {
        Vec::new()
    }

    fn end(&self, _: SnapshotId, _: Nanos, _: EndedBecause) -> bool {
        false
    }

    fn space(&self) -> Result<Space, EngineError> {
        Visitor::open(&self.directory)?.space()
    }

    fn write(&self) -> Result<LmdbWrite<'_>, EngineError> {
        self.refused()
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.refused()
    }

    fn durability(&self) -> Durability {
        Durability::Volatile
    }

    fn path(&self) -> &Path {
        &self.directory
    }

    fn is_written_elsewhere(&self) -> bool {
        true
    }
}

/// A snapshot of a store of another process.
#[derive(Debug)]
pub struct VisitSnapshot(Visitor<'static>);

impl Read for VisitSnapshot {
    type Cursor<'t> = SeekCursor<'t, Self>;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        Ok(self.0.get(table, key)?.map(|value| look(&value)))
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<SeekCursor<'_, Self>, EngineError> {
        Ok(SeekCursor::begin(self, table, range, back))
    }
}

/// The end of a chunk.
enum ChunkEnd {
    Full,
    Failed(EngineError),
}

impl From<EngineError> for ChunkEnd {
    fn from(error: EngineError) -> ChunkEnd {
        ChunkEnd::Failed(error)
    }
}

impl Find for VisitSnapshot {
    fn find(&self, table: Table, range: KeyRange<'_>, back: bool, chunk: &mut Chunk) -> Result<bool, EngineError> {
        let mut bytes = 0;
        let visited = self.0.visit_range::<ChunkEnd>(table, range, back, &mut |key, value| {
            bytes += key.len() + value.len();
            chunk.push((Value::of(key), Value::of(value)));
            if bytes < CHUNK { Ok(()) } else { Err(ChunkEnd::Full) }
        });
        match visited {
            Ok(()) => Ok(false),
            Err(ChunkEnd::Full) => Ok(true),
            Err(ChunkEnd::Failed(error)) => Err(error),
        }
    }
}
