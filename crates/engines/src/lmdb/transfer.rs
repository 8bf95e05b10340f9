//! Makes stores from records: copies of a store, and imports.
//!
//! **Problem.** An interrupted copy must not look like a store, and a copy of the file itself would include all its
//! free pages.
//!
//! **Method.** A new store is made in a folder beside its place, record by record in the order of their keys, so that
//! its pages are full. The new store is synced, and renamed last. If the program ends before that, the old contents
//! stay unchanged; the next attempt removes the unfinished folder.
//!
//! **An export** is text, a line for each record, and a last line with the number of records, the length of the text,
//! and its CRC32C. [`import`] reads it to the end before the new store gets its name.
//!
//! ```text
//! punctual store export 1
//! checksums yes
//! data 4 5 door open%0a
//! temporal 6 33 room/1 ...
//! end 2 77 1a2b3c4d
//! ```
//!
//! A record is its table, the lengths of its key and its value in bytes, the key, and the value. `%`, space, and all
//! bytes that are not printable ASCII are written as `%` and two hexadecimal digits. `checksums` says whether the plain
//! records of the store had them. A temporal object's value begins with the 24 bytes that `temporal::record` in
//! `punctual-store` describes. `end` has the number of records, the bytes before its line, and their CRC32C in
//! hexadecimal.

use std::fs;
use std::io::{self, BufRead, Read as _, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use punctual_os::linux::mapping::memory_file;
pub use punctual_store::engine::{CopyCount, TransferError};
use punctual_store::engine::{
    Durability, Engine, EngineError, FileEngine, KEY_MAX_LEN, Table, VALUE_MAX_LEN, Write as _,
};
use punctual_units::Share;

use super::owner::Owner;
use super::transactions::LmdbWrite;
use super::verify::Verify;
use super::visitor::{Visitor, open_file};
use super::{DATA_FILE, Lmdb, LmdbOptions, QUOTA_MIN, checked, error, memory, sync, unsynced};
use crate::directory;

/// Bytes of records per transaction of a new store.
const BATCH: usize = 8 << 20;
/// Bytes per transaction of a copy beside the store's owner, to leave it the medium: a write of the owner's that meets
/// such a step waits for a few milliseconds on common media.
const STEP: usize = 1 << 20;
/// Longest pause between two steps: a copy makes at least 2 MB a second, if the medium can.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Largest quota of a new store, in bytes: the address space has room for several such maps.
const QUOTA_MAX: u64 = 1 << 42;
/// Number of attempts at a copy whose snapshot the owner takes away.
const TRIES_MAX: usize = 5;
const FIRST_LINE: &str = "punctual store export 1";
/// Longest word of an export's line, outside of a record: a table's name, a number.
const WORD_MAX: usize = 32;

/// Table, key and value.
type Record = (Table, Vec<u8>, Vec<u8>);

/// Callback for the progress of a copy, after each mebibyte of records.
type Progress<'p> = &'p mut dyn FnMut(CopyCount);

/// Copies the newest commit of the store in `from`, which another process may have open and go on writing, to a new
/// store in `to`. If the owner takes the snapshot away, the copy begins anew, five times in all. From the second
/// attempt on, the pages are copied first, as fast as they can be read: into memory, if they fit into half of the free
/// memory, are less than 256 MiB, and no control group bounds the memory of this process; else to a file beside the new
/// store.
///
/// While another process has the store open, the new store is written in small steps, each synced, with pauses, so that
/// the owner's writes seldom meet one. Steps take `share` of the time, or more if a step takes so long that the longest
/// pause is too short. [`Share::ONE`] makes no pauses.
///
/// # Errors
/// [`TransferError::Outrun`], [`TransferError::Taken`]; those of [`Visitor::open`] and [`Visitor::visit`] for `from`;
/// those of [`LmdbOptions::open`] for `to`, among others [`EngineError::DiskFull`]; [`EngineError::Io`] if the folder
/// above `to` does not exist, or is a store's. After an error nothing is left at `to`.
pub fn backup(from: &Path, to: &Path, share: Share, progress: Progress<'_>) -> Result<CopyCount, TransferError> {
    let visit = || Visitor::open(from);
    persistently(from, |again| backup_once(&visit, from, to, share, again, progress))
}

impl FileEngine for Lmdb {
    fn backup(&self, to: &Path, share: Share) -> Result<CopyCount, TransferError> {
        let (visit, from) = (|| Visitor::of(self), self.path());
        persistently(from, |again| backup_once(&visit, from, to, share, again, &mut |_| ()))
    }

    fn export(&self, to: &mut dyn Write) -> Result<CopyCount, TransferError> {
        export_from(&|| Visitor::of(self), self.path(), to, &mut |_| ())
    }
}

/// Repeats `attempt` until it keeps its snapshot; its argument is true from the second attempt on.
fn persistently<T>(from: &Path, mut attempt: impl FnMut(bool) -> Result<T, TransferError>) -> Result<T, TransferError> {
    let mut tries = 0;
    loop {
        let answer = attempt(tries > 0);
        tries += 1;
        match answer {
            Err(TransferError::Engine(last @ (EngineError::SnapshotEnded { .. } | EngineError::Overtaken { .. }))) => {
                if tries == TRIES_MAX {
                    let path = from.to_path_buf();
                    let last = Box::new(last);
                    return Err(TransferError::Outrun { path, tries, last });
                }
            }
            answer => return answer,
        }
    }
}

fn backup_once<'e>(
    visit: &dyn Fn() -> Result<Visitor<'e>, EngineError>,
    from: &Path,
    to: &Path,
    share: Share,
    set_down: bool,
    progress: Progress<'_>,
) -> Result<CopyCount, TransferError> {
    let (checksums, quota) = {
        let visitor = visit()?;
        (visitor.has_checksums(), visitor.quota())
    };
    let mut new = New::begin(to, checksums)?;
    new.quota = quota;
    let pages = match set_down {
        true => Some(spare_file(
            &new.folder,
            fs::metadata(from.join(DATA_FILE)).map_or(u64::MAX, |about| about.len()),
        )?),
        false => None,
    };
    // The snapshot is taken after the new store exists, and released before the last sync, because it keeps pages of
    // the owner's store from reuse.
    new.finish(|filler| {
        let visitor = visit()?;
        if visitor.owner().is_some() && share < Share::ONE {
            filler.pace = Some(Pace::of(share));
        }
        let visitor = match pages {
            Some(pages) => visitor.set_down(pages, to)?,
            None => visitor,
        };
        copy(&visitor, filler, progress)
    })
}

