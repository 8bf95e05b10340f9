//! A page cache that evicts the least recently used page.

use std::collections::HashMap;
use std::num::NonZeroUsize;

/// Marks the end of the list: no page.
const NONE: usize = usize::MAX;

/// Result of a reference to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The page was in the cache.
    Hit,
    /// The page had to be fetched, and is in the cache now.
    Miss,
}

/// A bounded number of pages; the least recently used makes room. Every operation takes constant time.
#[derive(Clone, Debug)]
pub struct PageCache {
    capacity: usize,
    /// Slot of each page. Only looked up, never iterated: the map's order does not matter.
    index: HashMap<u64, usize>,
    slots: Vec<Slot>,
    newest: usize,
    oldest: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    page: u64,
    newer: usize,
    older: usize,
}

impl PageCache {
    /// Makes an empty cache of `pages` pages.
    pub fn new(pages: NonZeroUsize) -> PageCache {
        PageCache {
            capacity: pages.get(),
            index: HashMap::new(),
            slots: Vec::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    /// Refers to `page`, which is in the cache afterwards.
    pub fn touch(&mut self, page: u64) -> Lookup {
        if let Some(slot) = self.index.get(&page).copied() {
            self.unlink(slot);
            self.push_newest(slot);
            return Lookup::Hit;
        }
        let slot = self.free_slot();
        self.slots[slot].page = page;
        self.index.insert(page, slot);
        self.push_newest(slot);
        Lookup::Miss
    }

    /// Number of pages in the cache.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether no page was referred to yet.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns a slot outside of the list: a new one, or that of the least recently used page.
    fn free_slot(&mut self) -> usize {
        if self.slots.len() < self.capacity {
            self.slots.push(Slot {
                page: 0,
                newer: NONE,
                older: NONE,
            });
            return self.slots.len() - 1;
        }
        let oldest = self.oldest;
        self.unlink(oldest);
        self.index.remove(&self.slots[oldest].page);
        oldest
    }

    fn unlink(&mut self, slot: usize) {
        let Slot { newer, older, .. } = self.slots[slot];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older].newer = newer,
        }
    }

    fn push_newest(&mut self, slot: usize) {
        let before = std::mem::replace(&mut self.newest, slot);
        self.slots[slot].newer = NONE;
        self.slots[slot].older = before;
        match before {
            NONE => self.oldest = slot,
            before => self.slots[before].newer = slot,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_does_what_a_list_does(capacity in 1usize..9, pages in prop::collection::vec(0u64..12, 0..200)) {
            let mut cache = PageCache::new(NonZeroUsize::new(capacity).unwrap());
            let mut model: Vec<u64> = Vec::new();
            for page in pages {
                let expected = if model.contains(&page) { Lookup::Hit } else { Lookup::Miss };
                model.retain(|known| *known != page);
                model.insert(0, page);
                model.truncate(capacity);
                prop_assert_eq!(cache.touch(page), expected);
                prop_assert_eq!(cache.len(), model.len());
            }
        }

        /// LRU is a stack algorithm: what a cache holds, a larger one holds too (Mattson and others, 1970).
        #[test]
        fn a_larger_cache_never_misses_more(capacity in 1usize..8, pages in prop::collection::vec(0u64..12, 0..200)) {
            let mut small = PageCache::new(NonZeroUsize::new(capacity).unwrap());
            let mut large = PageCache::new(NonZeroUsize::new(capacity + 1).unwrap());
            for page in pages {
                if small.touch(page) == Lookup::Hit {
                    prop_assert_eq!(large.touch(page), Lookup::Hit);
                } else {
                    large.touch(page);
                }
            }
        }
    }
}
