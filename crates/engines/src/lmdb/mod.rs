//! LMDB, opened the way a real-time store needs it.
//!
//! **Why LMDB.** A read touches a memory map: no system call, no lock shared with writers, no background thread, no
//! recovery step after a crash. The remaining causes of delay are handled here: page faults ([`protect`](Protection)),
//! readers that died ([cleared](LmdbOptions::open) at open), a second process ([refused](EngineError::InUse)), and a
//! damaged file ([checked](EngineError::Corrupt) before it is mapped). The wait for the one write lock is the store's,
//! see its module `permit`.
//!
//! **A snapshot begins without a lock**, and a thread may have several: each snapshot has a seat with a reader slot of
//! LMDB's, see `seats`.
//!
//! **A snapshot may be ended** between two calls of its reader, by a thread that needs its pages: see `slot.rs`. The
//! results of a snapshot are therefore copies, but for records that a scan lends.
//!
//! **No write map.** With `MDB_WRITEMAP` a full disk would raise SIGBUS; without it, a full disk is an error.

mod cells;
mod check;
mod checked;
mod crc;
mod error;
mod guard;
pub(crate) mod life;
mod lock;
mod medium;
mod memory;
mod meta;
mod order;
mod owner;
mod pages;
mod protect;
mod room;
mod seats;
mod space;
mod sum;
mod sync;
mod transactions;
pub mod transfer;
mod unsynced;
mod verify;
mod visiting;
mod visitor;
mod visitors;

use std::cell::Cell;
use std::fs::{self, File};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heed::types::Bytes;
use heed::{CommitOrAbort, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};
use punctual_store::engine::{
    Durability, EndedBecause, Engine, EngineError, OpenSnapshot, Reader, SnapshotId, Space, Table,
};
use punctual_units::Nanos;

use check::{Damage, Meta};
pub use checked::{CheckNote, last_check};
use error::ErrorContext;
use guard::{BaseCommit, Free, Guard, Reach};
use life::Life;
use medium::DiskReserve;
use order::Bytewise;
use owner::Owner;
pub use protect::Protection;
use protect::{Map, protect};
use room::Room;
pub use room::reserve_of;
use seats::Seats;
use space::Survey;
use sum::Sums;
pub use transactions::{LmdbScan, LmdbSnapshot, LmdbSnapshotScan, LmdbWrite};
use unsynced::UnsyncedMark;
pub use verify::{Verify, VerifyProgress};
pub use visiting::{VisitSnapshot, Visiting};
pub use visitor::{Look, Visitor};
use visitors::{VISITORS_MAX, Visitors};

use crate::noted::{open_in, words};
use crate::slot::{EndOutcome, Ticket};

/// Format of the store's file that this crate reads and writes. It changes with the tables and with the encoding of
/// temporal records.
///
/// The number is kept in LMDB's main table, beside the names of the other two: a third table of its own would be copied
/// into every transaction.
///
/// Format 2 has checksums, see `sum`; opening a store of format 1 upgrades it.
pub const FORMAT: u32 = 2;

const DATA_FILE: &str = "data.mdb";
const LOCK_FILE: &str = "lock.mdb";
/// Smallest quota in bytes: room for the tables, and for a reserve that some deletes fit into.
const QUOTA_MIN: usize = 1 << 20;
/// Quotas are rounded up to this, in bytes: a multiple of every page size that Linux knows.
const QUOTA_STEP: usize = 1 << 16;

type Records = heed::Database<'static, Bytes, Bytes, Bytewise>;

