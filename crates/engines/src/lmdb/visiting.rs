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

use std::collections::VecDeque;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use punctual_os::{LinuxOs, Os as _};
use punctual_store::engine::{
    Cursor, Durability, EndedBecause, Engine, EngineError, KeyRange, OpenSnapshot, Read, Reader, Record, SnapshotId,
    Space, Table, Write,
};
use punctual_store::temporal::{ClockOrigin, ObjectSpec};
use punctual_store::{Store, StoreError, StoreOptions, UpdateMode};
use punctual_units::Nanos;

use super::check::Meta;
use super::visitor::{Visitor, open_file};

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
    type Write<'e> = NoWrite;

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

    fn write(&self) -> Result<NoWrite, EngineError> {
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
    type Cursor<'t> = VisitCursor<'t>;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        Ok(self.0.get(table, key)?.map(|value| look(&value)))
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<VisitCursor<'_>, EngineError> {
        let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        Ok(VisitCursor {
            visitor: &self.0,
            table,
            rest: Some((owned(range.0), owned(range.1))),
            back,
            read: VecDeque::new(),
        })
    }
}

type OwnedRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A scan of such a snapshot.
#[derive(Debug)]
pub struct VisitCursor<'v> {
    visitor: &'v Visitor<'static>,
    table: Table,
    /// The part of the range that has not been read; `None`: nothing, or a read has failed.
    rest: Option<OwnedRange>,
    back: bool,
    /// Records that were read; the first one is lent.
    read: VecDeque<(Vec<u8>, Vec<u8>)>,
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

impl VisitCursor<'_> {
    fn read_chunk(&mut self) -> Result<(), EngineError> {
        let Some((low, high)) = self.rest.take() else {
            return Ok(());
        };
        let (mut bytes, read) = (0, &mut self.read);
        let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let visited = self
            .visitor
            .visit_range::<ChunkEnd>(self.table, range, self.back, &mut |key, value| {
                bytes += key.len() + value.len();
                read.push_back((key.to_vec(), value.to_vec()));
                if bytes < CHUNK { Ok(()) } else { Err(ChunkEnd::Full) }
            });
        match visited {
            Ok(()) => {}
            Err(ChunkEnd::Failed(error)) => {
                self.read.clear();
                return Err(error);
            }
            Err(ChunkEnd::Full) => {
                let last = self.read.back().map(|(key, _)| Bound::Excluded(key.clone()));
                self.rest = last.map(|last| if self.back { (low, last) } else { (last, high) });
            }
        }
        Ok(())
    }
}

impl Cursor for VisitCursor<'_> {
    fn step(&mut self) -> Result<bool, EngineError> {
        self.read.pop_front();
        if self.read.is_empty() {
            self.read_chunk()?;
        }
        Ok(!self.read.is_empty())
    }

    fn record(&self) -> Record<'_> {
        self.read.front().map_or((&[], &[]), |(key, value)| (key, value))
    }
}

/// A write transaction, which is never begun.
#[derive(Debug)]
pub enum NoWrite {}

impl Read for NoWrite {
    type Cursor<'t> = VisitCursor<'t>;

    fn get_with<T>(&self, _: Table, _: &[u8], _: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        match *self {}
    }

    fn cursor(&self, _: Table, _: KeyRange<'_>, _: bool) -> Result<VisitCursor<'_>, EngineError> {
        match *self {}
    }
}

impl Write for NoWrite {
    fn put(&mut self, _: Table, _: &[u8], _: &[u8]) -> Result<(), EngineError> {
        match *self {}
    }

    fn delete(&mut self, _: Table, _: &[u8]) -> Result<bool, EngineError> {
        match *self {}
    }

    fn commit(self) -> Result<(), EngineError> {
        match self {}
    }
}
