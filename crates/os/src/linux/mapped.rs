//! A file that is mapped and prefaulted (since Linux 5.14): read by loads, written by stores.
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
    /// The descriptor that flock(2) was called on: closing it would end the lock.
    file: File,
    /// Process that maps the file; its children must not give the lock up.
    owner: u32,
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
        let mapped = || {
            let file = file.map_err(kernel)?;
            let len = lock(&file, words * WORD)?;
            let (mapping, clwb) = map(&file, words * WORD, path).inspect_err(|_| {
                // The refusal counts, not an empty file; it is locked, so no program has it mapped.
                let _ = (len == 0).then(|| file.set_len(0));
                let _ = (len == 0 && is_new).then(|| std::fs::remove_file(path));
            })?;
            Ok(MappedFile {
                mapping,
                clwb,
                file,
                owner: std::process::id(),
            })
        };
        mapped().map_err(|(why, remedy)| refused(format!("mapping {}", path.display()), why, remedy))
    }
}

/// Reason for which a file is refused, and the remedy.
type Why = (String, &'static str);

fn kernel(why: io::Error) -> Why {
    let remedy = match why.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free room there (see df), or name another file",
        _ => ELSEWHERE,
    };
    (why.to_string(), remedy)
}

/// Locks the file if it is empty or has `bytes`; its length.
fn lock(file: &File, bytes: usize) -> Result<u64, Why> {
    // SAFETY: the call takes plain numbers.
    let is_locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 };
    let why = io::Error::last_os_error();
    if !is_locked && why.kind() != ErrorKind::WouldBlock {
        return Err(kernel(why));
    }
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
    Ok(found.len())
}

/// Maps a file that is locked, with all blocks; whether lines are written back by CLWB.
fn map(file: &File, bytes: usize, path: &Path) -> Result<(Mapping, Option<bool>), Why> {
    let is_unsupported = |why: &io::Error| [libc::EOPNOTSUPP, libc::EINVAL].map(Some).contains(&why.raw_os_error());
    let on_disk = "its file system is neither tmpfs nor mounted with dax";
    let (mapping, clwb) = match Mapping::synchronous(file, bytes) {
        #[cfg(target_arch = "x86_64")]
        Ok(mapping) => (mapping, Some(has_clwb())),
        #[cfg(not(target_arch = "x86_64"))]
        Ok(_) => return Err(("only x86-64 CPUs write cache lines back".into(), ELSEWHERE)),
        Err(why) if !is_unsupported(&why) => return Err(kernel(why)),
        Err(_) if is_in_memory(file) => (Mapping::of(file, bytes, true).map_err(kernel)?, None),
        Err(_) => return Err((on_disk.into(), ELSEWHERE)),
    };
    reserve(file, bytes, path).map_err(kernel)?;
    mapping.populate().map_err(kernel)?;
    // A child that is forked later would keep the lock by the mapping; access there is a SIGSEGV.
    mapping.advise(libc::MADV_DONTFORK).map_err(kernel)?;
    Ok((mapping, clwb))
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            // Closing would not do, where a child has the descriptor. SAFETY: the call takes plain numbers.
            unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
        }
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
