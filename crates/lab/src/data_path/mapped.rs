//! A partition of memory: a file that is mapped, prefaulted and locked, read by load and written by store.
//!
//! **Experimental.** It is bytes, not records: a write that power loss or a kill interrupts may be there in part, and
//! nothing (no length, checksum or sequence number) tells a torn record from a whole one. The store does not use it.
//!
//! On persistent memory (a file system mounted with `dax`) the mapping is synchronous (`MAP_SYNC`, mmap(2)): what is
//! stored and written back survives power loss. On shared memory (tmpfs) it survives the process, not the machine. On
//! an ordinary file it survives power loss after `msync`. Which one it is, is found out, not asked for; what a write
//! survives is named.
//!
//! *Prefaulted* means for writing (`MADV_POPULATE_WRITE` in madvise(2)): reading never faults then, nor does writing to
//! shared memory. On a file, and on persistent memory, the kernel takes the right to write a page away each time that
//! it writes it back, and the next store to that page faults again.
//!
//! A partition has one owner at a time: the file is locked (flock(2)) while it is mapped, so that no second partition
//! changes what a slice of the first shows. Programs that write the file without asking for the lock are the user's
//! affair, as for any shared memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use punctual_platform::Refusal;
use punctual_platform::linux::KernelTree;
use punctual_platform::linux::flush::{Flush, flush_instruction};
use serde::{Deserialize, Serialize};

use super::flush::write_back;
use super::refused;
use super::room::available;

/// What is behind the mapping.
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
    /// What a write that has been persisted survives.
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

/// Memory left to all other programs, at least.
const SPARE_BYTES: u64 = 64 << 20;

/// A mapped partition, experimental: it has no records, checksums or sequence numbers, so an interrupted write is not
/// found out. The file stays when it is dropped.
#[derive(Debug)]
pub struct MappedPartition {
    mapping: Mapping,
    medium: Medium,
    flush: Flush,
    locked: Result<(), Refusal>,
    /// Holds the lock; let go after the mapping.
    _file: File,
}

impl MappedPartition {
    /// Makes (or takes over) the file at `path`, of `bytes` bytes, and maps it with every page in place, locked where
    /// allowed. When this returns, the file itself survives what [`Medium::survives`] says.
    ///
    /// # Errors
    /// [`Refusal`] where there is not that much memory or room, another partition has the file, or it cannot be mapped;
    /// a file that existed has its old length again, and no new file is left. Memory that may not be locked is no
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
        fits(&draft.file, bytes).map_err(|why| {
            let remedy = "leave the data on its device and read it by polling, or ask for less";
            refused(what(), why, remedy)
        })?;
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

    /// What is behind it.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// Whether its pages are locked; why not.
    pub fn locked(&self) -> &Result<(), Refusal> {
        &self.locked
    }

    /// All of it.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped until drop; bytes are valid whatever their value. The lock keeps other partitions off the
        // file; programs that do not ask for it are the user's affair, as for any shared memory.
        unsafe { std::slice::from_raw_parts(self.mapping.address.as_ptr(), self.mapping.bytes) }
    }

    /// Writes `data` at `offset` and makes it survive what [`Medium::survives`] says.
    ///
    /// # Errors
    /// [`std::io::Error`] where it does not lie within the partition, or the kernel cannot write it back.
    pub fn write(&mut self, offset: usize, data: &[u8]) -> io::Result<()> {
        let Mapping { address, bytes } = self.mapping;
        let end = offset.checked_add(data.len()).filter(|end| *end <= bytes);
        let Some(end) = end else {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                format!("{} bytes at {offset} do not lie within {bytes}", data.len()),
            ));
        };
        // SAFETY: as for `as_slice`; `&mut self` makes us the only one.
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

/// The file of a partition that is being made: given up, it is left as it was found.
struct Draft<'a> {
    path: &'a Path,
    file: File,
    /// How long it was; `None` if it was not there.
    found_bytes: Option<u64>,
    kept: bool,
}

impl Draft<'_> {
    /// Opens the file, or makes it, and locks it. `WouldBlock` where another partition has it.
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
        // The process that got the lock first has the file, whichever process made it: it is not ours to remove.
        // SAFETY: plain numbers.
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

    /// Takes room for `bytes` bytes now, because a page that is missing later would be a SIGBUS, and makes that and the
    /// file's name durable.
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        // SAFETY: plain numbers.
        let errno = unsafe { libc::posix_fallocate(self.file.as_raw_fd(), 0, bytes as libc::off_t) };
        if errno != 0 {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.file.sync_all()?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// The file, which stays.
    fn keep(mut self) -> io::Result<File> {
        let file = self.file.try_clone()?; // the lock is the open file's: both have it
        self.kept = true;
        Ok(file)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // What cannot be taken back has been refused with the reason why already.
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

// SAFETY: the mapping is owned by this value; writing through the partition takes `&mut`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the file: synchronously where the medium allows it.
    fn of(file: &File, bytes: usize) -> io::Result<(Mapping, Medium)> {
        let map = |flags: libc::c_int| {
            // SAFETY: a new mapping of an open file, owned by the value that is made of it.
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

    /// Puts every page in place for writing. `MAP_POPULATE` would do so for reading only, and tell of no error.
    fn prefault(&self) -> io::Result<()> {
        // SAFETY: changes only which pages of our mapping are there.
        let populated = unsafe { libc::madvise(self.address.as_ptr().cast(), self.bytes, libc::MADV_POPULATE_WRITE) };
        if populated == 0 {
            return Ok(());
        }
        let why = io::Error::last_os_error();
        if why.raw_os_error() != Some(libc::EINVAL) {
            return Err(why);
        }
        self.touch(); // a kernel before 5.14
        Ok(())
    }

    /// Writes a byte of every page as it is.
    fn touch(&self) {
        for offset in (0..self.bytes).step_by(page_bytes()) {
            // SAFETY: within the mapping, whose room was taken; no other process writes, because the file is locked.
            // Volatile: the store is meant.
            unsafe {
                let byte = self.address.as_ptr().add(offset);
                byte.write_volatile(byte.read_volatile());
            }
        }
    }

    fn lock(&self) -> Result<(), Refusal> {
        // SAFETY: changes only how the pages of our mapping are kept.
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

/// Whether so much can be kept in memory now; why not. Persistent memory is its own: what lies there takes none of the
/// machine's.
fn fits(file: &File, bytes: u64) -> Result<(), String> {
    let available = available(&KernelTree::default()).unwrap_or(u64::MAX);
    if bytes > 0 && (bytes.saturating_add(SPARE_BYTES) <= available || synchronous(file)) {
        return Ok(());
    }
    Err(format!(
        "between 1 byte and {} can be kept in memory now",
        available.saturating_sub(SPARE_BYTES)
    ))
}

/// Whether the file lies on persistent memory: only there is a synchronous mapping granted.
fn synchronous(file: &File) -> bool {
    // SAFETY: a mapping of our own that is unmapped at once, and never accessed.
    unsafe {
        let flags = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
        let page = page_bytes();
        let address = libc::mmap(std::ptr::null_mut(), page, libc::PROT_READ, flags, file.as_raw_fd(), 0);
        address != libc::MAP_FAILED && libc::munmap(address, page) == 0
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
