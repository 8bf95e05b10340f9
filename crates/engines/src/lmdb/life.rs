//! Whether this process may still use the store: one word, read by one load.
//!
//! **Problem.** After a fork, the child has a copy of the store that it must not use: LMDB's reader slots and its locks
//! are the parent's, in memory that both share. A child that only drops a snapshot takes the parent's away. And after a
//! failed sync the kernel may have dropped the pages that it could not write, while the next sync succeeds (Rebello et
//! al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020): later reads may then return other data than
//! was written.
//!
//! **Method.** The word lies in a page of its own that the kernel fills with zeros in a child (`MADV_WIPEONFORK`,
//! madvise(2), Linux 4.14). On older kernels LMDB's forks go unnoticed, and redb compares the process.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Value of the word in a forked child: the kernel has zeroed the page.
const FORKED: u32 = 0;
const SOUND: u32 = 1;
const BROKEN: u32 = 2;

/// The word of one open store.
#[derive(Debug)]
pub(crate) struct Life {
    word: NonNull<AtomicU32>,
    /// Id of the process that opened the store, where the kernel would not wipe the page in a child.
    process: Option<u32>,
}

// SAFETY: the word is an atomic, and its page is unmapped only by `Drop`.
unsafe impl Send for Life {}
// SAFETY: as above.
unsafe impl Sync for Life {}

/// Detects that the process is a forked child, for objects that may outlive a borrow of [`Life`].
pub(super) struct Fork(NonNull<AtomicU32>);

impl Fork {
    #[inline]
    pub(super) fn happened(&self) -> bool {
        // SAFETY: the page is mapped, see `Life::fork`.
        unsafe { self.0.as_ref() }.load(Ordering::Relaxed) == FORKED
    }
}

/// Why a store cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// This process is a forked child of the process that opened the store.
    Forked,
    /// A sync failed; pages may be lost.
    Broken,
}

/// A multiple of every page size that Linux knows, in bytes: the kernel wipes whole pages.
const LEN: usize = 1 << 16;

impl Life {
    pub(crate) fn begin() -> io::Result<Life> {
        // SAFETY: a new anonymous mapping, at an address of the kernel's choice.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let word = NonNull::new(page.cast::<AtomicU32>()).filter(|_| page != libc::MAP_FAILED);
        let Some(word) = word else {
            return Err(io::Error::last_os_error());
        };
        // SAFETY: the mapping is ours. If the kernel refuses, nothing changes.
        let wiped = unsafe { libc::madvise(page, LEN, libc::MADV_WIPEONFORK) } == 0;
        let process = (!wiped).then(std::process::id);
        let life = Life { word, process };
        life.word().store(SOUND, Ordering::Release);
        Ok(life)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: mapped, aligned to a page, and zero is a valid value.
        unsafe { self.word.as_ref() }
    }

    /// A detector of forks that does not borrow this value.
    ///
    /// # Safety
    /// The result must not be used after this value is dropped.
    pub(super) unsafe fn fork(&self) -> Fork {
        Fork(self.word)
    }

    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        self.word().load(Ordering::Relaxed) == SOUND
    }

    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.word().load(Ordering::Relaxed) == FORKED
            || self.process.is_some_and(|process| process != std::process::id())
    }

    /// Why the store is not sound.
    #[cold]
    pub(super) fn end(&self) -> End {
        if self.is_forked() { End::Forked } else { End::Broken }
    }

    /// Marks the store as broken: every write is refused until it is opened again.
    pub(super) fn break_off(&self) {
        self.word().store(BROKEN, Ordering::Release);
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // SAFETY: mapped by `begin` with this length, and used no more.
        unsafe { libc::munmap(self.word.as_ptr().cast(), LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_is_noticed_where_the_page_is_not_wiped() {
        let mut life = Life::begin().unwrap();
        life.process = Some(std::process::id());
        assert!(!life.is_forked());
        life.process = Some(std::process::id() + 1);
        assert!(life.is_forked());
    }
}
