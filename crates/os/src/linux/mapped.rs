//! A file that is mapped and prefaulted: read by loads, written by stores.
//!
//! On persistent memory (a file system mounted with `dax`) the mapping is synchronous (`MAP_SYNC`, mmap(2)): words that
//! are stored and written back survive power cuts. On tmpfs they survive the process. Other file systems are refused:
//! the kernel write-protects a page each time that it writes the page to its device, and the next store waits for that.
//! The medium is detected, not configured.
//!
//! A file has one owner at a time: it is locked (flock(2)) while it is mapped. Programs that change it without asking
//! for the lock are the user's responsibility, as for any shared memory.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

#[cfg(target_arch = "x86_64")]
use super::flush::{has_clwb, write_back};
use super::mapping::{Mapping, allocate};
use super::refused;
use crate::{MappedMedium, MappedWords, Refusal};

/// Kernel magic number (statfs(2)).
const TMPFS: i64 = 0x0102_1994;
const WORD: usize = size_of::<u64>();
const ELSEWHERE: &str = "name a file in /dev/shm or on a file system mounted with dax, which this user may write";

/// A mapped file. Dropping it keeps the file.
#[derive(Debug)]
pub struct MappedFile {
    mapping: Mapping,
    /// Whether lines are written back by CLWB; `None` on tmpfs.
    clwb: Option<bool>,
    /// Holds the lock; dropped after the mapping.
    _file: File,
}

impl MappedFile {
    /// Maps the file at `path`, which has `words` words or is created, with every page in memory, where a process that
    /// locks its memory (mlockall(2)) keeps it.
    ///
    /// # Errors
    /// [`Refusal`] where the file has another length, is in use, lies on a disk, or the medium has no room; a new file
    /// is removed then, and an existing one has not changed.
    pub fn open(path: &Path, words: usize) -> Result<MappedFile, Refusal> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let made = options.clone().create_new(true).open(path);
        let (file, is_new) = match made {
            Err(why) if why.kind() == ErrorKind::AlreadyExists => (options.open(path), false),
            made => (made, true),
        };
        let mapped = MappedFile::of(file, words * WORD, path);
        if is_new && mapped.is_err() {
            let _ = std::fs::remove_file(path); // the refusal counts, not the empty file
        }
        mapped.map_err(|(why, remedy)| refused(format!("mapping {}", path.display()), why, remedy))
    }

    /// # Errors
    /// Reason and remedy.
    fn of(file: io::Result<File>, bytes: usize, path: &Path) -> Result<MappedFile, (String, &'static str)> {
        let kernel = |why: io::Error| {
            let remedy = match why.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free room there (see df), or name another file",
                _ => ELSEWHERE,
            };
            (why.to_string(), remedy)
        };
        let file = file.map_err(kernel)?;
        // SAFETY: the call takes plain numbers.
        let is_locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 };
        let found = file.metadata().map_err(kernel)?;
        // A file without a name was removed by the program that had it.
        if !is_locked || found.nlink() == 0 {
            let remedy = "end the program that has it (see fuser), or name another file";
            return Err(("another program has it mapped".into(), remedy));
        }
        if !found.is_file() || ![0, bytes as u64].contains(&found.len()) {
            let why = format!("it has {} bytes, not {bytes}: it belongs to other objects", found.len());
            return Err((why, "name another file, or remove this one with the values in it"));
        }
        let (mapping, clwb) = match Mapping::synchronous(&file, bytes) {
            #[cfg(target_arch = "x86_64")]
            Ok(mapping) => (mapping, Some(has_clwb())),
            #[cfg(not(target_arch = "x86_64"))]
            Ok(_) => return Err(("only x86-64 CPUs write cache lines back".into(), ELSEWHERE)),
            Err(_) if is_in_memory(&file) => (Mapping::of(&file, bytes, true).map_err(kernel)?, None),
            Err(_) => {
                return Err((
                    "its file system is neither tmpfs nor mounted with dax".into(),
                    ELSEWHERE,
                ));
            }
        };
        if found.len() == 0 {
            reserve(&file, bytes, path).map_err(kernel)?;
        }
        mapping.populate();
        Ok(MappedFile {
            mapping,
            clwb,
            _file: file,
        })
    }
}

impl MappedWords for MappedFile {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped until drop, with blocks for all, and aligned to a page; every value of the bytes is a word.
        unsafe { std::slice::from_raw_parts(self.mapping.base().cast().as_ptr(), self.mapping.bytes() / WORD) }
    }

    #[inline]
    fn write_back(&self, words: Range<usize>) {
        #[cfg(target_arch = "x86_64")]
        if let Some(has_clwb) = self.clwb {
            write_back(&self.words()[words], has_clwb);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = words;
    }

    fn medium(&self) -> MappedMedium {
        match self.clwb {
            Some(_) => MappedMedium::PersistentMemory,
            None => MappedMedium::SharedMemory,
        }
    }
}

/// Allocates all blocks, because one that is missing later would be a SIGBUS, and makes them and the name durable.
fn reserve(file: &File, bytes: usize, path: &Path) -> io::Result<()> {
    allocate(file, bytes)?;
    file.sync_all()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn is_in_memory(file: &File) -> bool {
    // SAFETY: an all-zero statfs is valid, and the call fills it in.
    unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        libc::fstatfs(file.as_raw_fd(), &mut found) == 0 && found.f_type as i64 == TMPFS
    }
}

#[cfg(test)]
mod tests;
