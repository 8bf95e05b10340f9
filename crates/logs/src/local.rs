//! A log in one file of one machine: acknowledged entries are on the medium. It is **not replicated**: with the machine
//! the log is gone, and with it the federation.
//!
//! **The file.** A head, which names the program, the format of the file, that of the entries, the federation, the last
//! revision before the first record, and the history; then records: length, revision, checksum (CRC32C), entry. In
//! format 1 there is no history: the first program that opens such a log, and finds room for a new file, gives it a
//! number. A head is never changed in place: a new file takes the old one's name, once it is on the medium.
//!
//! **A torn tail.** An append is written and synced before the next begins, so a power cut leaves at most one
//! incomplete record, the last one, and that was not acknowledged. It is cut off. If a later record can be read behind
//! a damaged one, or there are more bytes than the damaged one's head says, the damaged one was acknowledged: the log
//! is refused. Damage that leaves nothing readable up to the file's end looks like an unfinished append, and is cut off
//! as one.
//!
//! **Trimming** takes effect in memory at once. The file is rewritten once it has more bytes to forget than to keep, so
//! entries trimmed shortly before the program ended are back at the next start, until they are trimmed again.
//!
//! **A full medium** ends nothing. What an append has written is cut off, and the append refused; if it cannot be cut
//! off, or the sync has failed, a later append first writes a new file from memory. While the medium is full, trimming
//! rewrites the file however little there is to forget; a file with `.reserve` behind its name makes way to one of
//! at most two entries. Any other failed write ends all answers, because the contents of the medium are unknown then.
//!
//! All entries that are not trimmed are in memory as well: a read touches no medium.

#[cfg(target_os = "linux")]
mod named;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::{
    AppendResult, CommitLog, ENTRY_BYTES_MAX, FederationId, HistoryId, Identity, LogError, LogHistory, LogRecord,
    LogState, Memory, Revision, Stretch,
};

/// The format of the file that this version writes; it reads older ones as well.
const FILE_FORMAT: u32 = 2;
const MAGIC: &[u8; 8] = b"PNCTLLOG";
/// Bytes of the head: magic, two formats, federation, revision, history, checksum.
const HEAD: usize = 8 + 4 + 4 + 8 + 8 + 24 + 4;
/// Bytes of the head of format 1, which has no history.
const HEAD_1: usize = HEAD - 24;
/// Bytes of a record's head: length, revision, checksum.
const RECORD_HEAD: usize = 4 + 8 + 4;
/// Least number of trimmed bytes for which the file is rewritten.
const FORGET_MIN: u64 = 1 << 20;
/// Bytes of a file that makes way in a full medium, so that a trimmed log can be written beside the old one.
const RESERVE: usize = HEAD + 2 * (RECORD_HEAD + ENTRY_BYTES_MAX);
/// Bytes that found no room in a new file for which one append is refused before the next try.
const REST_BYTES: usize = 1 << 18;

/// Reason for which a log in a file was not opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// The operating system refused a call, or a log was to be made where one exists already.
    #[error("{}: {what}", path.display())]
    Refused { path: PathBuf, what: String },
    /// Another process has the log open.
    #[error("{}: another process has this log open: end it, or name another file", path.display())]
    InUse { path: PathBuf },
    /// The file is not a log.
    #[error("{}: this is no log: name another file, or remove it if nothing needs it", path.display())]
    NoLog { path: PathBuf },
    /// A newer version wrote the file.
    #[error(
        "{}: the file has format {found}, this program reads up to {FILE_FORMAT}: update this program",
        path.display()
    )]
    NewerFile { path: PathBuf, found: u32 },
    /// An acknowledged entry cannot be read.
    #[error(
        "{}: the entry at revision {revision} is damaged, and others follow it: restore the file from a copy, or begin \
         anew from a backup of a node's store (`punctual cluster found --from`)", path.display()
    )]
    Damaged {
        path: PathBuf,
        /// The first revision that cannot be read.
        revision: Revision,
    },
}

