//! A memory partition: a file that is mapped, prefaulted and locked, read by loads and written by stores.
//!
//! **Experimental.** A partition holds bytes, not records: a write that power loss or a kill interrupts may be there in
//! part, and nothing (no length, checksum or sequence number) distinguishes a torn record from a whole one. The store
//! does not use it.
//!
//! On persistent memory (a file system mounted with `dax`) the mapping is synchronous (`MAP_SYNC`, mmap(2)): data that
//! is stored and written back survives power loss. On shared memory (tmpfs) data survives the process, not the machine.
//! On an ordinary file data survives power loss after `msync`. The medium is detected, not configured, and
//! `Medium::survives` names what a write survives.
//!
//! *Prefaulted* means for writing (`MADV_POPULATE_WRITE` in madvise(2)): afterwards reads never fault, nor do writes to
//! shared memory. On a file, and on persistent memory, the kernel write-protects a page each time it writes the page
//! back, and the next store to that page faults again.
//!
//! A partition has one owner at a time: the file is locked (flock(2)) while it is mapped, so that no second partition
//! changes bytes under a slice of the first. Programs that write the file without asking for the lock are the user's
//! responsibility, as for any shared memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use serde::{Deserialize, Serialize};

use super::flush::{Flush, flush_instruction, write_back};
use super::refused;
use crate::Refusal;

/// Medium behind the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// Persistent memory, mapped synchronously.
    PersistentMemory,
    /// Memory of this machine (tmpfs).
    SharedMemory,
    /// A file on a device, in the page cache.
    File,
}

impl Medium {
    /// The failure that a persisted write survives.
    pub const fn survives(self) -> &'static str {
        match self {
            Medium::PersistentMemory | Medium::File => "power loss",
            Medium::SharedMemory => "the death of the process, not of the machine",
        }
    }
}

/// Kernel magic numbers (statfs(2)).
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// A mapped partition. Experimental: it has no records, checksums or sequence numbers, so an interrupted write is not
/// detected. Dropping it keeps the file.
#[derive(Debug)]
pub struct MappedPartition {
    mapping: Mapping,
    medium: Medium,
    flush: Flush,
    locked: Result<(), Refusal>,
    /// Holds the lock; dropped after the mapping.
    _file: File,
}

impl MappedPartition {
    /// Creates the file at `path` (or takes it over) with `bytes` bytes, and maps it with every page populated, locked
    /// where allowed. When this returns, the file itself survives what [`Medium::survives`] says.
    ///
    /// # Errors
    /// [`Refusal`] where room is too small, another partition has the file, or it cannot be mapped; an
    /// existing file then has its old length again, and a new one is removed. Memory that may not be locked is no
    /// error: see [`MappedPartition::locked`].
    pub fn create(path: &Path, bytes: u64) -> Result<MappedPartition, Refusal> {
        let what = || format!("a memory partition of {bytes} bytes at {}", path.display());
        let refusal = |why: io::Error| match why.kind() {
            io::ErrorKind::WouldBlock => refused(
                what(),
                "the file is in use: another partition has it mapped",
                "end the program that has it (see fuser), or name another file",
            ),
            _ => refused(
                what(),
                why,
                "name a folder with room, such as /dev/shm, or ask for less",
            ),
        };
        let draft = Draft::open(path).map_err(refusal)?;
        draft.reserve(bytes).map_err(refusal)?;
        let (mapping, medium) = Mapping::of(&draft.file, bytes as usize).map_err(refusal)?;
        mapping.prefault().map_err(refusal)?;
        Ok(MappedPartition {
            locked: mapping.lock(),
            mapping,
            medium,
            flush: match medium {
                Medium::PersistentMemory => flush_instruction(),
                Medium::SharedMemory | Medium::File => Flush::Msync,
            },
            _file: draft.keep().map_err(refusal)?,
        })
    }

    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// `Err` with the reason where the pages could not be locked.
    pub fn locked(&self) -> &Result<(), Refusal> {
        &self.locked
    }

    /// All bytes of the partition.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped until drop; bytes are valid whatever their value. The lock excludes other partitions; programs
        // that ignore it are the user's responsibility, as for any shared memory.
        unsafe { std::slice::from_raw_parts(self.mapping.address.as_ptr(), self.mapping.bytes) }
    }

    /// Writes `data` at `offset` and persists it, so that it survives what [`Medium::survives`] says.
    ///
    /// # Errors
    /// [`std::io::Error`] where `data` does not lie within the partition, or the kernel cannot write it back.
    pub fn write(&mut self, offset: usize, data: &[u8]) -> io::Result<()> {
        let Mapping { address, bytes } = self.mapping;
        let end = offset.checked_add(data.len()).filter(|end| *end <= bytes);
        let Some(end) = end else {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                format!("{} bytes at {offset} do not lie within {bytes}", data.len()),
            ));
        };
        // SAFETY: as for `as_slice`; `&mut self` excludes other references.
        let all = unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), bytes) };
        all[offset..end].copy_from_slice(data);
        match (self.medium, self.flush) {
            (Medium::SharedMemory, _) => Ok(()),
            (_, Flush::Msync) => self.mapping.sync(offset, end),
            (_, instruction) => {
                write_back(&all[offset..end], instruction);
                Ok(())
            }
        }
    }
}