/// How to open a store; [`LmdbOptions::open`] does it.
#[derive(Clone, Copy, Debug)]
pub struct LmdbOptions {
    /// Guarantee of a commit that has returned.
    pub durability: Durability,
    /// Upper bound on the bytes that puts take in the store's file, at least 1 MiB, rounded up to whole pages. The file
    /// grows with its records up to here. The last eighth, at most 16 MiB, is reserved for deletes and group commits:
    /// puts are refused there ([`EngineError::QuotaFull`]). A transaction that deletes from more pages than the reserve
    /// copies lets the file outgrow the quota. So does a put of a value of several pages where free pages lie apart. At
    /// three times the quota the change fails. The quota costs three times its address space, not memory or disk, and
    /// can be raised at any later open.
    pub quota: usize,
    /// Upper bound for [`Lmdb::grow_quota`] while the store is open, in bytes; reserves three times that address space.
    /// `None`, the default: the quota cannot grow.
    pub quota_max: Option<usize>,
    /// Maximum number of snapshots open at a time, over all threads; at least 1.
    pub readers_max: u32,
    /// Whether plain records of a *new* store carry checksums, as temporal ones always do: 4 bytes each, which every
    /// read checks. An existing store keeps its setting, see [`Lmdb::has_checksums`].
    pub checksums: bool,
    /// How much of the store is read and checked before it is opened; by default all of it.
    pub verify: Verify,
}

impl Default for LmdbOptions {
    fn default() -> Self {
        LmdbOptions {
            durability: Durability::Durable,
            quota: 1 << 30,
            quota_max: None,
            readers_max: 126,
            checksums: true,
            verify: Verify::Full,
        }
    }
}

/// An open LMDB store in a directory.
///
/// ```
/// use punctual_engines::lmdb::LmdbOptions;
/// use punctual_store::engine::{Engine, Read, Table, Write};
/// let directory = tempfile::tempdir()?;
/// let engine = LmdbOptions::default().open(directory.path())?;
/// let mut transaction = engine.write()?;
/// transaction.put(Table::Data, b"door", b"open")?;
/// transaction.commit()?; // on the medium
/// assert_eq!(engine.snapshot()?.get(Table::Data, b"door")?.as_deref(), Some(&b"open"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lmdb {
    // The tables borrow nothing, but are meaningless without the environment: they live and end together.
    data: Records,
    temporal: Records,
    main: Records,
    sums: Sums,
    env: ManuallyDrop<Env<WithTls>>,
    readers: Seats,
    life: Life,
    /// Dropped only after the environment is closed: see `Cells::map`.
    visitors: ManuallyDrop<Option<Visitors>>,
    /// The data file, opened before any write of this process, to detect failed syncs.
    witness: File,
    options: LmdbOptions,
    room: Room,
    medium: DiskReserve,
    directory: PathBuf,
    protection: Protection,
    /// Checks pages when they are first met; `None` if the store was checked when it was opened.
    guard: Option<Guard>,
    /// Addresses of LMDB's memory map.
    map: Range<usize>,
    // Last, because fields are dropped in order: another owner may open the store only when the environment is closed.
    _owner: Arc<Owner>,
}

impl LmdbOptions {
    /// Opens the store in `directory`; creates both if they are missing. Clears the reader slots of processes that
    /// died.
    ///
    /// With [`Verify::Full`], the default, and [`Verify::Structure`] the time grows with the size of the store: each
    /// page in use is read and checked.
    ///
    /// # Errors
    /// [`EngineError::InUse`], [`Version`](EngineError::Version), [`Corrupt`](EngineError::Corrupt),
    /// [`ReadOnly`](EngineError::ReadOnly), [`DiskFull`](EngineError::DiskFull),
    /// [`QuotaFull`](EngineError::QuotaFull), [`Setting`](EngineError::Setting), [`Io`](EngineError::Io).
    pub fn open(self, directory: impl AsRef<Path>) -> Result<Lmdb, EngineError> {
        self.open_telling(directory, |_| ())
    }

    /// As [`open`](LmdbOptions::open), and calls `progress` with the bytes read, about once for each mebibyte.
    ///
    /// # Errors
    /// Those of [`open`](LmdbOptions::open).
    pub fn open_telling(
        self,
        directory: impl AsRef<Path>,
        mut progress: impl FnMut(VerifyProgress),
    ) -> Result<Lmdb, EngineError> {
        let directory = directory.as_ref();
        let options = self.validated(directory)?;
        let made = crate::directory::make(directory).map_err(error::io(directory, "create the store's folder"))?;
        let owner = Arc::new(Owner::take(directory)?);
        let opened = options.open_as(Arc::clone(&owner), directory, &mut progress);
        if opened.is_err() && !directory.join(DATA_FILE).exists() {
            // Nothing stays of a store that was not made.
            let _ = fs::remove_file(directory.join(owner::FILE_NAME));
            made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
        }
        opened
    }

