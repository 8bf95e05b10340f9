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
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64};

use punctual_os::linux::mapping::Mapping;
use punctual_store::engine::EndedBecause;

use super::lock;

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
    /// All access is by atomics.
    mapping: Mapping,
    file: File,
}

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
        let mapping = Mapping::of(&file, len, true)?;
        Ok(Cells { mapping, file })
    }

    /// Length of the mapped part, in bytes.
    pub(super) fn len(&self) -> usize {
        self.mapping.bytes()
    }

    /// The word at byte `at`, a multiple of 4.
    pub(super) fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len(), "a word of the table");
        // SAFETY: within the mapping and aligned; zero or any other content is a valid number.
        unsafe { self.mapping.base().add(at).cast().as_ref() }
    }

    fn double(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len(), "a word of the table");
        // SAFETY: as above.
        unsafe { self.mapping.base().add(at).cast().as_ref() }
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
        (CELL_LEN..self.len() + 1 - CELL_LEN).step_by(CELL_LEN)
    }

    /// Locks the cell at `at` for this visitor; false if another visitor has it. The lock belongs to the open file
    /// (`F_OFD_SETLK`), so that two visitors in one process exclude each other.
    pub(super) fn take(&self, at: usize) -> io::Result<bool> {
        lock::set(&self.file, libc::F_OFD_SETLK, &byte(at))
    }

    /// Whether a living visitor has the cell at `at`; true if the kernel does not answer.
    pub(super) fn is_taken(&self, at: usize) -> bool {
        lock::holder(&self.file, byte(at)).map_or(true, |holder| holder.is_some())
    }
}

fn byte(at: usize) -> libc::flock {
    let mut lock = lock::whole();
    (lock.l_start, lock.l_len) = (LOCKS_AT + at as i64, 1);
    lock
}

/// Encodes why a snapshot was ended, as a commit number that its visitor recognizes.
pub(super) fn number_of(why: EndedBecause) -> u64 {
    u64::MAX - 1 - why as u64
}

/// Decodes `number_of`; `None` for any other number.
pub(super) fn reason_in(number: u64) -> Option<EndedBecause> {
    let at = usize::try_from((u64::MAX - 1).checked_sub(number)?).ok()?;
    EndedBecause::ALL.get(at).copied()
}
