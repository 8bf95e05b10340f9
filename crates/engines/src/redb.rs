//! redb: an ordered tree in one file, copy on write, in Rust alone. The second engine, by the feature `redb`.
//!
//! **Advantages.** redb runs where LMDB does not, keeps its own cache instead of a map of the file, and checksums each
//! page. A power cut undoes an unsynced commit as a whole, so that a volatile store is never wrong and may be synced at
//! any time.
//!
//! **Missing guarantees**, compared with LMDB, are a table in docs/guide/store.md, which the test `promises` prints.
//!
//! **How it is used.** A snapshot is a read transaction in a slot and may be ended like any other. Its scans lend the
//! bytes of redb's cache; those of a write transaction seek each record anew and copy it.
//! A write transaction has both tables open for as long as it lives. redb undoes a commit that failed in the medium and
//! then refuses every call until it is opened again; so does this engine ([`EngineError::Broken`]).

use std::cell::RefCell;
use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use ::redb::{
    CommitError, Database, OwnedAccessGuard, OwnedRange, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition, WriteTransaction,
};
use punctual_store::Value;
use punctual_store::engine::{
    Cursor, DirectedRange, Durability, EndedBecause, Engine, EngineError, KEY_MAX_LEN, KeyRange, OpenSnapshot, Read,
    Reader, Record, SnapshotId, Space, Table, VALUE_MAX_LEN, Write, is_empty_range,
};
use punctual_units::Nanos;

use crate::directory;
use crate::held::{PinnedSnapshot, Snapshots};
#[cfg(target_os = "linux")]
use crate::lmdb::life::Life;
use crate::noted::note;
use crate::seek::{Chunk, Find, SeekCursor};

type Bytes = &'static [u8];
type Records<'t> = ::redb::Table<'t, Bytes, Bytes>;

const DATA: TableDefinition<'_, Bytes, Bytes> = TableDefinition::new("records");
const TEMPORAL: TableDefinition<'_, Bytes, Bytes> = TableDefinition::new("temporal");
const MAIN: TableDefinition<'_, &str, u32> = TableDefinition::new("main");
const FORMAT_KEY: &str = "format";
/// Format of the store's file that this crate reads and writes.
pub const FORMAT: u32 = 1;
const FILE: &str = "data.redb";
/// Folder in which a new store is made, before its file gets its final name.
const NEW: &str = "new";

/// How to open a store; [`RedbOptions::open`] does it.
#[derive(Clone, Copy, Debug)]
pub struct RedbOptions {
    /// Guarantee of a commit that has returned. [`Durability::NoMetaSync`] is as safe as [`Durability::Durable`] here,
    /// and as slow. A volatile commit does not survive the death of the process, unless the store was closed or synced.
    pub durability: Durability,
    /// Memory for pages, in bytes. Half of it may hold written pages that are not synced.
    pub cache_bytes: usize,
    /// Whether every page in use is read and checked before the store is opened; otherwise damaged pages may be read as
    /// data.
    pub verify: bool,
}

impl Default for RedbOptions {
    fn default() -> Self {
        RedbOptions {
            durability: Durability::Durable,
            cache_bytes: 64 << 20,
            verify: true,
        }
    }
}

/// A store in a directory, kept by redb.
///
/// ```
/// use punctual_engines::redb::RedbOptions;
/// use punctual_store::engine::{Engine, Read, Table, Write};
/// let directory = tempfile::tempdir()?;
/// let engine = RedbOptions::default().open(directory.path())?;
/// let mut transaction = engine.write()?;
/// transaction.put(Table::Data, b"door", b"open")?;
/// transaction.commit()?; // on the medium
/// assert_eq!(engine.snapshot()?.get(Table::Data, b"door")?.as_deref(), Some(&b"open"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Redb {
    database: ManuallyDrop<Database>,
    options: RedbOptions,
    file: PathBuf,
    snapshots: Snapshots<Pin>,
    /// Number of commits since the store was opened.
    commits: AtomicU64,
    /// Detects a forked child, which has copies of locks and caches that it must not use.
    #[cfg(target_os = "linux")]
    life: Life,
    /// Id of the process that opened the store.
    #[cfg(not(target_os = "linux"))]
    process: u32,
}

