//! A page-mapped flash translation layer with greedy garbage collection.
//!
//! Flash is programmed page by page and erased block by block. A write goes to the next page of the *active* block and makes the page's
//! old place invalid; a map tells where each logical page is. When few blocks are free, the block with the fewest valid pages is the
//! *victim*: its valid pages are written again, and it is erased. There is more flash than there are logical pages (*over-provisioning*), so a victim has
//! something invalid in it.
//!
//! **Invariants** (tests: `sim/tests/media.rs`). The map never loses or shares a page. At least one block is free before every program. A collection
//! gains at least one page, so every loop here ends within [`Geometry::pages`] rounds.
//!
//! **Thresholds** (as in MQSim, A. Tavakkol and others, FAST 2018). With fewer free blocks than `collect_below` every write is followed by one collection; with
//! fewer than [`RESERVE`] the write itself waits until there are.

/// Free blocks without which no host write begins: one to open for the write, one for a collection's copies.
const RESERVE: u32 = 2;

/// The shape of a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Erase blocks.
    pub blocks: u32,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Pages that the user has.
    pub logical_pages: u32,
    /// Free blocks below which garbage is collected.
    pub collect_below: u32,
}

/// What the flash had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Pages read.
    pub reads: u64,
    /// Pages programmed.
    pub programs: u64,
    /// Blocks erased.
    pub erases: u64,
}

/// The translation layer: where every logical page is.
#[derive(Clone, Debug)]
pub struct Ftl {
    geometry: Geometry,
    /// Logical page to physical page; [`NOWHERE`] if never written.
    map: Vec<u32>,
    /// Physical page to the logical page that is valid there; [`NOWHERE`] if none is.
    holds: Vec<u32>,
    /// Valid pages of each block.
    valid: Vec<u32>,
    free: Vec<u32>,
    active: u32,
    /// Pages of the active block that are programmed.
    filled: u32,
    written: u64,
    programmed: u64,
}

const NOWHERE: u32 = u32::MAX;

impl std::ops::AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        self.reads += other.reads;
        self.programs += other.programs;
        self.erases += other.erases;
    }
}

impl Geometry {
    /// Physical pages.
    pub const fn pages(&self) -> u64 {
        self.blocks as u64 * self.pages_per_block as u64
    }

    /// Whether a victim always has something invalid in it: were all full blocks all valid, they would hold more than there is. Besides the
    /// free blocks, the active one is not full.
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
    /// An erased device.
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
            free: (1..geometry.blocks).rev().collect(),
            active: 0,
            filled: 0,
            written: 0,
            programmed: 0,
        }
    }

    /// The shape.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Reads one logical page. A page that was never written is read from the map alone.
    pub fn read(&self, page: u32) -> Work {
        Work {
            reads: u64::from(self.place(page).is_some()),
            ..Work::default()
        }
    }

    /// Writes one logical page: the work of the write itself, collections that it had to wait for included. Call
    /// [`collect_if_needed`](Ftl::collect_if_needed) afterwards.
    pub fn write(&mut self, page: u32) -> Work {
        let mut work = Work::default();
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

    /// One collection, if fewer blocks are free than there should be.
    pub fn collect_if_needed(&mut self) -> Work {
        if self.free_blocks() < self.geometry.collect_below {
            self.collect()
        } else {
            Work::default()
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

    /// Erased blocks.
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

    /// Greedy: the full block with the fewest valid pages, the first of them.
    fn victim(&self) -> Option<u32> {
        let mut candidate: Vec<bool> = vec![true; self.valid.len()];
        for free in &self.free {
            candidate[*free as usize] = false;
        }
        candidate[self.active as usize] = false;
        let full = (0..self.geometry.blocks).filter(|block| candidate[*block as usize]);
        full.min_by_key(|block| self.valid[*block as usize])
    }

    fn collect(&mut self) -> Work {
        let Some(victim) = self.victim() else {
            return Work::default();
        };
        let copies = u64::from(self.valid[victim as usize]);
        let first = victim * self.geometry.pages_per_block;
        for place in first..first + self.geometry.pages_per_block {
            if let Some(page) = self.held_at(place) {
                self.program(page);
            }
        }
        self.free.insert(0, victim);
        Work {
            reads: copies,
            programs: copies,
            erases: 1,
        }
    }

    /// Programs the next page of the active block with `page`.
    fn program(&mut self, page: u32) {
        if self.filled == self.geometry.pages_per_block {
            // One is free: see RESERVE.
            if let Some(block) = self.free.pop() {
                self.active = block;
                self.filled = 0;
            }
        }
        let place = self.active * self.geometry.pages_per_block + self.filled;
        if let Some(old) = self.place(page) {
            self.holds[old as usize] = NOWHERE;
            self.valid[(old / self.geometry.pages_per_block) as usize] -= 1;
        }
        self.map[page as usize] = place;
        self.holds[place as usize] = page;
        self.valid[self.active as usize] += 1;
        self.filled += 1;
        self.programmed += 1;
    }
}