    /// Opens the store for a process that owns the existing directory.
    fn open_as(
        self,
        owner: Arc<Owner>,
        directory: &Path,
        progress: &mut dyn FnMut(VerifyProgress),
    ) -> Result<Lmdb, EngineError> {
        let options = self.validated(directory)?;
        let mark = unsynced::read(directory)?;
        let (checked_at, free) = check_file(&directory.join(DATA_FILE), options.verify, progress)?;
        options.check_quota(&directory.join(DATA_FILE))?;
        sync::clear_unfinished(directory)?;
        sync::create(options, directory)?;
        reserve_lock_file(&directory.join(LOCK_FILE), options.slots())?;
        let witness = sync::witness(directory)?;
        let life = Life::begin().map_err(error::io(directory, "map a page that tells of a fork"))?;
        options.mark(directory, mark, &witness)?;
        let env = options.open_env(directory, options.flags())?;
        let lock_file = directory.join(LOCK_FILE);
        let visitors = Visitors::admit(&lock_file, env.info().maximum_number_of_readers as usize)
            .map_err(error::io(&lock_file, "open the table of readers for other processes"))?;
        let place = options.place(directory);
        env.clear_stale_readers()
            .map_err(error::engine(place, "clear readers that died"))?;
        let readers = Seats::new(options.readers_max, || env.read_txn().map(drop))
            .map_err(error::engine(place, "begin a read transaction"))?;
        let [data, temporal, main] = create_tables(&env, place)?;
        let sums = sum::settle(&env, [main, temporal], place, options.checksums, options.quota as u64)?;
        let (protection, map) = protect_map(&env, main, place, options)?;
        readers.adopt();
        if let Some(commit) = checked_at {
            checked::note(directory, options.verify, commit);
        }
        let page_size = env.unnamed_database_stat().page_size as usize;
        let guard = match options.verify {
            Verify::None => Some(Guard::new(
                sync::witness(directory)?,
                map.clone(),
                page_size,
                sums,
                free,
            )),
            Verify::Full | Verify::Structure => None,
        };
        let directory = directory.to_path_buf();
        Ok(Lmdb {
            data,
            temporal,
            main,
            sums,
            env: ManuallyDrop::new(env),
            readers,
            life,
            visitors: ManuallyDrop::new(visitors),
            witness,
            room: Room::new(options.quota, page_size),
            medium: DiskReserve::new(page_size),
            options,
            directory,
            protection,
            guard,
            map,
            _owner: owner,
        })
    }

    fn validated(mut self, directory: &Path) -> Result<LmdbOptions, EngineError> {
        let refuse = |setting, value: String, remedy| {
            Err(EngineError::Setting {
                path: directory.to_path_buf(),
                setting,
                value,
                remedy,
            })
        };
        if self.readers_max == 0 {
            return refuse(
                "readers_max",
                "0".to_owned(),
                "at least one thread must be able to read",
            );
        }
        match whole(self.quota) {
            Some(size) if self.quota >= QUOTA_MIN => self.quota = size,
            _ => {
                return refuse(
                    "quota",
                    self.quota.to_string(),
                    "use 1 MiB up to what the address space holds",
                );
            }
        }
        if let Some(max) = self.quota_max {
            let size = whole(max).filter(|size| *size >= self.quota);
            if size.is_none() {
                return refuse(
                    "quota_max",
                    max.to_string(),
                    "use at least the quota, up to what the address space holds",
                );
            }
            self.quota_max = size;
        }
        Ok(self)
    }

