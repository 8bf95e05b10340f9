//! Keeps pages on the medium for deletes, so that they also succeed on a disk that is full below the quota.
//!
//! **Problem.** A transaction writes copies of the pages that it changes, and the pages that it frees are usable only
//! two commits later. On a full disk, without room for the copies, no record can be deleted. **Method.** Blocks behind
//! the end of the file are allocated before they are needed, with the file's length as it is. A put of a plain record
//! is refused where it might leave less than a copy of each page of the trees, at most [`HELD_MAX`] bytes; deletes may
//! use all of these. Where the blocks were used up and the disk has none, a transaction first makes an empty commit,
//! behind which the pages that earlier ones have freed are usable.
//!
//! Limits: file systems without `fallocate` hold nothing, and those that copy on write may still find no room. A single
//! transaction that deletes from more than [`HELD_MAX`] bytes of pages may fail on a full disk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use punctual_store::engine::EngineError;

use super::room::{CHANGE_PAGES, COMMIT_PAGES};
use super::{LmdbWrite, error};

/// Upper bound on the bytes held for deletes.
const HELD_MAX: i64 = 16 << 20;
/// Bytes that are allocated at once, where the disk has several times as many.
const STEP: i64 = 1 << 20;
/// Unit of a file's number of blocks (stat(2)).
const BLOCK_BYTES: i64 = 512;

/// Pages held beyond that where the disk has them: transactions that put a few records need no closer look.
const AHEAD: i64 = 64;

/// Pages from the beginning of the file for which the medium is known to have blocks.
#[derive(Debug)]
pub(super) struct DiskReserve {
    page_size: i64,
    pages: AtomicI64,
}

impl DiskReserve {
    pub(super) fn new(page_size: usize) -> DiskReserve {
        DiskReserve {
            page_size: page_size as i64,
            pages: AtomicI64::new(0),
        }
    }

    /// Whether the first `pages` pages of the file at `path` have blocks now.
    #[inline]
    fn holds(&self, pages: i64, path: impl Fn() -> PathBuf) -> bool {
        pages <= self.pages.load(Ordering::Relaxed) || self.extend(pages, &path())
    }

    #[cold]
    fn extend(&self, pages: i64, path: &Path) -> bool {
        let free = error::free_bytes(path).map_or(i64::MAX, |free| free.min(i64::MAX as u64) as i64);
        let pages = if free > STEP * 8 {
            pages + STEP / self.page_size
        } else {
            pages
        };
        let bytes = pages * self.page_size;
        // Where the disk lacks the blocks, some file systems take those that there are, and fail.
        let has = fs::metadata(path).map_or(0, |file| file.blocks() as i64 * BLOCK_BYTES);
        if bytes - has > free {
            return false;
        }
        match allocate(path, bytes) {
            Ok(()) => self.pages.store(pages, Ordering::Relaxed),
            Err(why) if matches!(why.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) => return false,
            // This file system holds nothing.
            Err(_) => self.pages.store(i64::MAX, Ordering::Relaxed),
        }
        true
    }
}

/// Allocates the first `bytes` of the file, which keeps its length.
///
/// # Errors
/// As the system reports: `ENOSPC` or `EDQUOT` where there is no room, others where the file system cannot.
pub(super) fn allocate(path: &Path, bytes: i64) -> io::Result<()> {
    let file: File = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    loop {
        // SAFETY: the descriptor is open.
        if unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, 0, bytes) } == 0 {
            return Ok(());
        }
        let why = io::Error::last_os_error();
        if why.kind() != io::ErrorKind::Interrupted {
            return Err(why);
        }
    }
}

impl LmdbWrite<'_> {
    /// Number of pages up to the last one that the newest commit uses, and of those held for deletes.
    fn used_and_held(&self) -> Result<(i64, i64), EngineError> {
        let used = self.engine.env.info().last_page_number as i64 + 1;
        // Lists of free pages have a word for each.
        let lists = used / (self.engine.medium.page_size / size_of::<u64>() as i64);
        let held = self.nodes()? + lists + 2 * COMMIT_PAGES;
        Ok((used, held.min(HELD_MAX / self.engine.medium.page_size)))
    }

    /// Pages that are left over once `needed` pages of the file have blocks; `None`: the disk has none for them.
    fn left_over(&self, needed: i64) -> Option<i64> {
        let holds = self.engine.medium.holds(needed, || self.engine.file());
        holds.then(|| self.engine.medium.pages.load(Ordering::Relaxed) - needed)
    }

    /// Makes pages usable for this transaction, which has changed nothing, where fewer are held than a change and all
    /// deletes may take. Returns the pages that are left over.
    ///
    /// # Errors
    /// Those of [`turn_over`](LmdbWrite::turn_over).
    #[inline]
    pub(super) fn hold_for_one(&mut self) -> Result<i64, EngineError> {
        let (used, held) = self.used_and_held()?;
        let one = used + held + CHANGE_PAGES + COMMIT_PAGES;
        if let Some(left) = self.left_over(one + AHEAD) {
            return Ok(left + AHEAD);
        }
        match self.left_over(one) {
            Some(left) => Ok(left),
            None => self.turn_over().map(|()| 0),
        }
    }

    /// Checks that the medium has blocks for the pages taken so far and `pages` more, beside those held for deletes.
    /// Returns the pages that are left over.
    ///
    /// # Errors
    /// [`EngineError::DiskFull`].
    #[cold]
    pub(super) fn hold_for_put(&mut self, pages: i64) -> Result<i64, EngineError> {
        let (used, held) = self.used_and_held()?;
        // A page that is taken may be one of the trees, for which another one is held.
        let needed = self.tight_need()? + held + 2 * pages;
        let full = || EngineError::DiskFull {
            path: self.engine.directory.clone(),
        };
        self.left_over(used + needed.max(0)).ok_or_else(full)
    }
}