/// Copies all records of a snapshot.
fn copy(visitor: &Visitor<'_>, filler: &mut Filler<'_>, progress: Progress<'_>) -> Result<(), TransferError> {
    for table in [Table::Data, Table::Temporal] {
        visitor.visit::<TransferError>(table, &mut |key, value| {
            filler.add(table, key, value)?;
            filler.tell(progress);
            Ok(())
        })?;
    }
    Ok(())
}

/// Rewrites the store in `directory` without its free pages, and replaces the old file. No process may have the store
/// open. Needs room for a second copy meanwhile.
///
/// # Errors
/// [`EngineError::InUse`], [`EngineError::NoStore`]; those of [`backup`]. After an error the store is unchanged.
pub fn compact(directory: &Path, progress: Progress<'_>) -> Result<CopyCount, TransferError> {
    let old = open_file(directory)?;
    let _owner = Owner::take(directory)?;
    let visitor = Visitor::alone(directory)?;
    let folder = directory.join(sync::NEW);
    let mut new = New::begin_in(folder, visitor.has_checksums())?;
    new.quota = visitor.quota();
    let transferred = new.fill(|filler| copy(&visitor, filler, progress))?;
    let path = directory.join(DATA_FILE);
    let fail = |source| error::io(&path, "put the new file in the place of the old one")(source);
    let place = || {
        let made = new.folder.join(DATA_FILE);
        let file = fs::File::open(&made)?;
        let about = old.metadata()?;
        if file.metadata()?.uid() != about.uid() {
            fchown(&file, Some(about.uid()), Some(about.gid()))?;
        }
        file.set_permissions(about.permissions())?;
        file.sync_all()?;
        fs::rename(&made, &path)?;
        checked::forget(directory);
        directory::sync(directory)
    };
    place().map_err(fail)?;
    if visitor.is_volatile() {
        unsynced::remove(directory).map_err(fail)?;
    }
    Ok(transferred)
}

