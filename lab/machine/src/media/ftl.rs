//! A page-mapped flash translation layer with greedy garbage collection.
//!
//! Flash is programmed page by page and erased block by block. A write goes to the next page of the *active* block and
//! makes the page's old place invalid; a map stores the place of each logical page. When few blocks are free, the block
//! with the fewest valid pages is the *victim*: its valid pages are written again, and it is erased. There is more
//! flash than there are logical pages (*over-provisioning*), so a victim has an invalid page.
//!
//! **Invariants** (tests: `tests/it/media.rs`). The map never loses or shares a page. At least one block is free before
//! every program. A collection gains at least one page, so every loop here ends within [`Geometry::pages`] rounds.
//!
//! **Thresholds** (as in MQSim, A. Tavakkol and others, FAST 2018). With fewer free blocks than `collect_below` every
//! write is followed by one collection; with fewer than [`RESERVE`] the write itself waits for collections.

use std::collections::{BTreeSet, VecDeque};

/// Least number of free blocks at which a host write begins: one to open for the write, one for a collection's copies.
const RESERVE: u32 = 2;

/// The shape of a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Number of erase blocks.
    pub blocks: u32,
    /// Number of pages per block.
    pub pages_per_block: u32,
    /// Number of pages that the host can address.
    pub logical_pages: u32,
    /// Number of free blocks below which garbage is collected.
    pub collect_below: u32,
}

/// Numbers of flash operations of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashOperations {
    pub reads: u64,
    pub programs: u64,
    pub erases: u64,
}

/// The translation layer: places of all logical pages.
#[derive(Clone, Debug)]
pub struct Ftl {
    geometry: Geometry,
    /// From logical to physical page; [`NOWHERE`] if never written.
    map: Vec<u32>,
    /// From physical page to the logical page that is valid there; [`NOWHERE`] if none is.
    holds: Vec<u32>,
    /// Number of valid pages of each block.
    valid: Vec<u32>,
    /// Valid pages and number of each block that is neither free nor active: the victim comes first.
    full: BTreeSet<(u32, u32)>,
    /// Free blocks; the next to be used is at the end, which was erased longest ago.
    free: VecDeque<u32>,
    active: u32,
    /// Number of programmed pages of the active block.
    filled: u32,
    written: u64,
    programmed: u64,
}

const NOWHERE: u32 = u32::MAX;

impl std::ops::AddAssign for FlashOperations {
    fn add_assign(&mut self, other: FlashOperations) {
        self.reads += other.reads;
        self.programs += other.programs;
        self.erases += other.erases;
    }
}

impl Geometry {
    /// Number of physical pages.
    pub const fn pages(&self) -> u64 {
        self.blocks as u64 * self.pages_per_block as u64
    }

    /// Whether a victim always has an invalid page: if all full blocks were all valid, they would hold more pages than
    /// there are. Besides the free blocks, the active one is not full.
    pub fn is_sound(&self) -> bool {
        let free = u64::from(self.collect_below.max(RESERVE));
        let full = u64::from(self.blocks).saturating_sub(free + 1);
        self.pages_per_block > 0
            && self.logical_pages > 0
            && self.pages() < u64::from(NOWHERE)
            && full * u64::from(self.pages_per_block) > u64::from(self.logical_pages)
    }
}