impl LocalError {
    fn of(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> LocalError {
        let path = path.to_path_buf();
        move |error| LocalError::Refused {
            path,
            what: format!("{action}: {error}"),
        }
    }
}

/// A log in a file.
#[derive(Debug)]
pub struct Local {
    path: PathBuf,
    /// The identity in the file; `None` before a federation has claimed it.
    identity: Option<Identity>,
    entries: Memory,
    /// The file, and the offset behind its last record. `None`: the file does not exist yet, has to be written anew, or
    /// a write failed and no call is answered any more.
    file: Option<(File, u64)>,
    /// Bytes of trimmed records that are still in the file.
    forgotten: u64,
    failure: Option<String>,
    /// Why the last append found no room.
    full: Option<String>,
    /// Appends that are refused before the file is written anew once more.
    rests: usize,
    /// [`sync_folder`], except in tests.
    sync_folder: fn(&Path) -> io::Result<()>,
    /// The lock file, locked for as long as the log is open.
    lock: File,
}

impl Drop for Local {
    fn drop(&mut self) {
        // Beside a file that was never made, nothing stays.
        if cfg!(target_os = "linux") && !self.path.exists() {
            drop(std::fs::remove_file(beside(&self.path, ".lock")));
        }
        // A program that another thread starts has a copy of the lock until execve(2), unless it is released.
        let _ = self.lock.unlock();
    }
}

impl Local {
    /// Opens the log in the file at `path`, which may not exist yet; the lock of a file with `.lock` behind its name
    /// keeps other processes out.
    ///
    /// # Errors
    /// [`LocalError`].
    pub fn open(path: &Path) -> Result<Local, LocalError> {
        let io = |action| LocalError::of(path, action);
        // A file that is no log gets no lock beside it.
        let mut magic = Vec::new();
        let mut begins = |file: File| file.take(MAGIC.len() as u64).read_to_end(&mut magic);
        if path.is_dir() || File::open(path).and_then(&mut begins).is_ok() && magic != MAGIC {
            return Err(LocalError::NoLog {
                path: path.to_path_buf(),
            });
        }
        let name = beside(path, ".lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&name);
        let lock = lock.map_err(io("cannot be locked: name a file in a folder that this user may write"))?;
        let locked = lock.try_lock();
        // A process that made no log may have removed the file before it was locked here.
        #[cfg(target_os = "linux")]
        let locked = locked.and_then(|()| named::check(&lock, &name));
        locked.map_err(|error| match error {
            TryLockError::WouldBlock => LocalError::InUse {
                path: path.to_path_buf(),
            },
            TryLockError::Error(source) => io("cannot be locked")(source),
        })?;
        let mut log = Local {
            path: path.to_path_buf(),
            identity: None,
            entries: Memory::default(),
            file: None,
            forgotten: 0,
            failure: None,
            full: None,
            rests: 0,
            sync_folder,
            lock,
        };
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => log.read(file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io("cannot be opened")(error)),
        }
        Ok(log)
    }

    /// Makes a log in a new file; its first entry follows the base of the identity's history. For a federation that
    /// begins with a store of that revision, and has lost its log.
    ///
    /// # Errors
    /// [`LocalError`].
    pub fn begin(path: &Path, identity: Identity) -> Result<Local, LocalError> {
        let mut log = Local::open(path)?;
        if log.identity.is_some() {
            return Err(LocalError::Refused {
                path: path.to_path_buf(),
                what: "there is a log already: name a file that is not there".into(),
            });
        }
        log.entries = Memory::beginning_after(identity.history.base);
        log.write_anew(identity)
            .map_err(LocalError::of(path, "cannot be written"))?;
        Ok(log)
    }

    /// The revision of the last entry.
    pub fn last(&self) -> Revision {
        self.entries.last()
    }

    /// Reason for which no call is answered any more; `None` while calls are.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Why the log takes no appends until the medium has room; `None` while it takes them.
    pub fn waits_for_room(&self) -> Option<&str> {
        self.full.as_deref()
    }

