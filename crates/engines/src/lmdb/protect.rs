//! Keeps the map in memory, so that a read never waits for the disk.
//!
//! The pages in use are faulted in once (`MADV_POPULATE_READ`) and the whole map is locked with `MLOCK_ONFAULT`:
//! present pages stay, and pages that later commits add stay from their first touch on. Locking the whole map at once
//! would fail, because it is larger than the file. A machine may refuse either (`RLIMIT_MEMLOCK`, an old kernel): a
//! refusal is reported, and the store works without.

use std::io;

use libc::c_void;

/// Residency that the machine granted to the map.
#[derive(Debug)]
pub struct Protection {
    /// Bytes of the map faulted in at open, or the reason for none.
    pub prefaulted: Result<usize, io::Error>,
    /// Bytes of the map locked into memory, or the reason for none.
    pub locked: Result<usize, io::Error>,
}

/// The memory map of an open store.
pub(super) struct Map {
    pub base: *mut c_void,
    /// Bytes to lock, from the beginning.
    pub size: usize,
    /// Bytes to fault in, from the beginning: the part that the file backs, or 0.
    pub used: usize,
}

/// Faults in and locks `map`, as far as the machine permits.
///
/// # Safety
/// `map` must describe a live mapping of `size` bytes.
pub(super) unsafe fn protect(map: &Map) -> Protection {
    // SAFETY: the call changes the residency of a live mapping only, which the caller vouches for.
    let prefaulted = refusal(unsafe { libc::madvise(map.base, map.used, libc::MADV_POPULATE_READ) });
    // SAFETY: as above.
    let locked = refusal(unsafe { libc::mlock2(map.base, map.size, libc::MLOCK_ONFAULT as libc::c_uint) });
    Protection {
        prefaulted: prefaulted.map(|()| map.used),
        locked: locked.map(|()| map.size),
    }
}

fn refusal(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