/// Writes all records of the store in `directory` as text, see the [module](self). The pages of a store that another
/// process has open are copied before the first byte is written, as [`backup`] does from its second attempt on: the
/// reader of the text may be slow, and the owner would take the snapshot away. Where they do not go into memory, they
/// go into `TMPDIR`, or `/var/tmp` if it is not set. Where they cannot be copied, the text is written from the
/// snapshot.
///
/// # Errors
/// [`TransferError::Write`], [`TransferError::Outrun`]; those of [`Visitor::open`] and [`Visitor::visit`]. After an
/// error the text lacks its end line.
pub fn export(directory: &Path, to: &mut dyn Write, progress: Progress<'_>) -> Result<CopyCount, TransferError> {
    export_from(&|| Visitor::open(directory), directory, to, progress)
}

fn export_from<'e>(
    visit: &dyn Fn() -> Result<Visitor<'e>, EngineError>,
    from: &Path,
    to: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<CopyCount, TransferError> {
    let visitor = persistently(from, |_| {
        let visitor = visit()?;
        if visitor.owner().is_none() {
            return Ok(visitor);
        }
        let (_, len) = visitor.on_medium()?;
        // Not /tmp, which may be in memory.
        let folder = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        match spare_file(&folder, len).and_then(|pages| visitor.set_down(pages, from)) {
            Err(EngineError::DiskFull { .. } | EngineError::ReadOnly { .. } | EngineError::Io { .. }) => Ok(visit()?),
            copied => Ok(copied?),
        }
    })?;
    let mut out = SummingWriter::new(to);
    let checksums = if visitor.has_checksums() { "yes" } else { "no" };
    out.text(&format!("{FIRST_LINE}\nchecksums {checksums}\n"))?;
    let mut done = CopyProgress::default();
    for table in [Table::Data, Table::Temporal] {
        visitor.visit::<TransferError>(table, &mut |key, value| {
            out.text(&format!("{} {} {} ", name_of(table), key.len(), value.len()))?;
            out.escaped(key)?;
            out.text(" ")?;
            out.escaped(value)?;
            out.text("\n")?;
            done.count(key, value, progress);
            Ok(())
        })?;
    }
    let (bytes, sum) = (out.bytes, out.sum);
    out.text(&format!("end {} {bytes} {sum:08x}\n", done.transferred.records))?;
    Ok(done.transferred)
}

/// Makes a new store in `directory` from the text of an [`export`].
///
/// # Errors
/// [`TransferError::Damaged`] for text that is cut off or was changed, [`TransferError::Read`],
/// [`TransferError::Taken`]; those of [`LmdbOptions::open`]; [`EngineError::Io`] if the folder above `directory` does
/// not exist, or is a store's. After an error nothing is left at `directory`.
pub fn import(from: &mut dyn BufRead, directory: &Path, progress: Progress<'_>) -> Result<CopyCount, TransferError> {
    let mut lines = Lines::new(from);
    lines.expect(FIRST_LINE)?;
    let checksums = match lines.word(b'\n')?.as_str() {
        "checksums yes" => true,
        "checksums no" => false,
        other => {
            return Err(lines.damaged(format!(
                "expected \"checksums yes\" or \"checksums no\", found {other:?}"
            )));
        }
    };
    lines.line += 1;
    let new = New::begin(directory, checksums)?;
    new.finish(|filler| {
        while let Some((table, key, value)) = lines.record(filler.done.transferred.records)? {
            if filler.is_behind(table, &key) {
                return Err(lines.damaged("its key does not follow the one before".to_owned()));
            }
            filler.add(table, &key, &value)?;
            lines.line += 1;
            filler.tell(progress);
        }
        Ok(())
    })
}

