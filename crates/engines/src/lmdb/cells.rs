//! LMDB's table of readers, as far as processes other than the owner use it.
//!
//! LMDB keeps a cell of 64 bytes for each reader in `lock.mdb`, which the owner maps (`MDB_reader` in mdb.c): the
//! number of the snapshot's commit, a process id, a thread; the rest is padding. A writer keeps the pages that the
//! oldest snapshot among the cells needs. The owner reserves a few cells for *visitors*: processes that read the store
//! while it is open elsewhere. A visitor writes the number of its snapshot into such a cell, and touches nothing else
//! of LMDB's: in particular no mutex that a thread of the owner might wait for.
//!
//! | bytes | content of a visitor's cell |
//! |---|---|
//! | 0 to 7 | the commit of the visitor's snapshot; [`IDLE`] for none; above [`ENDED_FROM`]: why it was ended |
//! | 8 to 11 | the owner's process: the cell counts while this is not 0 |
//! | 16 to 23 | [`MARK`] above a number that each owner draws |
//! | 24 to 31 | the visitor's process, for messages |
//!
//! A visitor locks a byte of the file for as long as it has a cell. The kernel drops the lock when the visitor's
//! process ends, for whatever reason.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use punctual_store::engine::EndedBecause;

/// `sizeof(MDB_reader)`, one cache line, in bytes.
pub(super) const CELL_LEN: usize = 64;
/// Commit number of a cell without a snapshot, as LMDB writes it.
pub(super) const IDLE: u64 = u64::MAX;
/// Numbers from here on are reasons for ending a snapshot, not commits.
pub(super) const ENDED_FROM: u64 = u64::MAX - 16;
/// Upper half of the thread field in a visitor's cell: no thread has an id (an address) with these bits.
pub(super) const MARK: u64 = 0x5649_5349;
/// `mtb_magic`, with which LMDB's table of readers begins.
pub(super) const MAGIC: u32 = 0xBEEF_C0DE;
/// Upper bound on the mapped part of the file, in bytes: 16 thousand readers.
const LEN_MAX: usize = 1 << 20;
/// Offset of the bytes that visitors lock, beyond the process ids, at whose offsets LMDB locks bytes.
const LOCKS_AT: i64 = 1 << 40;

/// The mapped table of readers.
#[derive(Debug)]
pub(super) struct Cells {
    base: NonNull<u8>,
    len: usize,
    file: File,
}

// SAFETY: all access is by atomics, and the mapping is unmapped by `Drop` only.
unsafe impl Send for Cells {}
// SAFETY: as above.
unsafe impl Sync for Cells {}

/// A reader's fields in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell<'c> {
    pub commit: &'c AtomicU64,
    pub owner: &'c AtomicU32,
    pub thread: &'c AtomicU64,
    pub visitor: &'c AtomicU64,
}

impl Cells {
    /// Maps an existing file. The file is never created here, so that it belongs to the store's user.
    ///
    /// A process that has the store open must not drop this before the store: closing a file drops the locks that the
    /// process has on it, LMDB's among them.
    pub(super) fn map(path: &Path) -> io::Result<Cells> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        let about = file.metadata()?;
        let len = usize::try_from(about.len()).unwrap_or(LEN_MAX).min(LEN_MAX);
        if !about.is_file() || len < 2 * CELL_LEN {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no table of readers"));
        }
        // SAFETY: a new mapping of an open file, at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Cells { base, len, file }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Length of the mapped part, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The word at byte `at`, a multiple of 4.
    pub(super) fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len, "a word of the table");
        // SAFETY: within the mapping and aligned; zero or any other content is a valid number.
        unsafe { self.base.add(at).cast().as_ref() }
    }

    fn double(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len, "a word of the table");
        // SAFETY: as above.
        unsafe { self.base.add(at).cast().as_ref() }
    }

    /// The cell that begins at byte `at`.
    pub(super) fn cell(&self, at: usize) -> Cell<'_> {
        Cell {
            commit: self.double(at),
            owner: self.word(at + 8),
            thread: self.double(at + 16),
            visitor: self.double(at + 24),
        }
    }

    /// Offsets at which a cell may begin, in bytes.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> + use<> {
        (CELL_LEN..self.len + 1 - CELL_LEN).step_by(CELL_LEN)
    }

    /// Locks the cell at `at` for this visitor; false if another visitor has it. The lock belongs to the open file
    /// (`F_OFD_SETLK`), so that two visitors in one process exclude each other.
    pub(super) fn take(&self, at: usize) -> io::Result<bool> {
        let wanted = byte(at);
        // SAFETY: the descriptor is open, and `wanted` is valid for the call.
        if unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &wanted) } == 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            held if matches!(held.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            refused => Err(refused),
        }
    }

    /// Whether a living visitor has the cell at `at`; true if the kernel does not answer.
    pub(super) fn is_taken(&self, at: usize) -> bool {
        let mut wanted = byte(at);
        // SAFETY: the descriptor is open, and `wanted` is valid for the call, which writes to it.
        let answer = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLK, &mut wanted) };
        answer != 0 || wanted.l_type != libc::F_UNLCK as libc::c_short
    }
}

fn byte(at: usize) -> libc::flock {
    // SAFETY: plain numbers, for which zero is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = LOCKS_AT + at as i64;
    lock.l_len = 1;
    lock
}

impl Drop for Cells {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and not used after.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Encodes why a snapshot was ended, as a commit number that its visitor recognizes.
pub(super) fn number_of(why: EndedBecause) -> u64 {
    let at = EndedBecause::ALL.iter().position(|one| *one == why);
    u64::MAX - 1 - at.unwrap_or(0) as u64
}

/// Decodes `number_of`; `None` for any other number.
pub(super) fn reason_in(number: u64) -> Option<EndedBecause> {
    let at = usize::try_from((u64::MAX - 1).checked_sub(number)?).ok()?;
    EndedBecause::ALL.get(at).copied()
}