/// The open tables of a read transaction, and its scans; they keep the snapshot's pages from reuse.
struct Pin {
    data: ReadOnlyTable<Bytes, Bytes>,
    temporal: ReadOnlyTable<Bytes, Bytes>,
    scans: RefCell<Vec<Option<Scanned>>>,
}

/// Records of a snapshot in the order of their keys.
pub struct RedbSnapshotScan<'t> {
    snapshot: &'t RedbSnapshot<'t>,
    /// Index among the scans of the pin, so that the end of the snapshot ends them; `None` once this one is over.
    index: Option<usize>,
    /// The record that it lends; the guards keep the snapshot's pages.
    found: Option<GuardedRecord>,
    /// Whether it counts among the lenders of its snapshot.
    lends: bool,
}

type Scanned = DirectedRange<OwnedRange<Bytes, Bytes>>;
type GuardedRecord = (OwnedAccessGuard<Bytes>, OwnedAccessGuard<Bytes>);

/// A view of one commit. Another thread may end it between two calls.
pub struct RedbSnapshot<'e> {
    held: PinnedSnapshot<Pin>,
    engine: &'e Redb,
}

/// A write transaction with both tables open.
pub struct RedbWrite<'e> {
    /// Borrowed by the tables, hence dropped after them.
    transaction: NonNull<WriteTransaction>,
    tables: ManuallyDrop<[Records<'static>; 2]>,
    engine: &'e Redb,
}

impl RedbOptions {
    /// Opens the store in `directory`; creates both if they are not there. A store that was not closed is repaired,
    /// which reads all of it.
    ///
    /// # Errors
    /// [`EngineError::InUse`], [`Version`](EngineError::Version), [`Corrupt`](EngineError::Corrupt),
    /// [`ReadOnly`](EngineError::ReadOnly), [`DiskFull`](EngineError::DiskFull), [`Io`](EngineError::Io).
    pub fn open(self, directory: impl AsRef<Path>) -> Result<Redb, EngineError> {
        let file = directory.as_ref().join(FILE);
        let fail = |error: ::redb::Error| refused(&file, "open the store", error);
        self.create(directory.as_ref(), &file).map_err(fail)?;
        // On some damaged files redb panics instead of refusing. The unwound call leaves nothing but the file.
        let opened = std::panic::catch_unwind(|| self.open_file(&file));
        let Ok(opened) = opened else {
            let reason = "redb gave up over it".to_owned();
            return Err(EngineError::Corrupt { path: file, reason });
        };
        let (database, found) = opened.map_err(fail)?;
        if found != FORMAT {
            return Err(EngineError::Version {
                path: file,
                found,
                expected: FORMAT,
            });
        }
        #[cfg(target_os = "linux")]
        let life = Life::begin().map_err(|error| fail(error.into()))?;
        Ok(Redb {
            database: ManuallyDrop::new(database),
            options: self,
            file,
            snapshots: Snapshots::default(),
            commits: AtomicU64::new(0),
            #[cfg(target_os = "linux")]
            life,
            #[cfg(not(target_os = "linux"))]
            process: std::process::id(),
        })
    }
}

impl RedbOptions {
    /// Opens and checks `file`; also returns the store's format.
    fn open_file(self, file: &Path) -> Result<(Database, u32), ::redb::Error> {
        let mut database = self.builder().open(file)?;
        if self.verify && !database.check_integrity()? {
            return Err(::redb::Error::Corrupted("a page is not what was written".to_owned()));
        }
        let main = database.begin_read()?.open_table(MAIN)?;
        let format = main.get(FORMAT_KEY)?.map_or(0, |format| format.value());
        Ok((database, format))
    }

    fn builder(self) -> ::redb::Builder {
        let mut builder = Database::builder();
        builder.set_cache_size(self.cache_bytes);
        builder
    }

