//! A partition of memory: a file that is mapped, prefaulted and locked, read by load and written by store.
//!
//! On persistent memory (a file system mounted with `dax`) the mapping is synchronous (`MAP_SYNC`, mmap(2)): what is stored and
//! written back survives power loss. On shared memory (tmpfs) it survives the process, not the machine. On an ordinary file it survives
//! power loss after `msync`. Which one it is, is found out, not asked for; what a write survives is named.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use serde::{Deserialize, Serialize};

use super::super::{KernelTree, last_error, refused};
use super::flush::{Flush, flush_instruction, write_back};
use crate::Refusal;

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

/// Memory left to everybody else, at least.
const SPARE_BYTES: u64 = 64 << 20;

/// A mapped partition. The file stays when it is dropped.
#[derive(Debug)]
pub struct MappedPartition {
    address: NonNull<u8>,
    bytes: usize,
    medium: Medium,
    flush: Flush,
    locked: Result<(), Refusal>,
    _file: File,
}

// SAFETY: the mapping is owned by this value; writing takes `&mut self`.
unsafe impl Send for MappedPartition {}
// SAFETY: as above.
unsafe impl Sync for MappedPartition {}

impl MappedPartition {
    /// Makes (or takes over) the file at `path`, of `bytes` bytes, and maps it with every page in place, locked where allowed.
    ///
    /// # Errors
    /// [`Refusal`] where there is not that much memory or room, or the file cannot be mapped. Memory that may not be locked is no error: see
    /// [`MappedPartition::locked`].
    pub fn create(path: &Path, bytes: u64) -> Result<MappedPartition, Refusal> {
        let what = || format!("a memory partition of {bytes} bytes at {}", path.display());
        let refusal = |why: std::io::Error| {
            refused(
                what(),
                why,
                "name a folder with room, such as /dev/shm, or ask for less",
            )
        };
        let found = path.exists();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = file.map_err(refusal)?;
        let fits = fits(&file, bytes).map_err(|why| {
            let remedy = "leave the data on its device and read it by polling, or ask for less";
            refused(what(), why, remedy)
        });
        let partition = fits.and_then(|()| MappedPartition::map(file, bytes).map_err(refusal));
        partition.inspect_err(|_| {
            if !found {
                // Nothing of it is left, or what there is can be removed by hand.
                let _ = std::fs::remove_file(path);
            }
        })
    }

    fn map(file: File, bytes: u64) -> std::io::Result<MappedPartition> {
        // Room is taken now: a page that is missing later would be a SIGBUS.
        // SAFETY: plain numbers.
        let errno = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
        if errno != 0 {
            return Err(std::io::Error::from_raw_os_error(errno));
        }
        let (address, medium) = map(&file, bytes as usize)?;
        Ok(MappedPartition {
            locked: lock(address, bytes as usize),
            address,
            bytes: bytes as usize,
            medium,
            flush: match medium {
                Medium::PersistentMemory => flush_instruction(),
                Medium::SharedMemory | Medium::File => Flush::Msync,
            },
            _file: file,
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
        // SAFETY: mapped until drop; bytes are valid whatever their value. Other processes that write the file are the caller's affair,
        // as for any shared memory.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.bytes) }
    }

    /// Writes `data` at `offset` and makes it survive what [`Medium::survives`] says.
    ///
    /// # Errors
    /// [`std::io::Error`] where it does not lie within the partition, or the kernel cannot write it back.
    pub fn write(&mut self, offset: usize, data: &[u8]) -> std::io::Result<()> {
        let end = offset.checked_add(data.len()).filter(|end| *end <= self.bytes);
        let Some(end) = end else {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                format!("{} bytes at {offset} do not lie within {}", data.len(), self.bytes),
            ));
        };
        // SAFETY: as for `as_slice`; `&mut self` makes us the only one.
        let all = unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.bytes) };
        all[offset..end].copy_from_slice(data);
        match (self.medium, self.flush) {
            (Medium::SharedMemory, _) => Ok(()),
            (_, Flush::Msync) => self.sync(offset, end),
            (_, instruction) => {
                write_back(&all[offset..end], instruction);
                Ok(())
            }
        }
    }

    fn sync(&self, from: usize, to: usize) -> std::io::Result<()> {
        let page = page_bytes();
        let from = from / page * page;
        // SAFETY: the range lies within the mapping and begins at a page.
        match unsafe { libc::msync(self.address.as_ptr().add(from).cast(), to - from, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(last_error()),
        }
    }
}

