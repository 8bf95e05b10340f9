//! Reads a store that another process may have open, without its cooperation.
//!
//! **Problem.** A store must be inspected, checked and copied while its owner writes. The owner must not wait for that,
//! and must be able to take the snapshot away (decision 30). A reader through a map would then read reused pages, and
//! follow invalid page numbers.
//!
//! **Method.** A [`Visitor`] reads the file by system calls, and checks each page before it follows it. So whatever is
//! in the file, the worst result is an error. It notes the commit that it reads in a cell of the table of readers (see
//! `cells`), where the owner's writers find it. After each read it looks at the cell again.
//!
//! **Without a cell** (another user's store, read-only media, no owner) the meta pages decide. Transaction n reuses
//! pages that transactions up to n - 2 have freed (`oldest` in `mdb_page_alloc`, mdb.c), and begins when n - 1 is
//! committed. So all pages of commit c stay unchanged until a commit beyond c + 1 appears. The same holds for a visitor
//! whose snapshot was ended: it may go on until that number is passed.
//!
//! **In the owner's process** ([`Visitor::of`]) a snapshot of the engine takes the place of the cell: the newest commit
//! that is read after it was taken is not older, so its pages are kept, too. The snapshot has no thread and no age, so
//! only a full quota ends it.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::{Bound, RangeBounds as _};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use punctual_os::LinuxOs;
use punctual_store::engine::{Engine, EngineError, KeyRange, Space, Table, is_empty_range};
use punctual_units::{Clock, Time};

use super::cells::{Cells, ENDED_FROM, IDLE, MARK, reason_in};
use super::check::{
    self, Damage, F_BIGDATA, Meta, NO_PAGE, NODE_HEADER, P_BRANCH, P_LEAF, PAGE_HEADER, SumTables, Tree, damaged,
    node_fits, node_offsets, u16_at, u32_at, u64_at,
};
use super::meta::Main;
use super::pages;
use super::space::Survey;
use super::unsynced::{self, UnsyncedMark};
use super::verify::{Verify, VerifyProgress};
use super::{DATA_FILE, FORMAT, LOCK_FILE, Lmdb, LmdbSnapshot, QUOTA_MIN, error, owner, sum};

/// Attempts to take a snapshot while the owner commits.
const TRIES_MAX: usize = 1_000;

/// Callback for each key and value; an error of its own ends the visit.
pub type Look<'l, E> = &'l mut dyn FnMut(&[u8], &[u8]) -> Result<(), E>;

/// A snapshot of a store, for a process that does not have it open.
///
/// ```
/// use punctual_engines::lmdb::{LmdbOptions, Visitor};
/// use punctual_store::engine::{Engine, Table, Write};
/// let directory = tempfile::tempdir()?;
/// let engine = LmdbOptions::default().open(directory.path())?;
/// let mut transaction = engine.write()?;
/// transaction.put(Table::Data, b"door", b"open")?;
/// transaction.commit()?;
/// drop(engine); // this process would have to read through it
/// let mut records = Vec::new();
/// Visitor::open(directory.path())?.visit::<punctual_store::engine::EngineError>(Table::Data, &mut |key, value| {
///     records.push((key.to_vec(), value.to_vec()));
///     Ok(())
/// })?;
/// assert_eq!(records, [(b"door".to_vec(), b"open".to_vec())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Visitor<'e> {
    file: File,
    directory: PathBuf,
    meta: Meta,
    main: Main,
    keeper: Keeper<'e>,
    mark: UnsyncedMark,
    since: Time,
    /// Whether the pages were copied to a private file, which no process writes to.
    set_down: bool,
}

/// What keeps the visitor's snapshot from reuse.
enum Keeper<'e> {
    /// Nothing: the meta pages decide.
    Nothing,
    /// A cell in the owner's table of readers.
    Cell(Pin),
    /// A snapshot of the owner, which is this process.
    Own(&'e Lmdb, LmdbSnapshot<'e>),
}

impl std::fmt::Debug for Keeper<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Keeper::Nothing => "Nothing",
            Keeper::Cell(_) => "Cell",
            Keeper::Own(..) => "Own",
        })
    }
}