fn name_of(table: Table) -> &'static str {
    match table {
        Table::Data => "data",
        Table::Temporal => "temporal",
    }
}

/// An unnamed file for `len` bytes: in memory, or in `folder`.
fn spare_file(folder: &Path, len: u64) -> Result<fs::File, EngineError> {
    if len < memory::for_a_copy()
        && let Ok(file) = memory_file(c"pages")
    {
        return Ok(file);
    }
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let unnamed = options.clone().custom_flags(libc::O_TMPFILE).open(folder);
    // Not every file system makes files without a name.
    let made = unnamed.or_else(|_| {
        let path = folder.join(format!("punctual-pages-{}", std::process::id()));
        let file = options.create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    });
    made.map_err(error::io(folder, "make a file for the pages of the store"))
}

/// An unfinished store in a folder of its own; removed on drop unless it got its name.
struct New {
    folder: PathBuf,
    /// Ownership of the folder, held until the store has its name, so that no other process makes a store there.
    owner: Arc<Owner>,
    /// Final directory of the store; `None` if only its file is wanted.
    place: Option<PathBuf>,
    is_named: bool,
    /// Quota of the source store, in bytes; `None`: unknown.
    quota: Option<usize>,
    options: LmdbOptions,
}

impl New {
    fn begin(place: &Path, checksums: bool) -> Result<New, TransferError> {
        let taken = || TransferError::Taken {
            path: place.to_path_buf(),
        };
        let is_free = match fs::read_dir(place) {
            Ok(mut entries) => entries.next().is_none(),
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
                let above = directory::parent(place);
                let within = error::io(above, "make a new store in");
                if [DATA_FILE, "data.redb"].iter().any(|file| above.join(file).exists()) {
                    let why = "it is the folder of a store: name a folder elsewhere";
                    return Err(within(io::Error::other(why)).into());
                }
                above.metadata().map_err(within)?;
                true
            }
            Err(other) if other.kind() == io::ErrorKind::NotADirectory => false,
            Err(other) => return Err(error::io(place, "look into")(other).into()),
        };
        let name = place.file_name().filter(|_| is_free).ok_or_else(taken)?;
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(".unfinished");
        let mut new = New::begin_in(place.with_file_name(beside), checksums)?;
        new.place = Some(place.to_path_buf());
        Ok(new)
    }

    fn begin_in(folder: PathBuf, checksums: bool) -> Result<New, TransferError> {
        let fail = error::io(&folder, "create the folder of a new store");
        directory::make(&folder).map_err(fail)?;
        let owner = Arc::new(Owner::take(&folder)?);
        sync::clear_files(&folder).map_err(fail)?;
        // Twice the free space suffices: no more can be written.
        let room = error::free_bytes(&folder).unwrap_or(QUOTA_MAX).saturating_mul(2);
        let quota = usize::try_from(room.min(QUOTA_MAX))
            .unwrap_or(QUOTA_MIN)
            .max(64 * QUOTA_MIN);
        let options = LmdbOptions {
            durability: Durability::Durable,
            quota,
            checksums,
            verify: Verify::Structure,
            ..LmdbOptions::default()
        };
        Ok(New {
            folder: folder.clone(),
            owner,
            place: None,
            is_named: false,
            quota: None,
            options,
        })
    }

    /// Fills the store, syncs it, and gives it its name.
    fn finish(
        mut self,
        fill: impl FnOnce(&mut Filler<'_>) -> Result<(), TransferError>,
    ) -> Result<CopyCount, TransferError> {
        let transferred = self.fill(fill)?;
        let Some(place) = &self.place else {
            return Ok(transferred);
        };
        let name = || {
            fs::rename(&self.folder, place)?;
            directory::sync(directory::parent(place))
        };
        let named = name().map_err(error::io(place, "give the new store its name"));
        self.is_named = !self.folder.exists();
        named?;
        Ok(transferred)
    }

    /// Fills the store with records, and closes it.
    fn fill(
        &self,
        fill: impl FnOnce(&mut Filler<'_>) -> Result<(), TransferError>,
    ) -> Result<CopyCount, TransferError> {
        let open = |options: LmdbOptions| options.open_as(Arc::clone(&self.owner), &self.folder, &mut |_| ());
        let engine = open(self.options)?;
        let mut filler = Filler {
            engine: &engine,
            open: None,
            batch: 0,
            last: None,
            done: CopyProgress::default(),
            pace: None,
        };
        fill(&mut filler)?;
        filler.commit()?;
        let transferred = filler.done.transferred;
        drop(filler);
        let taken = engine.space()?.taken as usize;
        drop(engine);
        // Opens the store once more to note its quota: that of the source store, or one that suits its size.
        let suits = LmdbOptions::default().quota.max(taken.saturating_add(taken / 4));
        let quota = self.quota.map_or(suits, |quota| quota.max(taken));
        drop(open(LmdbOptions {
            quota,
            verify: Verify::None,
            ..self.options
        })?);
        Ok(transferred)
    }
}

impl Drop for New {
    fn drop(&mut self) {
        // Removes an unfinished store; the next attempt would do so, too. Once the store has its name, a folder here
        // belongs to another attempt.
        if !self.is_named {
            let _ = sync::clear(&self.folder);
        }
    }
}

/// Puts records into a new store.
struct Filler<'e> {
    engine: &'e Lmdb,
    open: Option<LmdbWrite<'e>>,
    batch: usize,
    last: Option<(Table, Vec<u8>)>,
    done: CopyProgress,
    /// `None`: writes as fast as the medium permits.
    pace: Option<Pace>,
}