    /// Refuses a quota below the pages in use. Free pages do not count: deletes may have let the file outgrow it.
    fn check_quota(self, path: &Path) -> Result<(), EngineError> {
        let Ok(file) = File::open(path) else {
            return Ok(()); // no store has been made here yet
        };
        let Ok(survey) = Survey::of(&file) else {
            return Ok(());
        };
        let taken = survey.in_use() * survey.page_size;
        if taken <= self.quota as u64 {
            return Ok(());
        }
        // Read after the survey: a file that is open elsewhere only grows.
        let length = file.metadata().map_err(error::io(path, "read the store's file"))?.len();
        if taken > length {
            return Err(EngineError::Corrupt {
                path: path.to_path_buf(),
                reason: format!("it tells of {taken} bytes in use, and has {length}"),
            });
        }
        Err(EngineError::Setting {
            path: path.to_path_buf(),
            setting: "quota",
            value: format!("{} where the store takes {taken} bytes already", self.quota),
            remedy: "use at least that, and a seventh more to write to it",
        })
    }

    /// Number of LMDB's reader slots: for snapshots, the engine itself, and other processes.
    fn slots(self) -> u32 {
        self.readers_max.saturating_add(seats::OWN + VISITORS_MAX as u32)
    }

    /// The largest quota while the store is open.
    fn quota_limit(self) -> usize {
        self.quota_max.unwrap_or(self.quota)
    }

    /// Length of the map. Three quotas hold all records, as many pages that the last commit has freed, and a copy of
    /// each page for a transaction that deletes from all of them.
    fn map_len(self) -> usize {
        self.quota_limit()
            .saturating_mul(3)
            .min(isize::MAX as usize & !(QUOTA_STEP - 1))
    }

    fn place(self, path: &Path) -> ErrorContext<'_> {
        ErrorContext {
            path,
            quota: self.quota,
            readers_max: self.readers_max,
        }
    }

    fn flags(self) -> EnvFlags {
        match self.durability {
            Durability::Durable => EnvFlags::empty(),
            Durability::NoMetaSync => EnvFlags::NO_META_SYNC,
            Durability::Volatile => EnvFlags::NO_SYNC,
        }
    }

    /// Sets the mark beside the file before any write, if the store will not be synced. Commits that a volatile store
    /// left in the page cache are synced before another durability begins.
    fn mark(self, directory: &Path, found: UnsyncedMark, data: &File) -> Result<(), EngineError> {
        match (self.durability, found) {
            (Durability::Volatile, UnsyncedMark::None) => unsynced::set(directory),
            (Durability::Volatile, UnsyncedMark::ThisBoot) | (_, UnsyncedMark::None) => Ok(()),
            (_, UnsyncedMark::ThisBoot) => data
                .sync_all()
                .and_then(|()| unsynced::remove(directory))
                .map_err(error::io(directory, "sync what a volatile store has left")),
        }
    }

    fn open_env(self, directory: &Path, flags: EnvFlags) -> Result<Env<WithTls>, EngineError> {
        let mut env = EnvOpenOptions::new().read_txn_with_tls();
        env.map_size(self.map_len()).max_readers(self.slots()).max_dbs(2);
        // SAFETY: the flags give up durability, as documented at `Durability`, not memory safety. Nothing else
        // changes the mapped file: this process holds its lock, and the file has been checked since. A program that
        // ignores the lock and writes to the file breaks this, as it would break any map.
        let opened = unsafe { env.flags(flags).open(directory) };
        opened.map_err(error::engine(self.place(directory), error::OPEN))
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        // Forgotten snapshots must not outlive the map that they read.
        self.readers.end_all();
        if self.life.is_forked() {
            return; // The parent owns the store: closing it here would free memory that both share.
        }
        // If the mark stays, the store is refused after a power cut, but opens within the same boot.
        if self.options.durability == Durability::Volatile && self.life.is_sound() && self.env.force_sync().is_ok() {
            let _ = unsynced::remove(&self.directory);
        }
        self.visitors.iter().for_each(Visitors::close);
        let (env, visitors) = (&mut self.env, &mut self.visitors);
        // SAFETY: both are dropped only here, and not used after.
        unsafe {
            ManuallyDrop::drop(env);
            ManuallyDrop::drop(visitors);
        }
    }
}

impl Lmdb {
    /// Path of the data file.
    fn file(&self) -> PathBuf {
        self.directory.join(DATA_FILE)
    }

    /// How much of the map is prefaulted and locked in memory.
    pub fn protection(&self) -> &Protection {
        &self.protection
    }

