//! Memory that several processes map: a file without a name, which is freed with the last of them (memfd_create(2)).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use super::{last_error, refused};
use crate::Refusal;

/// A readable and writable mapping of such a file.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: plain memory; its users must synchronize their accesses.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// New memory, zeroed and fully allocated, so that no later write can find the memory exhausted. `name` is shown in
    /// `/proc/PID/maps`. Programs that this one executes inherit it only if they are given it.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel refuses it.
    pub fn create(name: &str, bytes: usize) -> Result<SharedMemory, Refusal> {
        let named = CString::new(name).unwrap_or_default();
        let refusal = |why: io::Error| {
            let what = format!("making {bytes} bytes of shared memory");
            refused(
                what,
                why,
                "free memory, or ask for less: shorter queues, smaller frames and states",
            )
        };
        // Unnamed files have no limit of their own: the kernel would kill programs to make room.
        let available = available().unwrap_or(u64::MAX);
        if bytes as u64 > available / 4 * 3 {
            let why = format!("{available} bytes of memory are available, of which three quarters may be taken");
            return Err(refusal(io::Error::other(why)));
        }
        // SAFETY: the name ends with a zero; a new descriptor is ours.
        let file = unsafe {
            match libc::memfd_create(named.as_ptr(), libc::MFD_CLOEXEC) {
                fd if fd >= 0 => OwnedFd::from_raw_fd(fd),
                _ => return Err(refusal(last_error())),
            }
        };
        // SAFETY: the descriptor is open.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) } {
            0 => SharedMemory::map(file, bytes).map_err(refusal),
            errno => Err(refusal(io::Error::from_raw_os_error(errno))),
        }
    }

    /// Maps the memory of an inherited descriptor.
    ///
    /// # Errors
    /// [`Refusal`] if the descriptor is no such file, or the kernel refuses the mapping.
    pub fn open(file: OwnedFd) -> Result<SharedMemory, Refusal> {
        let refusal = |why: io::Error| {
            refused(
                "mapping the shared memory",
                why,
                "start this program by the one that has the memory",
            )
        };
        // SAFETY: an all-zero stat is valid, and the call fills it in.
        let bytes = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            match libc::fstat(file.as_raw_fd(), &mut stat) {
                0 => stat.st_size as usize,
                _ => return Err(refusal(last_error())),
            }
        };
        SharedMemory::map(file, bytes).map_err(refusal)
    }

    fn map(file: OwnedFd, bytes: usize) -> io::Result<SharedMemory> {
        // SAFETY: a fresh mapping of a file that has this length.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        let base = NonNull::new(address.cast()).filter(|_| address != libc::MAP_FAILED);
        let base = base.ok_or_else(last_error)?;
        Ok(SharedMemory { base, bytes, file })
    }

    /// Address of the first byte, aligned to a page.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length of the mapping in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Faults the memory into this process's page tables (`MADV_POPULATE_WRITE`, since Linux 5.14), so that later
    /// access takes no fault. Does nothing on older kernels.
    pub fn populate(&self) {
        // SAFETY: the mapping is ours and has this length; its content stays as it is.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_POPULATE_WRITE) };
    }
}

/// Memory that programs can be given without swapping, in bytes (proc_meminfo(5)).
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_are_the_same_memory() {
        let memory = SharedMemory::create("punctual-test", 8192).unwrap();
        memory.populate();
        let other = SharedMemory::open(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(other.bytes(), 8192);
        // SAFETY: within both mappings; no other thread knows them.
        unsafe {
            memory.base().add(5000).write(7);
            assert_eq!(other.base().add(5000).read(), 7);
        }
    }

    #[test]
    fn more_than_there_is_is_refused_before_any_of_it_is_taken() {
        let refused = SharedMemory::create("punctual-test", 1 << 60).unwrap_err().to_string();
        assert!(refused.contains("are available"), "{refused}");
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
