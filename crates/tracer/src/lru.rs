//! Sets of lines in order of last use.

use crate::geometry::LINE_BYTES;

/// Marks an empty place: larger than any address divided by the size of a line.
const EMPTY: u64 = u64::MAX;

/// The lines of a cache, set by set, the last used in front: a cache with LRU replacement, and at the same time all
/// smaller ones with the same sets.
///
/// ```
/// use punctual_tracer::LruSets;
/// let mut sets = LruSets::new(1, 2); // one set of two ways
/// assert_eq!([7, 8, 7, 9, 8].map(|line| sets.touch(line)), [2, 2, 1, 2, 2]);
/// ```
#[derive(Clone, Debug)]
pub struct LruSets {
    sets: u64,
    /// `sets - 1` for a power of two; division is slow, and most caches do not need it.
    mask: Option<u64>,
    ways: usize,
    lines: Box<[u64]>,
}

impl LruSets {
    /// Makes `sets` empty sets of `ways` lines each; both at least 1.
    pub fn new(sets: u64, ways: usize) -> LruSets {
        let (sets, ways) = (sets.max(1), ways.max(1));
        LruSets {
            sets,
            mask: sets.is_power_of_two().then(|| sets - 1),
            ways,
            lines: vec![EMPTY; sets as usize * ways].into_boxed_slice(),
        }
    }

    /// Makes a cache of `bytes` in `ways` ways of lines of [`LINE_BYTES`].
    pub fn of_size(bytes: u64, ways: usize) -> LruSets {
        LruSets::new(bytes / LINE_BYTES / ways.max(1) as u64, ways)
    }

    /// Number of ways of a set.
    pub fn ways(&self) -> usize {
        self.ways
    }

    /// Uses `line` and moves it to the front of its set. Returns its stack distance: the number of other lines of the
    /// set used since its last use, or the number of ways if the set does not hold it (any more).
    #[inline]
    pub fn touch(&mut self, line: u64) -> usize {
        let set = match self.mask {
            Some(mask) => line & mask,
            None => line % self.sets,
        } as usize;
        let recency = &mut self.lines[set * self.ways..][..self.ways];
        if recency[0] == line {
            return 0;
        }
        move_to_front(recency, line)
    }

    /// [`LruSets::touch`] for a cache of all ways: returns whether the cache had the line.
    #[inline]
    pub fn hits(&mut self, line: u64) -> bool {
        self.touch(line) < self.ways
    }
}

/// Moves lines back by one place each, up to the old place of `line`. Returns that place, or the length if there was
/// none.
fn move_to_front(recency: &mut [u64], line: u64) -> usize {
    let mut held = line;
    for (distance, place) in recency.iter_mut().enumerate() {
        std::mem::swap(place, &mut held);
        if held == line {
            return distance;
        }
    }
    recency.len()
}