    /// Raises the quota to `bytes`, rounded up to whole pages, at most [`LmdbOptions::quota_max`]. Puts beyond the old
    /// quota succeed from then on. Nothing is mapped anew, so no reader or writer waits. The next open uses the quota
    /// of its own options.
    ///
    /// # Errors
    /// [`EngineError::Setting`] for a quota below the present one, or above `LmdbOptions::quota_max`.
    pub fn grow_quota(&self, bytes: usize) -> Result<(), EngineError> {
        let max = self.options.quota_limit();
        match whole(bytes).filter(|size| *size <= max) {
            Some(size) if size >= self.room.quota() => {
                self.room.grow(size);
                Ok(())
            }
            _ => Err(EngineError::Setting {
                path: self.directory.clone(),
                setting: "quota",
                value: format!(
                    "{bytes} while the store is open, from {} and up to {max}",
                    self.room.quota()
                ),
                remedy: "name one between, or open the store anew with a larger quota_max",
            }),
        }
    }

    /// Whether the store's plain records carry checksums; temporal records always do.
    pub fn has_checksums(&self) -> bool {
        self.sums.data
    }

    /// Number of the first visitor's snapshot, behind the seats of this process.
    fn visitors_from(&self) -> u64 {
        u64::from(self.options.readers_max + seats::OWN)
    }

    #[cold]
    fn readers_full(&self) -> EngineError {
        EngineError::ReadersFull {
            path: self.directory.clone(),
            max: self.options.readers_max,
        }
    }

    /// Checks the pages that a call of LMDB's for `key` will meet within `reach`; does nothing in a store that was
    /// checked when it was opened. `base` caches the commit that the transaction began from.
    #[inline(always)]
    fn guard(
        &self,
        transaction: &RoTxn<'_>,
        base: &Cell<Option<BaseCommit>>,
        table: Table,
        key: &[u8],
        reach: Reach<'_>,
    ) -> Result<(), EngineError> {
        match &self.guard {
            None => Ok(()),
            Some(guard) => self.guard_by(guard, transaction, base, table, key, reach),
        }
    }

    #[inline(never)]
    fn guard_by(
        &self,
        guard: &Guard,
        transaction: &RoTxn<'_>,
        base: &Cell<Option<BaseCommit>>,
        table: Table,
        key: &[u8],
        reach: Reach<'_>,
    ) -> Result<(), EngineError> {
        let base = match base.get() {
            Some(base) => base,
            None => {
                let begun = self.base(transaction)?;
                guard.follow(begun.commit).map_err(damaged(&self.file()))?;
                base.set(Some(begun));
                begun
            }
        };
        guard.check(base, table, key, reach).map_err(damaged(&self.file()))
    }

    /// The commit and the tables that a transaction follows.
    fn base(&self, transaction: &RoTxn<'_>) -> Result<BaseCommit, EngineError> {
        let of = |name: &[u8]| {
            let record = self.main.get(transaction, name);
            record.map_err(error::engine(self.place(), "look for a table"))
        };
        let tree = |name: &[u8]| of(name).map(|record| record.and_then(meta::tree));
        // Also for a write transaction, the commit that it began from: it writes its own number only as it commits.
        let commit = of(sum::COMMIT_KEY)?.and_then(|commit| commit.try_into().ok());
        let (Some(data), Some(temporal), Some(commit)) = (tree(meta::DATA_NAME)?, tree(meta::TEMPORAL_NAME)?, commit)
        else {
            return Err(damaged(&self.file())(Damage::Corrupt("a table is damaged".to_owned())));
        };
        Ok(BaseCommit {
            commit: u64::from_le_bytes(commit),
            trees: [data, temporal],
        })
    }

    /// Whether these bytes lie in the file's map, rather than in a page copied by a write transaction.
    fn is_in_map(&self, bytes: &[u8]) -> bool {
        self.map.contains(&bytes.as_ptr().addr())
    }

    fn table(&self, table: Table) -> &Records {
        match table {
            Table::Data => &self.data,
            Table::Temporal => &self.temporal,
        }
    }

    fn place(&self) -> ErrorContext<'_> {
        self.options.place(&self.directory)
    }
}

impl Engine for Lmdb {
    type Snapshot<'e> = LmdbSnapshot<'e>;
    type Write<'e> = LmdbWrite<'e>;