/// Keeps the steps of a copy to a share of the time.
struct Pace {
    /// Length of a pause, in lengths of the step before it.
    pause: f64,
    step_began: Instant,
}

impl Pace {
    fn of(share: Share) -> Pace {
        Pace {
            pause: 1.0 / share.get().max(f64::MIN_POSITIVE) - 1.0,
            step_began: Instant::now(),
        }
    }

    /// Pauses after a step.
    fn pause(&mut self) {
        let pause = self.step_began.elapsed().as_secs_f64() * self.pause;
        thread::sleep(PAUSE_MAX.min(Duration::try_from_secs_f64(pause).unwrap_or(PAUSE_MAX)));
        self.step_began = Instant::now();
    }
}

impl Filler<'_> {
    /// Whether `key` is not behind all records so far, so that it cannot be appended.
    fn is_behind(&self, table: Table, key: &[u8]) -> bool {
        match &self.last {
            Some((Table::Temporal, _)) if table == Table::Data => true,
            Some((of, last)) => *of == table && last.as_slice() >= key,
            None => false,
        }
    }

    fn add(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let mut transaction = match self.open.take() {
            Some(open) => open,
            None => LmdbWrite::begin(self.engine)?,
        };
        transaction.append(table, key, value)?;
        self.batch += key.len() + value.len();
        if self.batch >= self.pace.as_ref().map_or(BATCH, |_| STEP) {
            self.batch = 0;
            transaction.commit()?;
            if let Some(pace) = &mut self.pace {
                pace.pause();
            }
        } else {
            self.open = Some(transaction);
        }
        let (of, last) = self.last.get_or_insert((table, Vec::new()));
        *of = table;
        last.clear();
        last.extend_from_slice(key);
        self.done.add(key, value);
        Ok(())
    }

    fn tell(&mut self, progress: Progress<'_>) {
        self.done.tell(progress);
    }

    fn commit(&mut self) -> Result<(), EngineError> {
        self.open.take().map_or(Ok(()), LmdbWrite::commit)
    }
}

/// Amount copied so far, and the part of it reported to the progress callback.
#[derive(Default)]
struct CopyProgress {
    transferred: CopyCount,
    /// Value of `transferred.bytes` at the last report.
    reported: u64,
}

impl CopyProgress {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.transferred.records += 1;
        self.transferred.bytes += (key.len() + value.len()) as u64;
    }

    fn tell(&mut self, progress: Progress<'_>) {
        if self.transferred.bytes - self.reported >= 1 << 20 {
            self.reported = self.transferred.bytes;
            progress(self.transferred);
        }
    }

    fn count(&mut self, key: &[u8], value: &[u8], progress: Progress<'_>) {
        self.add(key, value);
        self.tell(progress);
    }
}