    fn read(&mut self, mut file: File) -> Result<(), LocalError> {
        let path = self.path.clone();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(LocalError::of(&path, "cannot be read"))?;
        let no_log = || LocalError::NoLog { path: path.clone() };
        if !bytes.starts_with(MAGIC) {
            return Err(no_log());
        }
        let found = u32_at(&bytes, 8);
        if found > FILE_FORMAT {
            return Err(LocalError::NewerFile { path, found });
        }
        let head_len = if found < FILE_FORMAT { HEAD_1 } else { HEAD };
        let (head, records) = bytes.split_at_checked(head_len).ok_or_else(no_log)?;
        let (head, sum) = head.split_at(head_len - 4);
        if crc32c::crc32c(head) != u32_at(sum, 0) {
            return Err(no_log());
        }
        self.identity = Some(Identity {
            format: u32_at(head, 12),
            federation: FederationId(u64_at(head, 16)),
            history: LogHistory {
                id: HistoryId(u64_at(head, 32)),
                base: Revision(u64_at(head, 40)),
                parent: HistoryId(u64_at(head, 48)),
            },
        });
        self.entries = Memory::beginning_after(Revision(u64_at(head, 24)));
        let mut at = 0;
        while let Some(entry) = record_at(&records[at..], self.entries.last().next()) {
            let last = self.entries.last();
            _ = self.entries.append(last, entry); // fits: otherwise it would be no record
            at += RECORD_HEAD + entry.len();
        }
        let revision = self.entries.last().next();
        if !is_torn(&records[at..], revision) {
            return Err(LocalError::Damaged { path, revision });
        }
        let end = (head_len + at) as u64;
        if at < records.len() {
            file.set_len(end)
                .and_then(|()| file.sync_all())
                .map_err(LocalError::of(&path, "cannot be cut behind its last whole record"))?;
        }
        self.file = Some((file, end));
        Ok(())
    }

    /// Writes all entries that are not trimmed to a new file, which replaces the old one.
    fn write_anew(&mut self, identity: Identity) -> io::Result<()> {
        let mut bytes = head(identity, self.entries.trimmed());
        let kept = self.entries.read_from(self.entries.trimmed(), usize::MAX);
        for record in kept.map(|stretch| stretch.records).unwrap_or_default() {
            append_record(&mut bytes, record.revision, &record.bytes);
        }
        self.rests = bytes.len() / REST_BYTES; // until it has succeeded
        let new = beside(&self.path, ".new");
        let reserve = beside(&self.path, ".reserve");
        let file = match write_new(&new, &bytes) {
            Err(error) if is_full(&error) && bytes.len() <= RESERVE => {
                std::fs::remove_file(&reserve).map_err(|_| error)?;
                write_new(&new, &bytes)?
            }
            written => written?,
        };
        // From here on the old file may have no name: nothing more is appended to it.
        self.file = None;
        std::fs::rename(&new, &self.path)?;
        (self.sync_folder)(&self.path)?;
        self.file = Some((file, bytes.len() as u64));
        self.identity = Some(identity);
        (self.forgotten, self.rests) = (0, 0);
        if !reserve.exists() {
            _ = std::fs::write(&reserve, vec![0; RESERVE]); // without room there is none until the next time
        }
        Ok(())
    }

    /// Writes a record behind the last one, not yet synced. If there is no room, the file ends where it did, or is
    /// `None` until it is written anew.
    fn write(&mut self, revision: Revision, entry: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            if self.rests > 0 {
                self.rests -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.write_anew(self.identity.ok_or(io::ErrorKind::NotFound)?)?;
        }
        let Some((mut file, end)) = self.file.take() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut bytes = Vec::with_capacity(RECORD_HEAD + entry.len());
        append_record(&mut bytes, revision, entry);
        if let Err(error) = write_at(&mut file, end, &bytes) {
            self.file = file.set_len(end).ok().map(|()| (file, end));
            return Err(error);
        }
        self.file = Some((file, end + bytes.len() as u64));
        Ok(())
    }