    #[inline]
    fn snapshot_for(&self, reader: Reader) -> Result<LmdbSnapshot<'_>, EngineError> {
        LmdbSnapshot::begin(self, reader)
    }

    fn snapshots(&self) -> Vec<OpenSnapshot> {
        let slots = self.readers.slots().zip(0..);
        let own = slots.filter_map(|(slot, place)| open_in(slot, place));
        let visitors = self
            .visitors
            .iter()
            .flat_map(|visitors| visitors.snapshots(self.visitors_from()));
        own.chain(visitors).collect()
    }

    fn end(&self, snapshot: SnapshotId, age: Nanos, why: EndedBecause) -> bool {
        if let Some(number) = snapshot.place.checked_sub(self.visitors_from()) {
            let visitors = self.visitors.as_ref().filter(|_| !self.life.is_forked());
            return visitors.is_some_and(|visitors| visitors.end(number as usize, snapshot.generation, why));
        }
        let slot = usize::try_from(snapshot.place)
            .ok()
            .and_then(|place| self.readers.slots().nth(place));
        let ended = slot.map(|slot| slot.end(Ticket::of(snapshot.generation), words(age, why)));
        matches!(ended, Some(EndOutcome::Done | EndOutcome::Asked))
    }

    fn is_tight(&self) -> bool {
        self.room.is_tight()
    }

    fn space(&self) -> Result<Space, EngineError> {
        space::space(self)
    }

    fn write(&self) -> Result<LmdbWrite<'_>, EngineError> {
        LmdbWrite::begin(self)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.sync_all()
    }

    fn durability(&self) -> Durability {
        self.options.durability
    }

    fn path(&self) -> &Path {
        &self.directory
    }
}

/// Rounds `bytes` up to whole pages, as LMDB requires; `None` beyond the address space.
fn whole(bytes: usize) -> Option<usize> {
    let bytes = bytes.checked_next_multiple_of(QUOTA_STEP);
    bytes.filter(|bytes| *bytes <= isize::MAX as usize)
}

/// Checks the file of a store. Returns the commit that was checked, if all of it was read, and the free pages, if it
/// was not.
fn check_file(
    path: &Path,
    verify: Verify,
    progress: &mut dyn FnMut(VerifyProgress),
) -> Result<(Option<u64>, Free), EngineError> {
    let mut free = Free {
        commit: 0,
        pages: Vec::new(),
    };
    let file = match visitor::open_file(path.parent().unwrap_or(Path::new("."))) {
        Err(EngineError::NoStore { .. }) => return Ok((None, free)), // no store has been made here yet
        Err(EngineError::Io { path, source, .. }) => return Err(error::io(&path, "open the store's file")(source)),
        answer => answer?,
    };
    let mut check = || {
        if file.metadata().map_err(Damage::Io)?.len() == 0 {
            return Ok(None);
        }
        let newest = Meta::newest(&file)?;
        match verify {
            // An older format is checked in full: the upgrade reads all temporal records.
            Verify::None
                if meta::Main::read(&file, &newest)?
                    .format
                    .is_some_and(|format| format < FORMAT) =>
            {
                check::check(&file, false, progress)?
            }
            Verify::None => {
                check::check_length(&file)?;
                free = Free::of(&file, &newest)?;
            }
            Verify::Full | Verify::Structure => check::check(&file, verify == Verify::Full, progress)?,
        }
        meta::check(&file)?;
        Ok(Some(newest.transaction))
    };
    let commit = check().map_err(damaged(path))?;
    Ok((commit.filter(|_| verify != Verify::None), free))
}

/// The store's error for damage of the file at `path`.
fn damaged(path: &Path) -> impl Fn(Damage) -> EngineError + Copy + '_ {
    move |damage| match damage {
        Damage::Corrupt(reason) => EngineError::Corrupt {
            path: path.to_path_buf(),
            reason,
        },
        Damage::Version(found) => EngineError::Version {
            path: path.to_path_buf(),
            found,
            expected: check::DATA_VERSION,
        },
        Damage::Io(source) => error::io(path, "read the store's file")(source),
    }
}