impl Drop for MappedPartition {
    fn drop(&mut self) {
        // SAFETY: mapped by `create` with this size, and unmapped once.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// Whether so much can be kept in memory now; why not. Persistent memory is its own: what lies there takes none of the machine's.
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

/// Maps the file with all pages in place: synchronously where the medium allows it.
fn map(file: &File, bytes: usize) -> std::io::Result<(NonNull<u8>, Medium)> {
    let map = |flags: libc::c_int| {
        // SAFETY: a new mapping of an open file, owned by the caller.
        let address = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                flags | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        NonNull::new(address.cast::<u8>())
            .filter(|_| address != libc::MAP_FAILED)
            .ok_or_else(last_error)
    };
    if let Ok(address) = map(libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC) {
        return Ok((address, Medium::PersistentMemory));
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

fn lock(address: NonNull<u8>, bytes: usize) -> Result<(), Refusal> {
    // SAFETY: changes only how the pages of our mapping are kept.
    match unsafe { libc::mlock(address.as_ptr().cast(), bytes) } {
        0 => Ok(()),
        _ => Err(refused(
            format!("locking {bytes} bytes of memory"),
            last_error(),
            "run as root, grant CAP_IPC_LOCK, or raise the limit on locked memory (ulimit -l)",
        )),
    }
}

/// Memory that can be had without paging, by `/proc/meminfo`.
fn available(tree: &KernelTree) -> Option<u64> {
    let text = tree.read("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn page_bytes() -> usize {
    // SAFETY: takes and returns plain numbers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })
        .unwrap_or(4096)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_there_for_the_next_one_on_memory_and_on_a_device() {
        for folder in [crate::linux::testing::folder(), tempfile::tempdir().unwrap()] {
            let path = folder.path().join("partition");
            let mut partition = MappedPartition::create(&path, 10_000).unwrap();
            eprintln!("{:?}, locked: {:?}", partition.medium(), partition.locked());
            partition.write(9_990, b"0123456789").unwrap();
            partition.write(0, b"first").unwrap();
            assert!(partition.write(9_991, b"0123456789").is_err(), "beyond its end");
            assert!(partition.write(usize::MAX, b"x").is_err());
            drop(partition);
            let again = MappedPartition::create(&path, 10_000).unwrap();
            assert_eq!(
                (&again.as_slice()[..5], &again.as_slice()[9_990..]),
                (&b"first"[..], &b"0123456789"[..])
            );
            assert_eq!(std::fs::read(&path).unwrap().len(), 10_000);
        }
    }

    #[test]
    fn more_than_there_is_and_nothing_at_all_are_refused() {
        let folder = crate::linux::testing::folder();
        for bytes in [0, u64::MAX] {
            let refusal = MappedPartition::create(&folder.path().join("partition"), bytes).unwrap_err();
            assert!(refusal.why.contains("can be kept in memory"), "{refusal}");
        }
        assert!(!folder.path().join("partition").exists());
    }

    /// Where persistent memory is mounted, if anywhere.
    const PERSISTENT: &str = "PUNCTUAL_TEST_DAX";

    #[test]
    fn persistent_memory_is_found_and_does_not_count_as_memory() {
        let Ok(folder) = std::env::var(PERSISTENT) else {
            return eprintln!("skipped: {PERSISTENT} names no folder on persistent memory");
        };
        let path = Path::new(&folder).join("partition");
        let mut partition = MappedPartition::create(&path, 10_000).unwrap();
        assert_eq!(partition.medium(), Medium::PersistentMemory);
        assert_eq!(partition.medium().survives(), "power loss");
        assert_ne!(partition.flush, Flush::Msync, "by instructions, on a CPU that has them");
        partition.write(9_997, b"end").unwrap();
        drop(partition);
        assert_eq!(
            &MappedPartition::create(&path, 10_000).unwrap().as_slice()[9_997..],
            b"end"
        );
        let more_than_memory = available(&KernelTree::default()).unwrap();
        assert_eq!(fits(&File::open(&path).unwrap(), more_than_memory), Ok(()));
        std::fs::remove_file(path).unwrap();
        let elsewhere = crate::linux::testing::folder();
        let file = File::create_new(elsewhere.path().join("partition")).unwrap();
        assert!(fits(&file, more_than_memory).is_err());
    }

    #[test]
    fn the_kernel_tells_what_is_available() {
        let (_folder, tree) =
            crate::linux::testing::tree(&[("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:     12 kB")]);
        assert_eq!(available(&tree), Some(12 * 1024));
    }
}
