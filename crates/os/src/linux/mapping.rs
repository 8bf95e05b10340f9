//! Memory of a file that several processes map.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::ptr::{self, NonNull};

/// The beginning of a file in memory, shared with all that map it (mmap(2)).
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory; its users must synchronize their accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of `file`, for reading and, if `writable`, for writing. The file may be shorter, but
    /// memory beyond its end must not be accessed.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn of(file: impl AsFd, bytes: usize, writable: bool) -> io::Result<Mapping> {
        Mapping::new(bytes, writable, libc::MAP_SHARED, file.as_fd().as_raw_fd())
    }

    /// Maps private memory of zeros, which are zeros again in a forked child (madvise(2), `MADV_WIPEONFORK`).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn wiped_on_fork(bytes: usize) -> io::Result<Mapping> {
        let mapped = Mapping::new(bytes, true, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        mapped.advise(libc::MADV_WIPEONFORK)?;
        Ok(mapped)
    }

    /// Maps `file` as persistent memory (`MAP_SYNC`), for reading and writing.
    ///
    /// # Errors
    /// The kernel's error, where the file does not lie on such memory.
    pub fn synchronous(file: impl AsFd, bytes: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
        Mapping::new(bytes, true, flags, file.as_fd().as_raw_fd())
    }

    /// Faults all pages in for writing (`MADV_POPULATE_WRITE`, since Linux 5.14), so that later access takes no fault;
    /// does nothing on older kernels. `MAP_POPULATE` would do so for reading only.
    ///
    /// # Errors
    /// The kernel's error, where a page cannot be had.
    pub fn populate(&self) -> io::Result<()> {
        match self.advise(libc::MADV_POPULATE_WRITE) {
            Err(why) if why.raw_os_error() == Some(libc::EINVAL) => Ok(()), // an older kernel
            done => done,
        }
    }

    /// Advises the kernel (madvise(2)) in a way that leaves the content as it is.
    pub(super) fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the mapping is ours and has this length.
        match unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn new(bytes: usize, writable: bool, flags: libc::c_int, file: libc::c_int) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a fresh mapping; the kernel chooses the place.
        let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, file, 0) };
        let base = NonNull::new(address.cast()).filter(|_| address != libc::MAP_FAILED);
        let base = base.ok_or_else(io::Error::last_os_error)?;
        Ok(Mapping { base, bytes })
    }

    /// Address of the first byte, aligned to a page.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length of the mapping in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this length, and unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Makes an empty file in memory, which is freed with its last descriptor (memfd_create(2)). Programs that this one
/// executes do not inherit it. `/proc/PID/maps` shows `name`.
///
/// # Errors
/// The kernel's error.
pub fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: the name ends with a zero; a new descriptor is ours.
    unsafe {
        match libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) {
            fd if fd >= 0 => Ok(File::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Allocates the first `bytes` of `file`, so that no later write finds the medium full.
///
/// # Errors
/// The kernel's error.
pub fn allocate(file: &File, bytes: usize) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