/// Writes an export, and counts its bytes and sums them up (CRC32C).
struct SummingWriter<'w> {
    to: &'w mut dyn Write,
    bytes: u64,
    sum: u32,
    buffer: Vec<u8>,
}

impl<'w> SummingWriter<'w> {
    fn new(to: &'w mut dyn Write) -> SummingWriter<'w> {
        SummingWriter {
            to,
            bytes: 0,
            sum: 0,
            buffer: Vec::new(),
        }
    }

    fn text(&mut self, text: &str) -> Result<(), TransferError> {
        self.bytes(text.as_bytes())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        self.bytes += bytes.len() as u64;
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        self.to.write_all(bytes).map_err(TransferError::Write)
    }

    fn escaped(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        for part in bytes.chunks(1 << 16) {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            for byte in part {
                match byte {
                    b'%' | b' ' | 0..=31 | 127..=255 => buffer.extend([b'%', digit(byte >> 4), digit(byte & 15)]),
                    plain => buffer.push(*plain),
                }
            }
            self.bytes(&buffer)?;
            self.buffer = buffer;
        }
        Ok(())
    }
}

fn digit(number: u8) -> u8 {
    b"0123456789abcdef"[usize::from(number)]
}

/// Reads an export, and counts its bytes and sums them up (CRC32C).
struct Lines<'r> {
    from: &'r mut dyn BufRead,
    line: u64,
    bytes: u64,
    sum: u32,
}