impl Keeper<'_> {
    fn cell(&self) -> Option<&Pin> {
        match self {
            Keeper::Cell(pin) => Some(pin),
            Keeper::Nothing | Keeper::Own(..) => None,
        }
    }
}

/// The cell that keeps the visitor's snapshot from reuse.
#[derive(Debug)]
struct Pin {
    cells: Cells,
    at: usize,
    owner: u32,
    thread: u64,
}

/// Opens the data file of a store for reading; refuses a pipe or a device, which would never end.
pub(super) fn open_file(directory: &Path) -> Result<File, EngineError> {
    let path = directory.join(DATA_FILE);
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
    let file = match opened {
        Err(missing) if matches!(missing.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            let path = directory.to_path_buf();
            return Err(EngineError::NoStore { path });
        }
        answer => answer.map_err(|source| unreadable(&path, source))?,
    };
    let about = file.metadata().map_err(|source| unreadable(&path, source))?;
    if !about.is_file() {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "it is no ordinary file");
        return Err(unreadable(&path, source));
    }
    Ok(file)
}

/// The error of a reader; unlike a writer's error, it asks for no right to write.
fn unreadable(path: &Path, source: io::Error) -> EngineError {
    EngineError::Io {
        path: path.to_path_buf(),
        action: "read the store as this user",
        source,
    }
}

impl<'e> Visitor<'e> {
    /// Takes a snapshot of the newest commit of a store that this process has open.
    ///
    /// # Errors
    /// Those of [`Visitor::open`], except for [`EngineError::InUse`]; [`EngineError::ReadersFull`].
    pub fn of(engine: &'e Lmdb) -> Result<Visitor<'e>, EngineError> {
        let snapshot = LmdbSnapshot::begin_own(engine)?;
        Visitor::begin(&engine.directory, Keeper::Own(engine, snapshot))
    }

    /// Takes a snapshot of the newest commit of the store in `directory`, which another process may have open.
    ///
    /// # Errors
    /// [`EngineError::NoStore`], [`Corrupt`](EngineError::Corrupt), [`Version`](EngineError::Version),
    /// [`Unsynced`](EngineError::Unsynced), [`Io`](EngineError::Io); [`InUse`](EngineError::InUse) where this very
    /// process has the store open (see [`Visitor::of`]); [`Overtaken`](EngineError::Overtaken) where it is written
    /// faster than a snapshot is taken.
    pub fn open(directory: impl AsRef<Path>) -> Result<Visitor<'static>, EngineError> {
        let directory = directory.as_ref();
        if owner::is_ours(directory) {
            return Err(EngineError::InUse {
                path: directory.to_path_buf(),
                pid: Some(std::process::id()),
            });
        }
        Visitor::begin(directory, Pin::take(directory).map_or(Keeper::Nothing, Keeper::Cell))
    }