/// The file of a partition under construction. Dropping it before `keep` restores the file as it was found.
struct Draft<'a> {
    path: &'a Path,
    file: File,
    /// Length of the file when it was opened; `None`: it did not exist.
    found_bytes: Option<u64>,
    kept: bool,
}

impl Draft<'_> {
    /// Opens the file, or creates it, and locks it. `WouldBlock` where another partition has it.
    fn open(path: &Path) -> io::Result<Draft<'_>> {
        let options = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            options
        };
        let (file, made) = match options().create_new(true).open(path) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => (options().open(path)?, false),
            made => (made?, true),
        };
        // The process that got the lock first owns the file, whichever process created it: on failure it must not be
        // removed here.
        // SAFETY: the call takes plain numbers.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let found_bytes = if made { None } else { Some(file.metadata()?.len()) };
        Ok(Draft {
            path,
            file,
            found_bytes,
            kept: false,
        })
    }

    /// Allocates `bytes` bytes on the medium now, because a block that is missing later would be a SIGBUS, and makes
    /// the allocation and the file's name durable.
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        // SAFETY: the call takes plain numbers.
        let errno = unsafe { libc::posix_fallocate(self.file.as_raw_fd(), 0, bytes as libc::off_t) };
        if errno != 0 {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.file.sync_all()?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Returns the file and disables the cleanup of `Drop`.
    fn keep(mut self) -> io::Result<File> {
        let file = self.file.try_clone()?; // the lock belongs to the open file description, which both handles share
        self.kept = true;
        Ok(file)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // An error here is ignored: the caller already gets the refusal that led here.
        let _ = match self.found_bytes {
            None => std::fs::remove_file(self.path),
            Some(bytes) => self.file.set_len(bytes),
        };
    }
}

/// Pages of a file in memory, unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: this value owns the mapping; writing through the partition takes `&mut`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the file: synchronously where the medium allows it.
    fn of(file: &File, bytes: usize) -> io::Result<(Mapping, Medium)> {
        let map = |flags: libc::c_int| {
            // SAFETY: a new mapping of an open file, owned by the value that is made from it.
            let address = unsafe {
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0)
            };
            NonNull::new(address.cast::<u8>())
                .filter(|_| address != libc::MAP_FAILED)
                .map(|address| Mapping { address, bytes })
                .ok_or_else(io::Error::last_os_error)
        };
        if let Ok(mapping) = map(libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC) {
            return Ok((mapping, Medium::PersistentMemory));
        }
        // SAFETY: an all-zero statfs is valid, and the call fills it in.
        let kind = unsafe {
            let mut found: libc::statfs = std::mem::zeroed();
            libc::fstatfs(file.as_raw_fd(), &mut found);
            found.f_type as i64
        };
        let medium = if [TMPFS, RAMFS].contains(&kind) {
            Medium::SharedMemory
        } else {
            Medium::File
        };
        Ok((map(libc::MAP_SHARED)?, medium))
    }

    /// Populates every page for writing. `MAP_POPULATE` would do so for reading only, and report no error.
    fn prefault(&self) -> io::Result<()> {
        // SAFETY: changes only which pages of our mapping are present.
        let populated = unsafe { libc::madvise(self.address.as_ptr().cast(), self.bytes, libc::MADV_POPULATE_WRITE) };
        if populated == 0 {
            return Ok(());
        }
        let why = io::Error::last_os_error();
        if why.raw_os_error() != Some(libc::EINVAL) {
            return Err(why);
        }
        self.touch(); // kernels before 5.14 lack MADV_POPULATE_WRITE
        Ok(())
    }

    /// Writes a byte of every page with its own value, to fault the page in.
    fn touch(&self) {
        for offset in (0..self.bytes).step_by(page_bytes()) {
            // SAFETY: within the mapping, whose blocks are allocated; no other process writes, because the file is
            // locked. Volatile, so that the compiler keeps the store.
            unsafe {
                let byte = self.address.as_ptr().add(offset);
                byte.write_volatile(byte.read_volatile());
            }
        }
    }

    fn lock(&self) -> Result<(), Refusal> {
        // SAFETY: changes only whether the pages of our mapping may be paged out.
        match unsafe { libc::mlock(self.address.as_ptr().cast(), self.bytes) } {
            0 => Ok(()),
            _ => Err(refused(
                format!("locking {} bytes of memory", self.bytes),
                io::Error::last_os_error(),
                "run as root, grant CAP_IPC_LOCK, or raise the limit on locked memory (ulimit -l)",
            )),
        }
    }

    fn sync(&self, from: usize, to: usize) -> io::Result<()> {
        let page = page_bytes();
        let from = from / page * page;
        // SAFETY: the range lies within the mapping and begins at a page.
        match unsafe { libc::msync(self.address.as_ptr().add(from).cast(), to - from, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this size, and unmapped once.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

fn page_bytes() -> usize {
    // SAFETY: takes and returns plain numbers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })
        .unwrap_or(4096)
        .max(1)
}

#[cfg(test)]
mod tests;
