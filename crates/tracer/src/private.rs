//! The private caches of a core.

use crate::geometry::Geometry;
use crate::lru::LruSets;

/// First level for instructions and for data, second level for both.
#[derive(Clone, Debug)]
pub struct PrivateCaches {
    instructions: LruSets,
    data: LruSets,
    second: Option<LruSets>,
}

impl PrivateCaches {
    /// Makes empty caches of this geometry.
    pub fn new(geometry: &Geometry) -> PrivateCaches {
        let first = LruSets::of_size(geometry.l1.bytes, geometry.l1.ways.into());
        PrivateCaches {
            instructions: first.clone(),
            data: first,
            second: geometry.l2.map(|l2| LruSets::of_size(l2.bytes, l2.ways.into())),
        }
    }

    /// Fetches instructions of `line`; returns whether the LLC is asked for it.
    #[inline]
    pub fn fetch(&mut self, line: u64) -> bool {
        !self.instructions.hits(line) && self.misses_second(line)
    }

    /// Loads from `line` or stores to it, which is the same here: a store allocates. Returns whether the LLC is asked
    /// for it.
    #[inline]
    pub fn access(&mut self, line: u64) -> bool {
        !self.data.hits(line) && self.misses_second(line)
    }

    fn misses_second(&mut self, line: u64) -> bool {
        self.second.as_mut().is_none_or(|second| !second.hits(line))
    }
}
