//! Bounded logs in shared memory: each entry takes the place of the oldest one.
//!
//! The first word of a place marks its entry as complete, by the entry's number plus one. A reader that finds another
//! mark after it has read the entry has read parts of a newer one, and leaves it out.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// A log, of which several processes write and read entries.
pub(super) struct EntryLog<'m> {
    /// Number of entries so far.
    pub(super) count: &'m AtomicU64,
    /// The places, one after the other; words beyond the last whole one are unused.
    pub(super) words: &'m [AtomicU64],
    /// Words of a place: the mark, and the entry.
    pub(super) place_words: usize,
}

impl EntryLog<'_> {
    fn place(&self, number: u64) -> &[AtomicU64] {
        let at = (number % self.places()) as usize * self.place_words;
        &self.words[at..at + self.place_words]
    }

    fn places(&self) -> u64 {
        (self.words.len() / self.place_words) as u64
    }

    /// Adds the entry that `write` stores in its words.
    pub(super) fn add(&self, write: impl FnOnce(&[AtomicU64])) {
        let number = self.count.fetch_add(1, AcqRel);
        let [mark, entry @ ..] = self.place(number) else { return };
        mark.store(0, Relaxed);
        // A reader that sees a word of this entry sees that its mark is gone.
        fence(Release);
        write(entry);
        mark.store(number + 1, Release);
    }

    /// The entries from number `from` on, as `read` makes them of their words, and the number of the next one. Entries
    /// that were overwritten, or that `read` refuses, are left out.
    pub(super) fn fetch<T>(&self, from: u64, read: impl Fn(&[AtomicU64]) -> Option<T>) -> (Vec<T>, u64) {
        let count = self.count.load(Acquire);
        let first = from.max(count.saturating_sub(self.places()));
        let mut fetched = Vec::new();
        for number in first..count {
            let [mark, entry @ ..] = self.place(number) else { break };
            if mark.load(Acquire) < number + 1 {
                return (fetched, number); // still being written
            }
            let entry = read(entry);
            fence(Acquire);
            if mark.load(Relaxed) == number + 1 {
                fetched.extend(entry);
            }
        }
        (fetched, count)
    }
}
