//! Keeping the map in memory, so that a read never waits for the disk.
//!
//! The pages in use are faulted in once (`MADV_POPULATE_READ`) and the whole map is locked with `MLOCK_ONFAULT`: what
//! is there stays, pages that later commits add stay from their first touch on. Locking all of it at once instead
//! would fail, because the map is larger than the file. Both need what a machine may refuse (`RLIMIT_MEMLOCK`, an old
//! kernel): a refusal is reported, and the store works without.

use std::io;

use libc::c_void;

/// What could be obtained for the map.
#[derive(Debug)]
pub struct Protection {
    /// Bytes of the map faulted in at open, or why none.
    pub prefaulted: Result<usize, io::Error>,
    /// Bytes of the map locked into memory, or why none.
    pub locked: Result<usize, io::Error>,
}

/// The memory map of an open store.
pub(super) struct Map {
    /// Its first byte.
    pub base: *mut c_void,
    /// Its size in bytes.
    pub size: usize,
    /// How much of it, from the beginning, is to be faulted in, in bytes: what the file backs, or nothing.
    pub used: usize,
}

/// Faults in and locks `map`, as far as the machine lets us.
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