    /// Creates an empty store if there is none. The file is made in a folder of its own and renamed last, so that a
    /// power cut leaves a whole store or none.
    fn create(self, at: &Path, file: &Path) -> Result<(), ::redb::Error> {
        directory::make(at)?;
        if file.exists() {
            return Ok(());
        }
        let folder = at.join(NEW);
        let made = folder.join(FILE);
        directory::gone(std::fs::remove_file(&made))?;
        directory::gone(std::fs::remove_dir(&folder))?;
        std::fs::create_dir(&folder)?;
        let database = self.builder().create(&made)?;
        let transaction = database.begin_write()?;
        transaction.open_table(MAIN)?.insert(FORMAT_KEY, FORMAT)?;
        transaction.open_table(DATA)?;
        transaction.open_table(TEMPORAL)?;
        transaction.commit()?;
        drop(database);
        directory::name(&made, file)?;
        // Best effort: the next creation of a store here removes a folder that is left.
        let _ = std::fs::remove_dir(&folder);
        Ok(())
    }
}

impl Drop for Redb {
    fn drop(&mut self) {
        if self.is_forked() {
            return; // The parent owns the store: closing it here would write to the parent's file.
        }
        // Syncs the commits of a volatile store: best effort, as a volatile commit promises nothing.
        let _ = self.sync();
        // SAFETY: dropped here only, and not used after.
        unsafe { ManuallyDrop::drop(&mut self.database) };
    }
}

impl Redb {
    #[cfg(target_os = "linux")]
    fn is_forked(&self) -> bool {
        self.life.is_forked()
    }

    #[cfg(not(target_os = "linux"))]
    fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    fn usable(&self) -> Result<(), EngineError> {
        if self.is_forked() {
            let path = self.file.clone();
            return Err(EngineError::Forked { path });
        }
        Ok(())
    }

    fn fail<E: Into<::redb::Error>>(&self, action: &'static str) -> impl Fn(E) -> EngineError + '_ {
        move |error| refused(&self.file, action, error.into())
    }

    fn begin_write(&self, durability: ::redb::Durability) -> Result<WriteTransaction, ::redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        Ok(transaction)
    }
}

impl Engine for Redb {
    type Snapshot<'e> = RedbSnapshot<'e>;
    type Write<'e> = RedbWrite<'e>;

    fn snapshot_for(&self, reader: Reader) -> Result<RedbSnapshot<'_>, EngineError> {
        self.usable()?;
        let commit = self.commits.load(Ordering::Acquire); // read first, so that the snapshot is never older than noted
        let begin = || {
            let transaction = self.database.begin_read()?;
            let (data, temporal) = (transaction.open_table(DATA)?, transaction.open_table(TEMPORAL)?);
            let scans = RefCell::default();
            Ok::<_, ::redb::Error>(Pin { data, temporal, scans })
        };
        let pin = begin().map_err(self.fail("begin a read transaction"))?;
        Ok(RedbSnapshot {
            held: self.snapshots.open(pin, note(reader, commit)),
            engine: self,
        })
    }

    fn snapshots(&self) -> Vec<OpenSnapshot> {
        self.snapshots.all()
    }

    fn end(&self, snapshot: SnapshotId, age: Nanos, why: EndedBecause) -> bool {
        self.snapshots.end(snapshot, age, why)
    }

    /// Only the file's length: redb reports free pages within a write transaction only.
    fn space(&self) -> Result<Space, EngineError> {
        let about = std::fs::metadata(&self.file).map_err(self.fail("look at the store's file"))?;
        Ok(Space {
            taken: about.len(),
            data: about.len(),
            ..Space::default()
        })
    }

    fn write(&self) -> Result<RedbWrite<'_>, EngineError> {
        self.usable()?;
        let durability = match self.options.durability {
            Durability::Durable | Durability::NoMetaSync => ::redb::Durability::Immediate,
            Durability::Volatile => ::redb::Durability::None,
        };
        let fail = self.fail("begin a write transaction");
        let transaction = self.begin_write(durability).map_err(&fail)?;
        let transaction = NonNull::from(Box::leak(Box::new(transaction)));
        // SAFETY: `RedbWrite` frees the transaction after its tables, or the error path below does.
        let borrowed: &'static WriteTransaction = unsafe { transaction.as_ref() };
        let open = || Ok::<_, ::redb::Error>([borrowed.open_table(DATA)?, borrowed.open_table(TEMPORAL)?]);
        match open() {
            Ok(tables) => Ok(RedbWrite {
                transaction,
                tables: ManuallyDrop::new(tables),
                engine: self,
            }),
            Err(error) => {
                // SAFETY: the pointer is from the box above, and nothing borrows it any more.
                drop(unsafe { Box::from_raw(transaction.as_ptr()) });
                Err(fail(error))
            }
        }
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.usable()?;
        if self.options.durability != Durability::Volatile {
            return Ok(()); // each commit was synced before it returned
        }
        let transaction = self.begin_write(::redb::Durability::Immediate);
        let synced = transaction.and_then(|transaction| Ok(transaction.commit()?));
        synced.map_err(self.fail("sync the store"))
    }

    fn durability(&self) -> Durability {
        self.options.durability
    }

    fn path(&self) -> &Path {
        &self.file
    }
}