/// Allocates the table of readers on the disk now. LMDB maps it as a sparse file: on a full disk, the first thread to
/// use a reader slot in a hole would get SIGBUS.
fn reserve_lock_file(path: &Path, readers_max: u32) -> Result<(), EngineError> {
    /// `sizeof(MDB_reader)`: one cache line, in bytes.
    const READER_LEN: i64 = 64;
    /// At least `sizeof(MDB_txninfo)`, the header with its two mutexes, in bytes.
    const HEADER_LEN: i64 = 512;
    let fail = error::io(path, "reserve room for the table of readers");
    // LMDB computes the number of slots from the file's length, which stays.
    match medium::allocate(path, HEADER_LEN + READER_LEN * i64::from(readers_max)) {
        // Some file systems cannot allocate; the table stays sparse, as LMDB makes it.
        Err(refused) if refused.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        answer => answer.map_err(fail),
    }
}

fn create_tables(env: &Env<WithTls>, place: ErrorContext<'_>) -> Result<[Records; 3], EngineError> {
    let fail = error::engine(place, "create the store's tables");
    let transaction = env.write_txn().map_err(fail)?;
    let tables = env
        .create_databases_and_commit(transaction, |opener, transaction| {
            let mut create = |name: Option<&'static str>| {
                let mut options = opener
                    .database_options()
                    .types::<Bytes, Bytes>()
                    .key_comparator::<Bytewise>();
                if let Some(name) = name {
                    options.name(name);
                }
                options.create(transaction)
            };
            // Each transaction looks its tables up by name (`mdb_page_search`), by bisection among "commit", "format",
            // "records", "room", "sums" and "temporal": "records", the third, is found at once.
            let tables = (create(Some("records"))?, create(Some("temporal"))?, create(None)?);
            Ok::<_, heed::Error>(CommitOrAbort::<_, std::convert::Infallible>::Commit(tables))
        })
        .map_err(fail)?;
    let CommitOrAbort::Commit((data, temporal, main)) = tables;
    Ok([data, temporal, main].map(|table| {
        // SAFETY: only the lifetime changes. The handle is a number and a tag of its environment, without a
        // destructor; it is kept beside the environment in `Lmdb` and used with its transactions only.
        unsafe { std::mem::transmute::<heed::Database<'_, Bytes, Bytes, Bytewise>, Records>(table) }
    }))
}

/// Prefaults and locks the map as far as possible; also returns the map's addresses.
fn protect_map(
    env: &Env<WithTls>,
    main: Records,
    place: ErrorContext<'_>,
    options: LmdbOptions,
) -> Result<(Protection, Range<usize>), EngineError> {
    let fail = error::engine(place, "read the store's format");
    let info = env.info();
    let page_size = env.unnamed_database_stat().page_size as usize;
    let transaction = env.read_txn().map_err(fail)?;
    let Some(value) = main.get(&transaction, sum::FORMAT_KEY).map_err(fail)? else {
        return Err(EngineError::Corrupt {
            path: place.path.to_path_buf(),
            reason: "it lost its format".to_owned(),
        });
    };
    // LMDB does not expose the map's address; a value does. It lies within a page of the map, and the first word of
    // each page is the page's number (`MDB_page` in mdb.c).
    let page = value.as_ptr().map_addr(|address| address & !(page_size - 1));
    // SAFETY: a value of four bytes is stored within its leaf page, hence `page` is that page's first byte, mapped
    // and aligned.
    let number = unsafe { page.cast::<u64>().read() } as usize;
    let base = page.wrapping_sub(number * page_size).cast_mut().cast();
    let used = (info.last_page_number + 1) * page_size;
    let file_len = env.real_disk_size().map_err(fail)? as usize;
    let map = Map {
        base,
        // Not all of the map: the kernel counts what is locked, present or not.
        size: options.quota_limit().max(used).min(info.map_size),
        used: if options.verify == Verify::None {
            0
        } else {
            used.min(file_len)
        },
    };
    let begin = map.base.addr();
    // SAFETY: the map lives as long as the environment, which is open.
    Ok((unsafe { protect(&map) }, begin..begin + info.map_size))
}