    /// Begins a visit by the process that holds the owner's lock and has not opened the store.
    pub(super) fn alone(directory: &Path) -> Result<Visitor<'static>, EngineError> {
        Visitor::begin(directory, Keeper::Nothing)
    }

    fn begin(directory: &Path, keeper: Keeper<'e>) -> Result<Visitor<'e>, EngineError> {
        let file = open_file(directory)?;
        let mark = unsynced::read(directory)?;
        if file.metadata().map_err(|source| unreadable(directory, source))?.len() == 0 {
            let path = directory.to_path_buf();
            return Err(EngineError::DataMissing { path, what: "is empty" });
        }
        let path = directory.join(DATA_FILE);
        let mut last = None;
        for _ in 0..TRIES_MAX {
            match snapshot(&file, keeper.cell()) {
                Ok(Some((meta, main))) => {
                    if let Some(found) = main.format.filter(|format| *format > FORMAT) {
                        let (path, expected) = (directory.to_path_buf(), FORMAT);
                        return Err(EngineError::Version { path, found, expected });
                    }
                    if main.format.is_none() {
                        return Err(super::damaged(&path)(Damage::Corrupt("it lost its format".to_owned())));
                    }
                    return Ok(Visitor {
                        file,
                        directory: directory.to_path_buf(),
                        meta,
                        main,
                        keeper,
                        mark,
                        since: LinuxOs.now(),
                        set_down: false,
                    });
                }
                Ok(None) => {}
                Err(damage) => last = Some(damage), // or a page that is being written right now
            }
        }
        Err(match last {
            Some(damage) => super::damaged(&path)(damage),
            None => EngineError::Overtaken {
                path: directory.to_path_buf(),
                reason: "no snapshot could be taken meanwhile",
            },
        })
    }

    /// Copies the pages into `to`, from front to end, as fast as they can be read; afterwards the owner need not keep
    /// them. Errors name `place`. For a store that is written too fast to read its records meanwhile.
    pub(super) fn set_down(mut self, to: File, place: &Path) -> Result<Visitor<'e>, EngineError> {
        let copied = |result: io::Result<()>| result.map_err(error::io(place, "copy the pages of the store"));
        let end = (self.meta.last_page + 1) * self.meta.page_size as u64;
        let mut chunk = vec![0; 1 << 20];
        let mut at = 0;
        while at < end {
            let len = chunk.len().min((end - at) as usize);
            let read = self.file.read_at(&mut chunk[..len], at);
            let read = read.map_err(|source| unreadable(&self.path(), source))?;
            if read == 0 {
                break; // the last pages were allocated but never written
            }
            copied(to.write_all_at(&chunk[..read], at))?;
            at += read as u64;
        }
        self.still_there()?;
        (self.keeper, self.file, self.set_down) = (Keeper::Nothing, to, true);
        Ok(self)
    }

    /// The format of the store's file, at most [`FORMAT`].
    pub fn format(&self) -> u32 {
        self.main.format.unwrap_or(FORMAT)
    }

    /// The number of the visited commit.
    pub fn commit(&self) -> u64 {
        self.meta.transaction
    }

    /// Whether plain records carry checksums; temporal ones always do.
    pub fn has_checksums(&self) -> bool {
        self.main.sums == Some(1)
    }

    /// The quota noted by the owner, in bytes; `None` if it is missing or out of range.
    pub(super) fn quota(&self) -> Option<usize> {
        let quota = self.main.quota.and_then(|quota| usize::try_from(quota).ok());
        quota.filter(|quota| (QUOTA_MIN..1 << 46).contains(quota))
    }

    /// The number of records in `table` at this commit.
    pub fn records(&self, table: Table) -> u64 {
        self.tree(table).map_or(0, |tree| tree.records)
    }

    /// The process that has the store open; `None` if there is none.
    pub fn owner(&self) -> Option<u32> {
        match owner::is_ours(&self.directory) {
            true => Some(std::process::id()),
            false => owner::of(&self.directory),
        }
    }

    /// Whether the store is volatile and has not been closed: a power cut would destroy it.
    pub fn is_volatile(&self) -> bool {
        self.mark == UnsyncedMark::ThisBoot
    }

    /// Whether the store's owner keeps the pages of this snapshot from reuse.
    pub fn is_kept(&self) -> bool {
        match &self.keeper {
            Keeper::Nothing => false,
            Keeper::Cell(pin) => pin.state(self.commit()) == State::Kept,
            Keeper::Own(_, snapshot) => snapshot.is_open().is_ok(),
        }
    }

    /// The process and the commit of each open snapshot, in all processes; empty if this user may not write to the
    /// table of readers.
    pub fn readers(&self) -> Vec<(u32, u64)> {
        let cells = match &self.keeper {
            Keeper::Nothing => return Vec::new(),
            Keeper::Cell(Pin { cells, .. }) => cells,
            Keeper::Own(engine, _) => {
                let own = std::process::id();
                let open = engine.snapshots().into_iter();
                return open
                    .map(|open| (open.reader.process.unwrap_or(own), open.commit))
                    .collect();
            }
        };
        let marked = |at: &usize| cells.cell(*at).thread.load(Ordering::SeqCst) >> 32 == MARK;
        // The visitors' cells are the first of the table; its header lies before them.
        let Some(first) = cells.places().find(marked) else {
            return Vec::new();
        };
        let reader = |at: usize| {
            let cell = cells.cell(at);
            let process = match (marked(&at), cell.owner.load(Ordering::SeqCst)) {
                (true, _) => u32::try_from(cell.visitor.load(Ordering::SeqCst)).ok()?,
                (false, process) => process,
            };
            let commit = cell.commit.load(Ordering::SeqCst);
            (process != 0 && process != std::process::id() && commit < ENDED_FROM).then_some((process, commit))
        };
        cells.places().filter(|at| *at >= first).filter_map(reader).collect()
    }

    /// The room in the store's file. The quota is the one noted by the present or the last owner; `None` if that was an
    /// earlier version, which notes none.
    ///
    /// # Errors
    /// [`EngineError::Corrupt`], [`EngineError::Io`], and those of a snapshot that was lost.
    pub fn space(&self) -> Result<Space, EngineError> {
        let survey = self.sound(Survey::at(&self.file, &self.meta))?;
        Ok(survey.space(self.main.quota))
    }

    /// Bytes that the file takes on the medium, and the file's length in bytes.
    ///
    /// # Errors
    /// [`EngineError::Io`] if the file's metadata cannot be read.
    pub fn on_medium(&self) -> Result<(u64, u64), EngineError> {
        let about = self
            .file
            .metadata()
            .map_err(|source| unreadable(&self.directory, source))?;
        Ok((about.blocks() * 512, about.len()))
    }

    /// Checks the store as an open does, and its two meta pages.
    ///
    /// # Errors
    /// [`EngineError::Corrupt`] for the first damage found, [`EngineError::Io`], and those of a snapshot that was lost.
    pub fn verify(&self, verify: Verify, mut progress: impl FnMut(VerifyProgress)) -> Result<(), EngineError> {
        let metas = (0..TRIES_MAX).find_map(|_| super::meta::check(&self.file).ok());
        if metas.is_none() {
            // Once more, for the reason: a page that the owner is writing at this moment would have become whole.
            super::meta::check(&self.file).map_err(super::damaged(&self.path()))?;
        }
        if verify == Verify::None {
            return self.sound(check::check_length(&self.file));
        }
        let summed = match verify {
            Verify::Full => self.main.summed(),
            Verify::Structure | Verify::None => SumTables::default(),
        };
        let checked = self.sound(check::check_at(&self.file, &self.meta, summed, &mut progress));
        if let Err(EngineError::Corrupt { .. }) = checked {
            super::checked::forget(&self.directory);
        }
        checked?;
        super::checked::note(&self.directory, verify, self.commit());
        Ok(())
    }

    /// Calls `look` with each record of `table` in ascending order of keys, until it returns an error. Each value was
    /// compared with its checksum, if it has one.
    ///
    /// # Errors
    /// The error of `look`; [`EngineError::Corrupt`], [`EngineError::Io`], and those of a snapshot that was lost:
    /// [`EngineError::SnapshotEnded`], [`EngineError::Overtaken`].
    pub fn visit<E: From<EngineError>>(&self, table: Table, look: Look<'_, E>) -> Result<(), E> {
        self.walk(table, look, None, false)
    }

    /// Calls `look` with each record of `table` whose key lies in `range`, in descending order of keys if `back`; reads
    /// only the pages that lead there.
    ///
    /// # Errors
    /// Those of [`visit`](Visitor::visit).
    pub fn visit_range<E: From<EngineError>>(
        &self,
        table: Table,
        range: KeyRange<'_>,
        back: bool,
        look: Look<'_, E>,
    ) -> Result<(), E> {
        if is_empty_range(range) {
            return Ok(());
        }
        self.walk(table, look, Some(range), back)
    }

    /// The value of `key` in `table`; `None` if there is no such record.
    ///
    /// # Errors
    /// Those of [`visit`](Visitor::visit).
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let mut found = None;
        let range = (Bound::Included(key), Bound::Included(key));
        self.visit_range::<EngineError>(table, range, false, &mut |_, value| {
            found = Some(value.to_vec());
            Ok(())
        })?;
        Ok(found)
    }

    fn walk<E: From<EngineError>>(
        &self,
        table: Table,
        look: Look<'_, E>,
        range: Option<KeyRange<'_>>,
        back: bool,
    ) -> Result<(), E> {
        let Some(tree) = self.tree(table) else { return Ok(()) };
        let sums = match table {
            Table::Data => self.has_checksums(),
            Table::Temporal => self.format() > 1,
        };
        let mut walk = Walk {
            visitor: self,
            tree,
            sums,
            range: range.unwrap_or((Bound::Unbounded, Bound::Unbounded)),
            back,
            pages: 0,
            records: 0,
            before: Vec::new(),
        };
        if tree.root != NO_PAGE {
            walk.page(tree.root, 1, look)?;
        }
        if range.is_none() && walk.records != tree.records {
            let reason = "a table has another number of records than it says".to_owned();
            self.sound::<()>(Err(Damage::Corrupt(reason)))?;
        }
        Ok(())
    }

    fn tree(&self, table: Table) -> Option<Tree> {
        match table {
            Table::Data => self.main.data,
            Table::Temporal => self.main.temporal,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(DATA_FILE)
    }

    /// Returns the result of a read if the snapshot was still kept afterwards; otherwise apparent damage may be a
    /// reused page.
    fn sound<T>(&self, read: Result<T, Damage>) -> Result<T, EngineError> {
        self.still_there()?;
        read.map_err(super::damaged(&self.path()))
    }

    /// Refuses if pages read so far may have been reused.
    #[inline]
    fn still_there(&self) -> Result<(), EngineError> {
        if self.set_down {
            return Ok(());
        }
        if let Keeper::Own(_, snapshot) = &self.keeper {
            return snapshot.is_open();
        }
        let state = self.keeper.cell().map(|pin| pin.state(self.commit()));
        if state == Some(State::Kept) {
            return Ok(());
        }
        let newest = (0..TRIES_MAX).find_map(|_| Meta::newest(&self.file).ok());
        match (newest, state) {
            (Some(newest), _) if newest.transaction <= self.commit() + 1 => Ok(()),
            (_, Some(State::Ended(number))) if reason_in(number).is_some() => Err(EngineError::SnapshotEnded {
                age: LinuxOs.now().since(self.since),
                why: reason_in(number).unwrap_or(punctual_store::engine::EndedBecause::Life),
            }),
            (_, Some(_)) => Err(self.overtaken("its owner was started anew meanwhile")),
            (_, None) => Err(self.overtaken(
                "this process has no place in its table of readers (it is another user's, or four others read it)",
            )),
        }
    }

    fn overtaken(&self, reason: &'static str) -> EngineError {
        EngineError::Overtaken {
            path: self.directory.clone(),
            reason,
        }
    }
}