impl Ftl {
    /// Makes a fully erased device.
    ///
    /// # Panics
    /// Where the geometry is not [sound](Geometry::is_sound).
    pub fn new(geometry: Geometry) -> Ftl {
        assert!(geometry.is_sound(), "there is too little flash: {geometry:?}");
        Ftl {
            geometry,
            map: vec![NOWHERE; geometry.logical_pages as usize],
            holds: vec![NOWHERE; geometry.pages() as usize],
            valid: vec![0; geometry.blocks as usize],
            full: BTreeSet::new(),
            free: (1..geometry.blocks).rev().collect(),
            active: 0,
            filled: 0,
            written: 0,
            programmed: 0,
        }
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Reads one logical page. A page that was never written costs no flash operation.
    pub fn read(&self, page: u32) -> FlashOperations {
        FlashOperations {
            reads: u64::from(self.place(page).is_some()),
            ..FlashOperations::default()
        }
    }

    /// Writes one logical page and returns the work of the write itself, including collections that it had to wait for.
    /// Call [`collect_if_needed`](Ftl::collect_if_needed) afterwards.
    pub fn write(&mut self, page: u32) -> FlashOperations {
        let mut work = FlashOperations::default();
        let page = page % self.geometry.logical_pages;
        // Bounded: every collection gains a page.
        while self.free_blocks() < RESERVE {
            work += self.collect();
        }
        self.written += 1;
        self.program(page);
        work.programs += 1;
        work
    }

    /// Collects one block, if fewer blocks are free than there should be.
    pub fn collect_if_needed(&mut self) -> FlashOperations {
        if self.free_blocks() < self.geometry.collect_below {
            self.collect()
        } else {
            FlashOperations::default()
        }
    }

    /// The physical page of a logical one, if it was ever written.
    pub fn place(&self, page: u32) -> Option<u32> {
        let place = self.map[(page % self.geometry.logical_pages) as usize];
        (place != NOWHERE).then_some(place)
    }

    /// The logical page that is valid at a physical one.
    pub fn held_at(&self, place: u32) -> Option<u32> {
        self.holds.get(place as usize).copied().filter(|page| *page != NOWHERE)
    }

    /// Number of erased blocks that are free.
    pub fn free_blocks(&self) -> u32 {
        self.free.len() as u32
    }

    /// Pages programmed for each page written, at least 1; 1 where nothing was written.
    pub fn write_amplification(&self) -> f64 {
        if self.written == 0 {
            1.0
        } else {
            self.programmed as f64 / self.written as f64
        }
    }

    /// Begins to count [`write_amplification`](Ftl::write_amplification) anew.
    pub fn forget_counts(&mut self) {
        (self.written, self.programmed) = (0, 0);
    }

    /// Collects greedily: the full block with the fewest valid pages, of several the one with the lowest number.
    fn collect(&mut self) -> FlashOperations {
        let Some((copies, victim)) = self.full.pop_first() else {
            return FlashOperations::default();
        };
        let copies = u64::from(copies);
        let first = victim * self.geometry.pages_per_block;
        for place in first..first + self.geometry.pages_per_block {
            if let Some(page) = self.held_at(place) {
                self.program(page);
            }
        }
        self.free.push_front(victim);
        FlashOperations {
            reads: copies,
            programs: copies,
            erases: 1,
        }
    }

    /// Programs the next page of the active block with `page`.
    fn program(&mut self, page: u32) {
        if self.filled == self.geometry.pages_per_block {
            // A block is free: see RESERVE.
            if let Some(block) = self.free.pop_back() {
                self.full.insert((self.valid[self.active as usize], self.active));
                self.active = block;
                self.filled = 0;
            }
        }
        let place = self.active * self.geometry.pages_per_block + self.filled;
        if let Some(old) = self.place(page) {
            self.holds[old as usize] = NOWHERE;
            self.invalidate(old / self.geometry.pages_per_block);
        }
        self.map[page as usize] = place;
        self.holds[place as usize] = page;
        self.valid[self.active as usize] += 1;
        self.filled += 1;
        self.programmed += 1;
    }
    /// Counts one valid page less in `block`. The active block and a victim are not in `full`.
    fn invalidate(&mut self, block: u32) {
        let valid = &mut self.valid[block as usize];
        let was_full = self.full.remove(&(*valid, block));
        *valid -= 1;
        if was_full {
            self.full.insert((*valid, block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the ordered set must hold, block by block.
    fn full(ftl: &Ftl) -> BTreeSet<(u32, u32)> {
        let is_full = |block: &u32| !ftl.free.contains(block) && *block != ftl.active;
        let blocks = (0..ftl.geometry.blocks).filter(is_full);
        let valid = |block: u32| {
            let first = block * ftl.geometry.pages_per_block;
            (first..first + ftl.geometry.pages_per_block)
                .filter(|place| ftl.held_at(*place).is_some())
                .count() as u32
        };
        blocks.map(|block| (valid(block), block)).collect()
    }

    proptest! {
        #[test]
        fn the_full_blocks_are_known_with_their_valid_pages(
            pages in prop::collection::vec(0u32..40, 0..400),
            background in any::<bool>(),
        ) {
            let mut ftl = Ftl::new(Geometry { blocks: 16, pages_per_block: 4, logical_pages: 40, collect_below: 3 });
            for page in pages {
                ftl.write(page);
                prop_assert_eq!(&ftl.full, &full(&ftl));
                if background {
                    let least = ftl.full.first().map(|(valid, _)| u64::from(*valid));
                    let work = ftl.collect_if_needed();
                    prop_assert!(work.erases == 0 || Some(work.programs) == least, "greedy");
                    prop_assert_eq!(&ftl.full, &full(&ftl));
                }
            }
        }
    }
}