    /// Takes note of a failed write. A full medium is waited for. After any other error the contents of the medium are
    /// unknown, and no call is answered: any later answer might contradict an earlier one.
    fn fail(&mut self, error: &io::Error) -> LogError {
        let path = self.path.display();
        if is_full(error) {
            self.full = Some(format!("{path}: {error}; make room: until then nothing is committed"));
            return LogError::NoRoom;
        }
        self.failure = Some(format!("{path}: {error}; replace the medium, then start again"));
        self.file = None;
        LogError::NoAnswer
    }

    fn check(&self) -> Result<(), LogError> {
        match self.failure {
            None => Ok(()),
            Some(_) => Err(LogError::NoAnswer),
        }
    }
}

impl CommitLog for Local {
    fn open(&mut self, identity: Identity) -> Result<LogState, LogError> {
        self.check()?;
        let history = match self.identity {
            Some(found) => {
                found.admit(identity)?;
                match found.history.id {
                    HistoryId(0) => LogHistory {
                        id: identity.history.id,
                        ..LogHistory::default()
                    },
                    _ => found.history,
                }
            }
            None => {
                self.entries = Memory::beginning_after(identity.history.base);
                identity.history
            }
        };
        let mut identity = Identity { history, ..identity };
        if self.identity != Some(identity)
            && let Err(error) = self.write_anew(identity)
        {
            let is_as_before = |found: &Identity| is_full(&error) && found.format == identity.format;
            match self.identity.filter(is_as_before) {
                // Without room for the history's number, it opens without one until it is opened again.
                Some(found) => identity = found,
                None => return Err(self.fail(&error)),
            }
        }
        let opened = self.entries.open(identity)?;
        let history = identity.history;
        Ok(LogState { history, ..opened })
    }

    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<AppendResult, LogError> {
        self.check()?;
        if entry.len() > ENTRY_BYTES_MAX {
            return Err(LogError::EntryTooLong { len: entry.len() });
        }
        if last != self.last() {
            return Ok(AppendResult::Lost { last: self.last() });
        }
        if let Err(error) = self.write(last.next(), entry) {
            return Err(self.fail(&error));
        }
        if let Err(error) = self.file.as_ref().map_or(Ok(()), |(file, _)| file.sync_data()) {
            // The entry may be on the medium, until the file is written anew.
            self.file = None;
            self.fail(&error);
            return Err(LogError::NoAnswer);
        }
        self.full = None;
        self.entries.append(last, entry)
    }

    fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError> {
        self.check()?;
        self.entries.read_from(after, max)
    }

    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<LogRecord>, LogError> {
        self.check()?;
        self.entries.watch_from(after, max)
    }

    fn trim(&mut self, upto: Revision) -> Result<(), LogError> {
        self.check()?;
        let trimmed = self.entries.trimmed();
        let count = upto.min(self.last()).0.saturating_sub(trimmed.0) as usize;
        let gone = self.entries.watch_from(trimmed, count)?;
        let bytes = gone.iter().map(|record| RECORD_HEAD + record.bytes.len());
        self.forgotten += bytes.sum::<usize>() as u64;
        self.entries.trim(upto)?;
        let kept = self
            .file
            .as_ref()
            .map_or(0, |(_, end)| end.saturating_sub(self.forgotten));
        let is_worth_it = self.forgotten > kept.max(FORGET_MIN) || self.full.is_some() && self.forgotten > 0;
        if let Some(identity) = self.identity.filter(|_| is_worth_it)
            && let Err(error) = self.write_anew(identity)
            // In a full medium the file stays as it is until the next time.
            && self.fail(&error) != LogError::NoRoom
        {
            return Err(LogError::NoAnswer);
        }
        Ok(())
    }
}

/// Writes and syncs a new file; if that fails, removes it, because it would keep room from others.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.inspect_err(|_| drop(std::fs::remove_file(path)))?;
    Ok(file)
}