impl<'r> Lines<'r> {
    fn new(from: &'r mut dyn BufRead) -> Lines<'r> {
        Lines {
            from,
            line: 1,
            bytes: 0,
            sum: 0,
        }
    }

    fn damaged(&self, what: String) -> TransferError {
        TransferError::Damaged { line: self.line, what }
    }

    fn byte(&mut self) -> Result<u8, TransferError> {
        let mut byte = [0];
        match self.from.read_exact(&mut byte) {
            Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damaged("the export ends in the middle: it was cut off".to_owned()))
            }
            Err(refused) => Err(TransferError::Read(refused)),
            Ok(()) => {
                self.bytes += 1;
                self.sum = crc32c::crc32c_append(self.sum, &byte);
                Ok(byte[0])
            }
        }
    }

    /// Reads up to and including the byte `end`; returns the text before it.
    fn word(&mut self, end: u8) -> Result<String, TransferError> {
        let mut word = String::new();
        loop {
            match self.byte()? {
                byte if byte == end => return Ok(word),
                byte @ 32..=126 if word.len() < WORD_MAX => word.push(char::from(byte)),
                _ => return Err(self.damaged("this is no export of a store, or it was changed".to_owned())),
            }
        }
    }

    fn number(&mut self, end: u8, max: usize) -> Result<usize, TransferError> {
        let word = self.word(end)?;
        let number = word.parse().ok().filter(|number| *number <= max);
        number.ok_or_else(|| self.damaged(format!("expected a length of at most {max}, found {word:?}")))
    }

    fn expect(&mut self, line: &str) -> Result<(), TransferError> {
        let found = self.word(b'\n')?;
        if found != line {
            return Err(self.damaged(format!("expected {line:?}, found {found:?}")));
        }
        self.line += 1;
        Ok(())
    }

    /// The next record; `None` after an end line that confirms all records before it.
    fn record(&mut self, records: u64) -> Result<Option<Record>, TransferError> {
        let (bytes, sum) = (self.bytes, self.sum);
        let table = match self.word(b' ')?.as_str() {
            "data" => Table::Data,
            "temporal" => Table::Temporal,
            "end" => return self.end(records, bytes, sum).map(|()| None),
            other => return Err(self.damaged(format!("expected data, temporal or end, found {other:?}"))),
        };
        let key_len = self.number(b' ', KEY_MAX_LEN)?;
        if key_len == 0 {
            return Err(self.damaged("a key has at least one byte".to_owned()));
        }
        let len = self.number(b' ', VALUE_MAX_LEN)?;
        let key = self.escaped(key_len, b' ')?;
        let value = self.escaped(len, b'\n')?;
        Ok(Some((table, key, value)))
    }

    fn escaped(&mut self, len: usize, end: u8) -> Result<Vec<u8>, TransferError> {
        // Grows with the bytes read: the announced length may be wrong.
        let mut bytes = Vec::with_capacity(len.min(1 << 16));
        while bytes.len() < len {
            match self.byte()? {
                b'%' => {
                    let digits = [self.byte()?, self.byte()?].map(|digit| char::from(digit).to_digit(16));
                    let [Some(high), Some(low)] = digits else {
                        return Err(self.damaged("% is not followed by two digits".to_owned()));
                    };
                    bytes.push((high << 4 | low) as u8);
                }
                b'\n' => return Err(self.damaged("the record is shorter than it says".to_owned())),
                plain => bytes.push(plain),
            }
        }
        if self.byte()? != end {
            return Err(self.damaged("the record is longer than it says".to_owned()));
        }
        Ok(bytes)
    }

    fn end(&mut self, records: u64, bytes: u64, sum: u32) -> Result<(), TransferError> {
        let found = self.word(b'\n')?;
        let expected = format!("{records} {bytes} {sum:08x}");
        if found != expected {
            return Err(self.damaged(format!("the end says {found:?}, and {expected:?} came before it")));
        }
        self.line += 1;
        match self.from.take(1).read_to_end(&mut Vec::new()) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.damaged("something follows the end".to_owned())),
            Err(refused) => Err(TransferError::Read(refused)),
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_store::engine::EndedBecause;
    use punctual_units::Nanos;

    use super::*;

    fn ended() -> TransferError {
        TransferError::Engine(EngineError::SnapshotEnded {
            age: Nanos::from_millis(100),
            why: EndedBecause::Held,
        })
    }

    /// The owner takes so many snapshots away.
    #[test]
    fn a_second_copy_to_one_place_is_refused_and_leaves_the_first_alone() {
        let above = tempfile::tempdir().unwrap();
        let place = above.path().join("copy");
        let first = New::begin(&place, true).unwrap();
        let filled = first.finish(|filler| {
            let second = New::begin(&place, true).map(drop);
            assert!(
                matches!(second, Err(TransferError::Engine(EngineError::InUse { .. }))),
                "{second:?}"
            );
            filler.add(Table::Data, b"door", b"open")?;
            Ok(())
        });
        assert_eq!(filled.unwrap().records, 1);
        assert_eq!(Visitor::open(&place).unwrap().records(Table::Data), 1);
        assert!(!above.path().join(".copy.unfinished").exists());
        // Nothing is left of one that is given up.
        let given_up = New::begin(&above.path().join("other"), true).unwrap();
        drop(given_up);
        assert!(!above.path().join(".other.unfinished").exists());
    }

    #[test]
    fn a_copy_is_begun_anew_until_its_snapshot_is_kept_or_it_is_told_what_to_do() {
        for taken_away in 0..8 {
            let mut attempts = Vec::new();
            let answer = persistently(Path::new("live"), |again| {
                attempts.push(again);
                if attempts.len() > taken_away {
                    Ok(())
                } else {
                    Err(ended())
                }
            });
            assert_eq!(attempts.len(), TRIES_MAX.min(taken_away + 1));
            assert!(!attempts[0] && attempts[1..].iter().all(|again| *again));
            match answer {
                Ok(()) => assert!(taken_away < TRIES_MAX),
                Err(outrun) => {
                    let told = outrun.to_string();
                    assert!(taken_away >= TRIES_MAX, "{told}");
                    for part in [
                        "live: ",
                        "begun 5 times",
                        "more from reuse than all data",
                        "reader_life_max none",
                    ] {
                        assert!(told.contains(part), "{part}: {told}");
                    }
                }
            }
        }
        let other = persistently::<()>(Path::new("live"), |_| {
            Err(TransferError::Write(io::ErrorKind::Other.into()))
        });
        assert!(
            matches!(other, Err(TransferError::Write(_))),
            "no other error is tried again"
        );
    }
}