/// The newest commit; `None` if it may not be kept. Reads the meta pages, notes the commit, and reads them again.
fn snapshot(file: &File, pin: Option<&Pin>) -> Result<Option<(Meta, Main)>, Damage> {
    let meta = Meta::newest(file)?;
    if let Some(pin) = pin {
        pin.publish(meta.transaction);
    }
    let main = Main::read(file, &meta)?;
    // A page that is read while it is written may be half old, half new.
    let page = meta.transaction % 2 * meta.page_size as u64;
    let again = Meta::read(file, page)?;
    if again != meta || Meta::newest(file)?.transaction > meta.transaction + 1 {
        return Ok(None);
    }
    if main.format == Some(FORMAT) && main.commit != Some(meta.transaction) {
        let reason = format!(
            "its meta pages lead to another commit than transaction {}",
            meta.transaction
        );
        return Err(Damage::Corrupt(reason));
    }
    Ok(Some((meta, main)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The owner's writers keep the snapshot's pages.
    Kept,
    /// The snapshot was ended, or the store has another owner; the cell's content.
    Ended(u64),
}

impl Pin {
    /// Takes a cell; `None` if there is no owner, no free cell, or no right to write to its table.
    fn take(directory: &Path) -> Option<Pin> {
        let cells = Cells::map(&directory.join(LOCK_FILE)).ok()?;
        let marked = |at: &usize| {
            let cell = cells.cell(*at);
            cell.thread.load(Ordering::SeqCst) >> 32 == MARK && cell.owner.load(Ordering::SeqCst) != 0
        };
        let at = cells
            .places()
            .filter(marked)
            .find(|at| cells.take(*at).unwrap_or(false))?;
        let cell = cells.cell(at);
        let (owner, thread) = (cell.owner.load(Ordering::SeqCst), cell.thread.load(Ordering::SeqCst));
        cell.visitor.store(u64::from(std::process::id()), Ordering::SeqCst);
        Some(Pin {
            cells,
            at,
            owner,
            thread,
        })
    }

    /// Makes the owner's writers keep the pages of `commit` from now on, if none of them can have been reused yet.
    fn publish(&self, commit: u64) {
        self.cells.cell(self.at).commit.store(commit, Ordering::SeqCst);
        // The meta pages are read again only after writers can see the cell.
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    #[inline]
    fn state(&self, commit: u64) -> State {
        std::sync::atomic::fence(Ordering::SeqCst); // after the pages were read
        let cell = self.cells.cell(self.at);
        let noted = cell.commit.load(Ordering::SeqCst);
        let same = cell.owner.load(Ordering::SeqCst) == self.owner && cell.thread.load(Ordering::SeqCst) == self.thread;
        if noted == commit && same {
            State::Kept
        } else {
            State::Ended(noted)
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let cell = self.cells.cell(self.at);
        if cell.commit.load(Ordering::SeqCst) < ENDED_FROM || self.owner == cell.owner.load(Ordering::SeqCst) {
            cell.commit.store(IDLE, Ordering::SeqCst);
        }
    }
}

/// A pass over the records of a tree, in the order of their keys. Terminates, because it visits at most as many pages
/// as the commit has.
struct Walk<'v> {
    visitor: &'v Visitor<'v>,
    tree: Tree,
    sums: bool,
    range: KeyRange<'v>,
    /// Whether the greatest key comes first.
    back: bool,
    pages: u64,
    records: u64,
    before: Vec<u8>,
}

impl Walk<'_> {
    fn page<E: From<EngineError>>(&mut self, number: u64, depth: u16, look: Look<'_, E>) -> Result<(), E> {
        self.pages += 1;
        let page = self.visitor.sound(self.load(number))?;
        let offsets: Vec<usize> = self.visitor.sound(node_offsets(number, &page))?.collect();
        let is_leaf = depth == self.tree.depth;
        if u16_at(&page, 10) != if is_leaf { P_LEAF } else { P_BRANCH } {
            let damage = damaged(number, "is no part of its tree");
            self.visitor.sound::<()>(Err(damage))?;
        }
        let mut keys = Vec::with_capacity(offsets.len());
        for offset in &offsets {
            let end = self.visitor.sound(node_fits(number, &page, *offset, 0))?;
            keys.push(&page[offset + NODE_HEADER..end]);
        }
        for step in 0..offsets.len() {
            let at = if self.back { offsets.len() - 1 - step } else { step };
            let offset = &offsets[at];
            if is_leaf {
                if self.range.contains(keys[at]) {
                    self.record(number, &page, *offset, look)?;
                }
                continue;
            }
            // A branch's first key counts as the least of all; each child ends before the next one's key.
            let ends_below = keys.get(at + 1).is_some_and(|next| match self.range.0 {
                Bound::Included(low) | Bound::Excluded(low) => *next <= low,
                Bound::Unbounded => false,
            });
            let begins_within = at == 0 || (Bound::Unbounded, self.range.1).contains(keys[at]);
            if !ends_below && begins_within {
                self.page(check::child_at(&page, *offset), depth + 1, look)?;
            }
        }
        Ok(())
    }

    fn load(&self, number: u64) -> Result<Vec<u8>, Damage> {
        let meta = &self.visitor.meta;
        if self.pages > meta.last_page {
            return Err(damaged(number, "is part of a tree without an end"));
        }
        let mut page = vec![0; meta.page_size];
        pages::load(&self.visitor.file, meta, number, &mut page)?;
        Ok(page)
    }

    fn record<E: From<EngineError>>(
        &mut self,
        number: u64,
        page: &[u8],
        offset: usize,
        look: Look<'_, E>,
    ) -> Result<(), E> {
        let visitor = self.visitor;
        let flags = u16_at(page, offset + 4);
        let len = usize::from(u16_at(page, offset)) | usize::from(u16_at(page, offset + 2)) << 16;
        let inline = if flags == F_BIGDATA { 8 } else { len };
        let begin = visitor.sound(node_fits(number, page, offset, inline))?;
        let key = &page[offset + NODE_HEADER..begin];
        let large;
        let stored = if flags == F_BIGDATA {
            large = visitor.sound(self.large(u64_at(page, begin), len))?;
            &large[..]
        } else {
            &page[begin..begin + len]
        };
        let value = match self.sums {
            true => sum::checked(key, stored),
            false => Some(stored),
        };
        let in_order = match self.back {
            _ if self.records == 0 => true,
            false => self.before.as_slice() < key,
            true => self.before.as_slice() > key,
        };
        let value = value.filter(|_| in_order && !key.is_empty() && flags & !F_BIGDATA == 0);
        let damage = || Damage::Corrupt(format!("the record {} is not what was written", key.escape_ascii()));
        let value = visitor.sound(value.ok_or_else(damage))?;
        self.before.clear();
        self.before.extend_from_slice(key);
        self.records += 1;
        look(key, value)
    }

    /// Reads a large value from its own pages, beginning with page `first`.
    fn large(&self, first: u64, len: usize) -> Result<Vec<u8>, Damage> {
        let meta = &self.visitor.meta;
        let begin = first
            .checked_mul(meta.page_size as u64)
            .filter(|_| first <= meta.last_page);
        let Some(begin) = begin else {
            return Err(damaged(first, "is referred to, and is none of the store's pages"));
        };
        let mut header = [0; PAGE_HEADER];
        pages::read_at(&self.visitor.file, begin, &mut header)?;
        let pages = u64::from(u32_at(&header, 12));
        let room = pages.saturating_mul(meta.page_size as u64);
        if u64_at(&header, 0) != first || (PAGE_HEADER + len) as u64 > room || first + pages > meta.last_page + 1 {
            return Err(damaged(first, "is not the large value it should be"));
        }
        let mut value = vec![0; len];
        pages::read_at(&self.visitor.file, begin + PAGE_HEADER as u64, &mut value)?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use punctual_store::engine::{Durability, Write};

    use super::*;
    use crate::lmdb::LmdbOptions;

    fn write(engine: &Lmdb, round: u8) {
        let mut transaction = engine.write().unwrap();
        for number in 0..100_u8 {
            let value = vec![round; 100 + usize::from(number) * usize::from(round)];
            transaction.put(Table::Data, &[number], &value).unwrap();
        }
        transaction.commit().unwrap();
    }

    /// The round that all records are of.
    fn round_of(visitor: &Visitor<'_>) -> Result<u8, EngineError> {
        let mut rounds = Vec::new();
        visitor.visit::<EngineError>(Table::Data, &mut |_, value| {
            rounds.push(value[0]);
            Ok(())
        })?;
        assert!(
            rounds.len() == 100 && rounds.iter().all(|round| *round == rounds[0]),
            "{rounds:?}"
        );
        Ok(rounds[0])
    }

    #[test]
    fn the_owner_visits_its_own_store_while_it_writes() {
        let folder = tempfile::tempdir().unwrap();
        let engine = LmdbOptions {
            durability: Durability::Volatile,
            ..LmdbOptions::default()
        };
        let engine = engine.open(folder.path()).unwrap();
        write(&engine, 1);
        let visitor = Visitor::of(&engine).unwrap();
        (2..12).for_each(|round| write(&engine, round));
        assert_eq!(round_of(&visitor).unwrap(), 1);
        assert!(visitor.is_kept() && visitor.owner() == Some(std::process::id()));
        assert_eq!(visitor.readers().len(), 1);
        drop(visitor);
        assert_eq!(round_of(&Visitor::of(&engine).unwrap()).unwrap(), 11);
        assert!(engine.snapshots().is_empty());
        // The lock is still held: a visit must not have dropped it.
        assert!(matches!(Visitor::open(folder.path()), Err(EngineError::InUse { .. })));
    }

    #[test]
    fn a_visitor_reads_single_records_and_ranges() {
        let folder = tempfile::tempdir().unwrap();
        let engine = LmdbOptions::default().open(folder.path()).unwrap();
        let mut transaction = engine.write().unwrap();
        for number in 0..5_000u32 {
            let key = (3 * number).to_be_bytes();
            let value = vec![number as u8; if number % 500 == 0 { 9_000 } else { 20 }];
            transaction.put(Table::Data, &key, &value).unwrap();
        }
        transaction.commit().unwrap();
        let visitor = Visitor::of(&engine).unwrap();
        for number in [0u32, 1, 2, 3, 1_500, 7_499, 14_997, 14_998, 20_000] {
            let found = visitor.get(Table::Data, &number.to_be_bytes()).unwrap();
            let expected = number.is_multiple_of(3) && number < 15_000;
            assert_eq!(
                found.map(|value| value[0]),
                expected.then_some((number / 3) as u8),
                "{number}"
            );
        }
        for (low, high) in [
            (0u32, 14_997u32),
            (5, 5),
            (6, 6),
            (299, 3_001),
            (14_000, 99_999),
            (9, 3),
        ] {
            let (low, high) = (low.to_be_bytes(), high.to_be_bytes());
            for range in [
                (Bound::Included(&low[..]), Bound::Excluded(&high[..])),
                (Bound::Excluded(&low[..]), Bound::Included(&high[..])),
                (Bound::Unbounded, Bound::Included(&high[..])),
                (Bound::Included(&low[..]), Bound::Unbounded),
            ] {
                let mut found = Vec::new();
                let visited = visitor.visit_range::<EngineError>(Table::Data, range, false, &mut |key, _| {
                    found.push(u32::from_be_bytes(key.try_into().unwrap()));
                    Ok(())
                });
                visited.unwrap();
                let all = (0..15_000u32)
                    .step_by(3)
                    .filter(|number| range.contains(&number.to_be_bytes()[..]));
                assert_eq!(found, all.collect::<Vec<_>>(), "{range:?}");
            }
        }
    }

    #[test]
    fn pages_that_were_copied_are_read_when_the_store_has_been_written_over() {
        let [folder, elsewhere] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let options = LmdbOptions {
            durability: Durability::Volatile,
            ..LmdbOptions::default()
        };
        let engine = options.open(folder.path()).unwrap();
        write(&engine, 1);
        // Without a cell, as a fifth visitor or one of another user is.
        let [visitor, other] = [(), ()].map(|()| Visitor::alone(folder.path()).unwrap());
        let mut file = OpenOptions::new();
        let file = file.read(true).write(true).create(true).truncate(true);
        let copied = visitor
            .set_down(file.open(elsewhere.path().join("pages")).unwrap(), elsewhere.path())
            .unwrap();
        write(&engine, 2);
        assert_eq!(
            round_of(&other).unwrap(),
            1,
            "one commit more uses none of its pages again"
        );
        (3..12).for_each(|round| write(&engine, round));
        assert!(matches!(round_of(&other), Err(EngineError::Overtaken { .. })));
        assert_eq!(round_of(&copied).unwrap(), 1);
        copied.verify(Verify::None, |_| ()).unwrap();
        // Too late to copy.
        let late = other.set_down(file.open(elsewhere.path().join("late")).unwrap(), elsewhere.path());
        assert!(matches!(late, Err(EngineError::Overtaken { .. })), "{late:?}");
    }
}