/// Whether a write has failed for lack of room.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn head(identity: Identity, trimmed: Revision) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FILE_FORMAT.to_le_bytes());
    bytes.extend(identity.format.to_le_bytes());
    bytes.extend(identity.federation.0.to_le_bytes());
    let LogHistory { id, base, parent } = identity.history;
    for number in [trimmed.0, id.0, base.0, parent.0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

fn append_record(bytes: &mut Vec<u8>, revision: Revision, entry: &[u8]) {
    let begin = bytes.len();
    bytes.extend((entry.len() as u32).to_le_bytes());
    bytes.extend(revision.0.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[begin..]), entry);
    bytes.extend(sum.to_le_bytes());
    bytes.extend(entry);
}

/// The entry of the record at the beginning of `bytes`, if that is whole and has this revision.
fn record_at(bytes: &[u8], revision: Revision) -> Option<&[u8]> {
    let (head, rest) = bytes.split_at_checked(RECORD_HEAD)?;
    let len = u32_at(head, 0) as usize;
    if u64_at(head, 4) != revision.0 || len > ENTRY_BYTES_MAX {
        return None;
    }
    let entry = rest.get(..len)?;
    let sum = crc32c::crc32c_append(crc32c::crc32c(&head[..12]), entry);
    (sum == u32_at(head, 12)).then_some(entry)
}

/// Whether `rest`, behind the last whole record, can be left by an unfinished append of `revision`: it is no longer
/// than one record, or than its head says if that can be read, and no later record follows. A later one counts if it is
/// whole, or if its head says that it ends where the file does; damage may have destroyed all between.
fn is_torn(rest: &[u8], revision: Revision) -> bool {
    let longest = match u64_at(rest, 4) == revision.0 {
        true => RECORD_HEAD.saturating_add(u32_at(rest, 0) as usize),
        false => RECORD_HEAD + ENTRY_BYTES_MAX,
    };
    let revisions_max = (rest.len() / RECORD_HEAD) as u64;
    let follows = |at: usize| {
        let found = u64_at(rest, at + 4);
        let is_later = found > revision.0 && found - revision.0 <= revisions_max;
        is_later
            && (record_at(&rest[at..], Revision(found)).is_some()
                || at + RECORD_HEAD + u32_at(rest, at) as usize == rest.len())
    };
    rest.len() <= longest.min(RECORD_HEAD + ENTRY_BYTES_MAX) && !(1..rest.len()).any(follows)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let number = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    number.map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let number = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    number.map_or(0, u64::from_le_bytes)
}

/// Syncs the folder, so that the file's name is on the medium. Where folders cannot be opened, a rename needs no sync.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match cfg!(unix) {
        true => File::open(folder.unwrap_or(Path::new(".")))?.sync_all(),
        false => Ok(()),
    }
}

