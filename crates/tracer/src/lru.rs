//! Sets of lines in the order in which they were last asked for.

use crate::geometry::LINE_BYTES;

/// No address divided by the size of a line comes near.
const EMPTY: u64 = u64::MAX;

/// The lines of a cache, set by set, the one asked for last in front: a cache with LRU replacement, and at the same
/// time all smaller ones with the same sets.
///
/// ```
/// use punctual_tracer::LruSets;
/// let mut sets = LruSets::new(1, 2); // one set of two ways
/// assert_eq!([7, 8, 7, 9, 8].map(|line| sets.touch(line)), [2, 2, 1, 2, 2]);
/// ```
#[derive(Clone, Debug)]
pub struct LruSets {
    sets: u64,
    /// `sets - 1` where that is a mask; division is slow, and most caches do without.
    mask: Option<u64>,
    ways: usize,
    lines: Box<[u64]>,
}

impl LruSets {
    /// `sets` empty sets of `ways` lines each; both at least 1.
    pub fn new(sets: u64, ways: usize) -> LruSets {
        let (sets, ways) = (sets.max(1), ways.max(1));
        LruSets {
            sets,
            mask: sets.is_power_of_two().then(|| sets - 1),
            ways,
            lines: vec![EMPTY; sets as usize * ways].into_boxed_slice(),
        }
    }

    /// A cache of `bytes` in `ways` ways of lines of [`LINE_BYTES`].
    pub fn of_size(bytes: u64, ways: usize) -> LruSets {
        LruSets::new(bytes / LINE_BYTES / ways.max(1) as u64, ways)
    }

    /// Ways of a set.
    pub fn ways(&self) -> usize {
        self.ways
    }

    /// Asks for `line` and puts it in front of its set. Returns its stack distance: how many other lines of the set
    /// were asked for since the last time, or the number of ways if it is not among them (any more).
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

    /// [`LruSets::touch`] for a cache of all ways: whether it has the line.
    #[inline]
    pub fn hits(&mut self, line: u64) -> bool {
        self.touch(line) < self.ways
    }
}

/// Lines move back by one place each, until the one that `line` left is filled.
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