/// The store's error for an error of redb.
#[cold]
fn refused(file: &Path, action: &'static str, error: ::redb::Error) -> EngineError {
    let path = file.to_path_buf();
    match error {
        ::redb::Error::DatabaseAlreadyOpen => EngineError::InUse { path, pid: None },
        ::redb::Error::Corrupted(reason) => EngineError::Corrupt { path, reason },
        ::redb::Error::RepairAborted => EngineError::Corrupt {
            path,
            reason: "it could not be repaired".to_owned(),
        },
        ::redb::Error::UpgradeRequired(found) => EngineError::Version {
            path,
            found: u32::from(found),
            expected: FORMAT,
        },
        ::redb::Error::PreviousIo | ::redb::Error::LockPoisoned(_) => EngineError::Broken { path },
        ::redb::Error::ValueTooLarge(len) => EngineError::ValueLength { len },
        ::redb::Error::Io(source) => match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                EngineError::DiskFull { path }
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => EngineError::ReadOnly { path },
            io::ErrorKind::InvalidData => EngineError::Corrupt {
                path,
                reason: source.to_string(),
            },
            _ => EngineError::Io { path, action, source },
        },
        other => EngineError::Io {
            path,
            action,
            source: io::Error::other(other),
        },
    }
}

impl Pin {
    fn of(&self, table: Table) -> &ReadOnlyTable<Bytes, Bytes> {
        match table {
            Table::Data => &self.data,
            Table::Temporal => &self.temporal,
        }
    }

    /// Begins a scan; returns its index, or `None` if it has no records.
    fn begin_scan(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<Option<usize>, StorageError> {
        if is_empty_range(range) {
            return Ok(None); // redb may refuse an empty range
        }
        let scan = DirectedRange::new(self.of(table).range_owned::<&[u8]>(range)?, back);
        let mut scans = self.scans.borrow_mut();
        let free = scans.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            scans.push(None);
            scans.len() - 1
        });
        scans[index] = Some(scan);
        Ok(Some(index))
    }
}

fn get_with<T>(
    table: &impl ReadableTable<Bytes, Bytes>,
    key: &[u8],
    look: impl FnOnce(&[u8]) -> T,
) -> Result<Option<T>, StorageError> {
    Ok(table.get(key)?.map(|value| look(value.value())))
}

fn first(table: &Records<'_>, range: KeyRange<'_>, back: bool) -> Result<Option<(Value, Value)>, StorageError> {
    if is_empty_range(range) {
        return Ok(None); // redb may refuse an empty range
    }
    let Some(record) = DirectedRange::new(table.range::<&[u8]>(range)?, back).next() else {
        return Ok(None);
    };
    let (key, value) = record?;
    Ok(Some((Value::of(key.value()), Value::of(value.value()))))
}

impl Cursor for RedbSnapshotScan<'_> {
    #[inline]
    fn step(&mut self) -> Result<bool, EngineError> {
        self.found = None;
        let (Some(index), engine, held) = (self.index, self.snapshot.engine, &self.snapshot.held) else {
            return Ok(false);
        };
        // The call goes on with the next record, unless another thread wants the snapshot's pages.
        if self.lends && held.reader.is_asked() {
            self.release();
        }
        let next = engine.usable().and_then(|()| held.enter()).and_then(|inside| {
            let next = inside.with(|pin| pin.scans.borrow_mut()[index].as_mut().and_then(Iterator::next));
            if !std::mem::replace(&mut self.lends, true) {
                inside.stay(); // until `release`
            }
            next.transpose().map_err(engine.fail("scan records"))
        });
        if !matches!(next, Ok(Some(_))) {
            self.end();
        }
        self.found = next?;
        Ok(self.found.is_some())
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        self.found
            .as_ref()
            .map_or((&[], &[]), |(key, value)| (key.value(), value.value()))
    }

    fn release(&mut self) {
        self.found = None;
        if std::mem::take(&mut self.lends) {
            self.snapshot.held.reader.leave();
        }
    }
}

