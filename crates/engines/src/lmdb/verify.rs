//! How much of a store is read before it is opened, in which order, and how far that is.
//!
//! The check walks the trees, from the top, so that it jumps about in the file; on a medium at rest that is many times
//! slower than reading from front to end. So the file is read through first, in order, where memory can hold it: then
//! the walk finds every page in memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// How much of a store is read before it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Every page in use, and every checksum: what is opened is what was written.
    #[default]
    Full,
    /// Every page in use: what the engine relies on without checking it. Damage in values is found when they are read,
    /// by their checksums.
    Structure,
    /// The two meta pages. For media that check themselves: the engine trusts its file, and a damaged page may end the
    /// program when it is met. Pages are not brought into memory either, so first reads wait for the medium.
    None,
}

/// How far the check of a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were read.
    pub read: u64,
    /// Bytes that there are to be read.
    pub all: u64,
}

/// What is read at a time, in bytes.
const CHUNK: usize = 1 << 20;

/// Reads `file` from front to end, so that its pages are in memory afterwards. Not where it would take more than half
/// of that: the first pages would be gone when the last are read.
pub(super) fn read_through(file: &File, progress: &mut dyn FnMut(Progress)) -> io::Result<()> {
    let all = file.metadata()?.len();
    if all > memory() / 2 {
        return Ok(());
    }
    // SAFETY: the descriptor is open. Advice only, which may be refused.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_SEQUENTIAL) };
    let mut chunk = vec![0; CHUNK];
    let mut read = 0;
    while read < all {
        match file.read_at(&mut chunk, read)? {
            0 => break, // shorter by now
            more => read += more as u64,
        }
        progress(Progress { read, all });
    }
    Ok(())
}

/// The machine's memory in bytes.
fn memory() -> u64 {
    // SAFETY: the calls read numbers.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0)
}