fn write_at(file: &mut File, at: u64, bytes: &[u8]) -> io::Result<()> {
    use std::io::Seek;
    file.seek(io::SeekFrom::Start(at))?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::FORMAT;

    const OURS: Identity = Identity {
        federation: FederationId(7),
        format: FORMAT,
        history: LogHistory {
            id: HistoryId(9),
            base: Revision::ZERO,
            parent: HistoryId(0),
        },
    };

    fn opened(path: &Path) -> Local {
        let mut log = Local::open(path).unwrap();
        CommitLog::open(&mut log, OURS).unwrap();
        log
    }

    /// A file with these entries.
    fn written(path: &Path, entries: &[Vec<u8>]) -> Vec<u8> {
        let mut log = opened(path);
        for entry in entries {
            log.append(log.last(), entry).unwrap();
        }
        drop(log);
        fs::read(path).unwrap()
    }

    fn entries_of(log: &mut Local) -> Vec<Vec<u8>> {
        let records = log.read_from(Revision::ZERO, usize::MAX).unwrap().records;
        records.iter().map(|record| record.bytes.to_vec()).collect()
    }

    fn some_entries() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn a_torn_tail_is_cut_and_nothing_before_it(entries in some_entries(), at in any::<prop::sample::Index>()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let bytes = written(&path, &entries);
            let (last, before) = entries.split_last().unwrap();
            let begin = bytes.len() - RECORD_HEAD - last.len();
            fs::write(&path, &bytes[..begin + at.index(bytes.len() - begin)]).unwrap();
            let mut log = opened(&path);
            prop_assert_eq!(entries_of(&mut log), before);
            prop_assert_eq!(log.append(log.last(), last), Ok(AppendResult::At(Revision(entries.len() as u64))));
            drop(log);
            prop_assert_eq!(fs::read(&path).unwrap(), bytes, "as if it had not been torn");
        }

        #[test]
        fn a_changed_byte_is_found(
            entries in some_entries(), at in any::<prop::sample::Index>(), bit in 0..8_u32,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let mut bytes = written(&path, &entries);
            let (at, begin) = (at.index(bytes.len()), bytes.len() - RECORD_HEAD - entries.last().unwrap().len());
            bytes[at] ^= 1 << bit;
            fs::write(&path, &bytes).unwrap();
            let was = bytes.clone();
            match Local::open(&path) {
                // The last record may be one that did not end.
                Ok(mut log) => prop_assert!(at >= begin && entries_of(&mut log) == entries[..entries.len() - 1]),
                // A head that claims less than there is may be the last one's.
                Err(LocalError::Damaged { revision, .. }) => {
                    prop_assert!(at >= HEAD && revision <= Revision(entries.len() as u64));
                    prop_assert_eq!(fs::read(&path).unwrap(), was, "nothing was changed");
                }
                Err(LocalError::NoLog { .. } | LocalError::NewerFile { .. }) => prop_assert!(at < HEAD),
                Err(error) => prop_assert!(false, "{}", error),
            }
        }

        /// As a bad block damages it: several records at once, which are acknowledged where one behind them is whole.
        #[test]
        fn a_damaged_stretch_is_found(
            entries in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 3..12),
            from in any::<prop::sample::Index>(), len in 1..300_usize, zeros in any::<bool>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let mut bytes = written(&path, &entries);
            let begin = bytes.len() - RECORD_HEAD - entries.last().unwrap().len();
            let from = HEAD + from.index(begin - HEAD);
            for byte in &mut bytes[from..(from + len).min(begin)] {
                *byte = if zeros { 0 } else { !*byte };
            }
            let changed = fs::read(&path).unwrap() != bytes;
            fs::write(&path, &bytes).unwrap();
            let opened = Local::open(&path);
            prop_assert_eq!(matches!(opened, Err(LocalError::Damaged { .. })), changed);
            prop_assert_eq!(fs::read(&path).unwrap(), bytes, "nothing was changed");
        }

        /// Behind a right head.
        #[test]
        fn any_bytes_are_records_or_refused(bytes in any::<Vec<u8>>()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let mut file = head(OURS, Revision::ZERO);
            file.extend(&bytes);
            fs::write(&path, &file).unwrap();
            match Local::open(&path) {
                Ok(log) => prop_assert_eq!(log.last(), Revision::ZERO),
                Err(error) => {
                    prop_assert!(matches!(error, LocalError::Damaged { revision: Revision(1), .. }), "{}", error);
                    prop_assert_eq!(fs::read(&path).unwrap(), file);
                }
            }
        }

        #[test]
        fn any_bytes_are_a_log_or_refused(bytes in any::<Vec<u8>>()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            fs::write(&path, &bytes).unwrap();
            prop_assert!(Local::open(&path).is_err());
            prop_assert_eq!(fs::read(&path).unwrap(), bytes);
        }
    }

    /// The last record is damaged as well: its head alone shows that it was there.
    #[test]
    fn a_damaged_record_before_one_that_is_half_there_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut bytes = written(&path, &[b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
        let len = bytes.len();
        bytes[HEAD + RECORD_HEAD + 3..HEAD + RECORD_HEAD + 9].fill(0);
        bytes[len - 2..].fill(0);
        fs::write(&path, &bytes).unwrap();
        let error = Local::open(&path).unwrap_err();
        assert!(
            matches!(
                error,
                LocalError::Damaged {
                    revision: Revision(2),
                    ..
                }
            ),
            "{error}"
        );
    }

    /// A log whose file the system cannot write until it is written anew.
    #[cfg(target_os = "linux")]
    fn full(path: &Path) -> Local {
        let mut log = opened(path);
        log.append(log.last(), b"one").unwrap();
        let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        log.file = log.file.take().map(|(_, end)| (full, end));
        assert_eq!(log.append(log.last(), b"two"), Err(LogError::NoRoom));
        assert!(log.waits_for_room().is_some_and(|why| why.contains("make room")));
        assert_eq!(log.failure(), None);
        assert_eq!(entries_of(&mut log), [b"one".to_vec()]);
        log
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_medium_is_waited_for_and_nothing_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = full(&path);
        // The new file finds no room either, and there is no reserve.
        fs::remove_file(beside(&path, ".reserve")).unwrap();
        let new = beside(&path, ".new");
        std::os::unix::fs::symlink("/dev/full", &new).unwrap();
        assert_eq!(log.append(log.last(), b"two"), Err(LogError::NoRoom));
        assert_eq!(log.last(), Revision(1));
        assert!(!new.exists(), "it keeps room from the old file");
        assert_eq!(log.append(Revision(1), b"two"), Ok(AppendResult::At(Revision(2))));
        assert_eq!(log.waits_for_room(), None);
        drop(log);
        assert_eq!(entries_of(&mut opened(&path)), [b"one".to_vec(), b"two".to_vec()]);
    }

    /// Each try writes all entries: those that fail are far apart where there are many.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_long_file_is_not_written_anew_at_each_append() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = opened(&path);
        log.append(log.last(), &vec![1; 2 * REST_BYTES]).unwrap();
        log.file = None;
        fs::remove_file(beside(&path, ".reserve")).unwrap();
        let new = beside(&path, ".new");
        for is_tried in [true, false, false, true] {
            _ = std::os::unix::fs::symlink("/dev/full", &new);
            assert_eq!(log.append(log.last(), b"two"), Err(LogError::NoRoom));
            assert_eq!(!new.exists(), is_tried);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn trimming_makes_room_in_a_full_medium() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = full(&path);
        // The first new file finds no room, the second one that of the reserve.
        std::os::unix::fs::symlink("/dev/full", beside(&path, ".new")).unwrap();
        log.trim(Revision(1)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), HEAD as u64);
        assert!(beside(&path, ".reserve").exists(), "there is room again");
        assert_eq!(log.append(Revision(1), b"two"), Ok(AppendResult::At(Revision(2))));
    }

    /// The old file has no name any more when the folder's sync finds no room: nothing is appended to it.
    #[test]
    fn appends_go_to_the_named_file_when_its_folder_found_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = opened(&path);
        for number in 0..3 {
            log.append(log.last(), &[number]).unwrap();
        }
        log.full = Some("full".into());
        log.sync_folder = |_| Err(io::ErrorKind::StorageFull.into());
        log.trim(Revision(2)).unwrap();
        assert_eq!(log.append(log.last(), &[3]), Err(LogError::NoRoom));
        log.sync_folder = sync_folder;
        assert_eq!(log.append(log.last(), &[4]), Ok(AppendResult::At(Revision(4))));
        drop(log);
        let mut log = opened(&path);
        assert_eq!(log.watch_from(Revision(2), 9).unwrap().len(), 2);
    }

    #[test]
    fn a_second_process_is_kept_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let first = opened(&path);
        assert!(matches!(Local::open(&path), Err(LocalError::InUse { .. })));
        drop(first);
        opened(&path);
    }

    /// A socket that cannot be made ends the program between the two calls.
    #[test]
    fn a_log_that_was_opened_and_not_made_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        drop(Local::open(&path).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // Beside a log that was made, the lock file stays.
        drop(opened(&path));
        assert!(beside(&path, ".lock").exists());
    }

    #[test]
    fn whose_log_it_is_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        written(&path, &[b"entry".to_vec()]);
        let federation = FederationId(8);
        let other = CommitLog::open(&mut Local::open(&path).unwrap(), Identity { federation, ..OURS });
        assert!(matches!(other, Err(LogError::OtherFederation { .. })));
        let format = FORMAT - 1;
        let older = CommitLog::open(&mut Local::open(&path).unwrap(), Identity { format, ..OURS });
        assert!(matches!(older, Err(LogError::NewerFormat { .. })));
        assert_eq!(opened(&path).last(), Revision(1));
    }

    /// A file of an older program, which wrote no history, adopts the number of the first program that opens it.
    #[test]
    fn a_log_keeps_its_history() {
        let folder = tempfile::tempdir().unwrap();
        let history = LogHistory {
            id: HistoryId(10),
            base: Revision(40),
            parent: HistoryId(9),
        };
        let begun = Identity { history, ..OURS };
        let adopted = LogHistory {
            id: HistoryId(11),
            ..LogHistory::default()
        };
        for (name, found) in [("begun", history), ("older", adopted)] {
            let path = folder.path().join(name);
            if name == "older" {
                let mut bytes = head(begun, Revision(40));
                bytes[8] = 1;
                bytes.truncate(HEAD_1 - 4);
                bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
                fs::write(&path, bytes).unwrap();
                // Without room for a number, it opens without one.
                #[cfg(target_os = "linux")]
                {
                    std::os::unix::fs::symlink("/dev/full", beside(&path, ".new")).unwrap();
                    assert_eq!(opened(&path).identity.unwrap().history, LogHistory::default());
                }
            } else {
                drop(Local::begin(&path, begun).unwrap());
            }
            for last in 40..44 {
                let mut log = Local::open(&path).unwrap();
                let id = HistoryId(last - 29);
                let history = LogHistory { id, ..OURS.history };
                let opened = CommitLog::open(&mut log, Identity { history, ..OURS }).unwrap();
                assert_eq!((opened.last, opened.history), (Revision(last), found), "{name}");
                log.append(log.last(), &vec![1; 900_000]).unwrap();
                log.trim(log.last()).unwrap();
            }
        }
    }

    #[test]
    fn a_file_of_a_newer_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut bytes = written(&path, &[]);
        bytes[8] = FILE_FORMAT as u8 + 1;
        fs::write(&path, bytes).unwrap();
        let error = Local::open(&path).unwrap_err();
        assert!(matches!(error, LocalError::NewerFile { found: 3, .. }), "{error}");
        assert!(error.to_string().contains("update"), "{error}");
    }

    #[test]
    fn a_file_that_has_more_to_forget_than_to_keep_shrinks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = opened(&path);
        for _ in 0..9 {
            log.append(log.last(), &vec![1; 200_000]).unwrap();
        }
        let len = || fs::metadata(&path).unwrap().len();
        log.trim(Revision(3)).unwrap();
        assert!(len() > 1_800_000, "little is to be forgotten: the file stays");
        log.trim(Revision(7)).unwrap();
        assert!((400_000..500_000).contains(&len()), "{}", len());
        log.append(Revision(9), b"next").unwrap();
        drop(log);
        let mut log = opened(&path);
        assert_eq!(log.last(), Revision(10));
        let trimmed = Revision(7);
        assert_eq!(log.read_from(Revision(6), 1), Err(LogError::Compacted { trimmed }));
        assert_eq!(&*log.read_from(Revision(9), 1).unwrap().records[0].bytes, b"next");
    }
}