impl RedbSnapshotScan<'_> {
    fn end(&mut self) {
        if let (Some(index), Ok(inside)) = (self.index.take(), self.snapshot.held.enter()) {
            inside.with(|pin| pin.scans.borrow_mut()[index] = None);
        }
        self.release();
    }
}

impl Drop for RedbSnapshotScan<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Read for RedbSnapshot<'_> {
    type Cursor<'t>
        = RedbSnapshotScan<'t>
    where
        Self: 't;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        self.engine.usable()?;
        let inside = self.held.enter()?;
        inside
            .with(|pin| get_with(pin.of(table), key, look))
            .map_err(self.engine.fail("read a record"))
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<RedbSnapshotScan<'_>, EngineError> {
        self.engine.usable()?;
        let inside = self.held.enter()?;
        let begun = inside.with(|pin| pin.begin_scan(table, range, back));
        Ok(RedbSnapshotScan {
            snapshot: self,
            index: begun.map_err(self.engine.fail("begin a scan"))?,
            found: None,
            lends: false,
        })
    }
}

impl RedbWrite<'_> {
    fn of(&self, table: Table) -> &Records<'static> {
        &self.tables[usize::from(table == Table::Temporal)]
    }

    fn of_mut(&mut self, table: Table) -> &mut Records<'static> {
        &mut self.tables[usize::from(table == Table::Temporal)]
    }
}

impl Find for RedbWrite<'_> {
    fn find(&self, table: Table, range: KeyRange<'_>, back: bool, chunk: &mut Chunk) -> Result<bool, EngineError> {
        self.engine.usable()?;
        let first = first(self.of(table), range, back);
        Ok(chunk.only(first.map_err(self.engine.fail("scan records"))?))
    }
}

impl Read for RedbWrite<'_> {
    type Cursor<'t>
        = SeekCursor<'t, Self>
    where
        Self: 't;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        self.engine.usable()?;
        get_with(self.of(table), key, look).map_err(self.engine.fail("read a record"))
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<SeekCursor<'_, Self>, EngineError> {
        self.engine.usable()?;
        Ok(SeekCursor::begin(self, table, range, back))
    }
}

impl Write for RedbWrite<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        if key.is_empty() || key.len() > KEY_MAX_LEN {
            return Err(EngineError::KeyLength { len: key.len() });
        }
        if value.len() > VALUE_MAX_LEN {
            return Err(EngineError::ValueLength { len: value.len() });
        }
        self.engine.usable()?;
        let written = self.of_mut(table).insert(key, value).map(drop);
        written.map_err(self.engine.fail("write a record"))
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        self.engine.usable()?;
        let removed = self.of_mut(table).remove(key).map(|before| before.is_some());
        removed.map_err(self.engine.fail("delete a record"))
    }

    fn commit(self) -> Result<(), EngineError> {
        self.engine.usable()?;
        let mut rest = ManuallyDrop::new(self);
        let engine = rest.engine;
        // SAFETY: dropped only here, because `rest` is forgotten.
        unsafe { ManuallyDrop::drop(&mut rest.tables) };
        // SAFETY: the pointer is from the box in `write`, and the tables that borrowed it are gone.
        let transaction = unsafe { Box::from_raw(rest.transaction.as_ptr()) };
        let committed: Result<(), CommitError> = transaction.commit();
        committed.map_err(engine.fail("commit a transaction"))?;
        engine.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

impl Drop for RedbWrite<'_> {
    fn drop(&mut self) {
        if self.engine.is_forked() {
            return; // The parent owns the transaction.
        }
        // SAFETY: dropped here, or by `commit`, which forgets the rest.
        unsafe { ManuallyDrop::drop(&mut self.tables) };
        // SAFETY: the pointer is from the box in `write`; dropped once, as above.
        drop(unsafe { Box::from_raw(self.transaction.as_ptr()) });
    }
}
