//! The number of objects that are stale at the worst instant of a span of time.
//!
//! **Terms.** A *gap* is a span, start included, end excluded, in which an object may be stale. Each sensor has one gap
//! at most. The *depth* at an instant is the number of gaps that contain it.
//!
//! **Method.** The ends of all gaps are kept in order of time, in blocks of ends that lie beside one another in memory.
//! Walking the ends in order, the depth rises by 1 at each start and falls by 1 at each end. Of every block, and in a
//! binary tree over the blocks, the sum of these steps is known and the largest of their prefix sums. So a change sums
//! up one block and the nodes above it, and the deepest instant of a span takes two blocks and the nodes between them.
//! A block that is full is split in two, and neighbours that have few ends between them are joined; both make the tree
//! anew, once in [`BLOCK`] / 8 changes at most. So a change costs O(log N) for N sensors and, amortised, up to N / 50
//! steps along an array, which are faster than the way down a tree of single ends up to some 100,000 sensors.
//! Everything is allocated at construction.

use punctual_units::Time;

/// A span of time: `from` included, `to` excluded. With `to` = `Time::MAX` it has no end of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub from: Time,
    pub to: Time,
}

/// Ends that a block holds at most: few enough to be summed up in the time of a way down a tree.
const BLOCK: usize = 64;

/// Neighbours with at most this many ends between them become one block.
const JOINED: usize = BLOCK * 3 / 4;

/// The gaps of sensors `0..N`.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    gaps: Box<[Option<Gap>]>,
    /// The ends in order of their keys; at least one block.
    blocks: Vec<Block>,
    /// Memory of blocks to come.
    spare: Vec<Vec<Key>>,
    /// Totals of the blocks, in the second half; those of nodes `2k` and `2k + 1` together are that of node `k`.
    totals: Box<[Total]>,
}

#[derive(Clone, Debug)]
struct Block {
    /// Above the keys of the blocks before, and not above any of this one.
    first: Key,
    ends: Vec<Key>,
}

/// Position of an end in the order: by time, then by number, so that at one instant gaps end before others start. The
/// numbers `0..N` are the ends of the sensors' gaps, `N..2N` their starts.
type Key = (Time, u32);

/// The steps of some ends that follow one another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Total {
    sum: i32,
    /// The largest prefix sum; 0 for the empty prefix.
    peak: i32,
}

impl Total {
    fn then(self, next: Total) -> Total {
        Total {
            sum: self.sum + next.sum,
            peak: self.peak.max(self.sum + next.peak),
        }
    }
}

impl Gaps {
    /// Allocates blocks for `sensors` sensors, which have no gaps yet.
    pub fn new(sensors: usize) -> Self {
        // Any two neighbours hold more than `JOINED` ends, but for a block that is being split.
        let most = 2 * (2 * sensors / (JOINED + 1)) + 3;
        let mut blocks = Vec::with_capacity(most);
        blocks.push(Block {
            first: (Time::ZERO, 0),
            ends: Vec::with_capacity(BLOCK),
        });
        Gaps {
            gaps: vec![None; sensors].into(),
            blocks,
            spare: (1..most).map(|_| Vec::with_capacity(BLOCK)).collect(),
            totals: vec![Total::default(); 2 * most].into(),
        }
    }

    /// As [`Gaps::new`], with the same gap, which must not be empty, for each sensor. Set one by one, they would make
    /// the tree anew for every few of them.
    pub fn filled(sensors: usize, gap: Gap) -> Self {
        let mut gaps = Gaps::new(sensors);
        gaps.gaps.fill(Some(gap));
        let starts = (sensors..2 * sensors).map(|number| (gap.from, number as u32));
        let ends = starts.chain((0..sensors).map(|number| (gap.to, number as u32)));
        let ends: Vec<Key> = ends.collect();
        for (block, keys) in ends.chunks(JOINED).enumerate() {
            if block > 0 {
                let ends = gaps
                    .spare
                    .pop()
                    .expect("any two neighbours have more than `JOINED` ends");
                gaps.blocks.push(Block { first: keys[0], ends });
            }
            gaps.blocks[block].ends.extend(keys);
            gaps.sum_up(block);
        }
        gaps
    }

    /// The sensor's gap. O(1).
    pub fn get(&self, sensor: usize) -> Option<Gap> {
        self.gaps[sensor]
    }

    /// Replaces the sensor's gap. An empty span counts as no gap.
    pub fn set(&mut self, sensor: usize, gap: Option<Gap>) {
        let gap = gap.filter(|gap| gap.from < gap.to);
        let before = std::mem::replace(&mut self.gaps[sensor], gap);
        let (end, start) = (sensor as u32, (sensor + self.gaps.len()) as u32);
        self.shift(end, before.map(|gap| gap.to), gap.map(|gap| gap.to));
        self.shift(start, before.map(|gap| gap.from), gap.map(|gap| gap.from));
    }

    /// Moves an end from one instant to another; at `None` it is in no block.
    fn shift(&mut self, number: u32, before: Option<Time>, at: Option<Time>) {
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.remove((before, number));
        }
        if let Some(at) = at {
            self.insert((at, number));
        }
    }

    /// The largest depth within `span`, which must not be empty. Changes nothing.
    pub fn deepest(&self, span: Gap) -> usize {
        let (first, first_at) = self.position((span.from, u32::MAX));
        let (last, last_at) = self.position((span.to, 0));
        let ends = |block: usize| &self.blocks[block].ends;
        let before = self.all(0, first).then(self.total(&ends(first)[..first_at]));
        let within = match first == last {
            true => self.total(&ends(first)[first_at..last_at]),
            false => self
                .total(&ends(first)[first_at..])
                .then(self.all(first + 1, last))
                .then(self.total(&ends(last)[..last_at])),
        };
        // No prefix of all steps has more ends than starts, so the depth is never negative.
        (before.sum + within.peak) as usize
    }

    /// The block and the place in it of the first end that is not before `key`.
    fn position(&self, key: Key) -> (usize, usize) {
        let block = self.blocks.partition_point(|block| block.first <= key) - 1;
        (block, self.blocks[block].ends.partition_point(|end| *end < key))
    }

    fn total(&self, ends: &[Key]) -> Total {
        let starts = self.gaps.len() as u32;
        let mut total = Total::default();
        for (_, number) in ends {
            total.sum += if *number < starts { -1 } else { 1 };
            total.peak = total.peak.max(total.sum);
        }
        total
    }

    /// The total of the blocks `from..to`.
    fn all(&self, from: usize, to: usize) -> Total {
        let leaves = self.totals.len() / 2;
        let (mut from, mut to) = (from + leaves, to + leaves);
        let (mut left, mut right) = (Total::default(), Total::default());
        while from < to {
            if from % 2 == 1 {
                left = left.then(self.totals[from]);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                right = self.totals[to].then(right);
            }
            (from, to) = (from / 2, to / 2);
        }
        left.then(right)
    }

    /// Sums up a block, and the nodes above it.
    fn sum_up(&mut self, block: usize) {
        let mut node = self.totals.len() / 2 + block;
        self.totals[node] = self.total(&self.blocks[block].ends);
        while node > 1 {
            node /= 2;
            self.totals[node] = self.totals[2 * node].then(self.totals[2 * node + 1]);
        }
    }

    fn insert(&mut self, key: Key) {
        let (mut block, mut at) = self.position(key);
        if self.blocks[block].ends.len() == BLOCK {
            self.split(block);
            (block, at) = self.position(key);
        }
        self.blocks[block].ends.insert(at, key);
        self.sum_up(block);
    }

    /// Removes an end, which must be there.
    fn remove(&mut self, key: Key) {
        let (block, at) = self.position(key);
        self.blocks[block].ends.remove(at);
        self.sum_up(block);
        self.join(block);
        self.join(block.saturating_sub(1));
    }

    fn split(&mut self, block: usize) {
        let mut ends = self.spare.pop().expect("neighbours with few ends are joined");
        ends.extend(self.blocks[block].ends.drain(BLOCK / 2..));
        let upper = Block { first: ends[0], ends };
        self.blocks.insert(block + 1, upper);
        self.move_totals(block + 1, block + 2);
        self.sum_up(block);
        self.sum_up(block + 1);
        self.join(block + 1);
        self.join(block.saturating_sub(1));
    }

    /// Joins a block with the next one if they have few ends.
    fn join(&mut self, block: usize) {
        let few = |pair: &[Block]| pair[0].ends.len() + pair[1].ends.len() <= JOINED;
        if self.blocks.get(block..block + 2).is_some_and(few) {
            let Block { mut ends, .. } = self.blocks.remove(block + 1);
            self.blocks[block].ends.append(&mut ends);
            self.spare.push(ends);
            self.move_totals(block + 2, block + 1);
            self.sum_up(block);
        }
    }

    /// The blocks from `from` on are now those from `to` on: moves their totals, and sums up all nodes.
    fn move_totals(&mut self, from: usize, to: usize) {
        let leaves = self.totals.len() / 2;
        let moved = leaves - from.max(to);
        self.totals
            .copy_within(leaves + from..leaves + from + moved, leaves + to);
        self.totals[leaves + self.blocks.len()..].fill(Total::default());
        for node in (1..leaves).rev() {
            self.totals[node] = self.totals[2 * node].then(self.totals[2 * node + 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Twice as many ends are in several blocks.
    const SENSORS: usize = 100;
    const HORIZON: u64 = 20;

    fn gap() -> impl Strategy<Value = Option<Gap>> {
        let span = (0..HORIZON, 0..HORIZON).prop_map(|(a, b)| Gap {
            from: Time(a.min(b)),
            to: Time(a.max(b)),
        });
        prop_oneof![1 => Just(None), 4 => span.prop_map(Some)]
    }

    /// The largest depth, instant by instant.
    fn deepest(gaps: &[Option<Gap>], span: Gap) -> usize {
        let depth = |at: u64| {
            let contains = |gap: &&Gap| gap.from.0 <= at && at < gap.to.0;
            gaps.iter().flatten().filter(contains).count()
        };
        (span.from.0..span.to.0).map(depth).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn the_deepest_instant_is_that_of_a_list(
            ops in prop::collection::vec((0..SENSORS, gap(), 0..HORIZON, 1..HORIZON), 1..600)
        ) {
            let mut gaps = Gaps::new(SENSORS);
            let mut list = [None; SENSORS];
            for (sensor, gap, from, length) in ops {
                gaps.set(sensor, gap);
                list[sensor] = gap.filter(|gap| gap.from < gap.to);
                prop_assert_eq!(gaps.get(sensor), list[sensor]);
                let span = Gap { from: Time(from), to: Time(from + length) };
                prop_assert_eq!(gaps.deepest(span), deepest(&list, span));
            }
        }
    }

    #[test]
    fn gaps_made_together_are_those_set_one_by_one() {
        let span = |from, to| Gap {
            from: Time(from),
            to: Time(to),
        };
        for sensors in [0, 1, 23, 24, 25, 48, 49, 1000] {
            let mut filled = Gaps::filled(sensors, span(5, 10));
            let mut one_by_one = Gaps::new(sensors);
            (0..sensors).for_each(|sensor| one_by_one.set(sensor, Some(span(5, 10))));
            for sensor in 0..sensors {
                for asked in [span(0, 5), span(0, 6), span(9, 10), span(10, 20), span(0, 20)] {
                    assert_eq!(filled.deepest(asked), one_by_one.deepest(asked));
                }
                assert_eq!(filled.get(sensor).map(|gap| gap.from), Some(Time(5)));
                let moved = (sensor % 3 > 0).then(|| span(sensor as u64 % 7, 15));
                filled.set(sensor, moved);
                one_by_one.set(sensor, moved);
            }
            (0..sensors).for_each(|sensor| filled.set(sensor, None));
            assert_eq!((filled.deepest(span(0, 20)), filled.blocks.len()), (0, 1));
            assert!(filled.totals.iter().all(|total| *total == Total::default()));
        }
    }

    /// As many ends as there can be come and go, in orders that fill and empty blocks.
    #[test]
    fn blocks_suffice_whatever_the_order_in_which_ends_come_and_go() {
        let sensors = 1024;
        let instants: [fn(u64) -> u64; 4] = [|it| it, |it| 1023 - it, |it| it * 341 % 1024, |it| it % 3];
        let mut gaps = Gaps::new(sensors);
        let blocks = gaps.blocks.len() + gaps.spare.len();
        for at in instants.iter().chain(&instants) {
            for sensor in 0..sensors {
                let from = Time(1 + 10 * at(sensor as u64));
                let to = Time(from.0 + 15);
                gaps.set(sensor, Some(Gap { from, to }));
                let few = |pair: &[Block]| pair[0].ends.len() + pair[1].ends.len() <= JOINED;
                assert!(!gaps.blocks.windows(2).any(few));
            }
            let whole = Gap {
                from: Time::ZERO,
                to: Time::MAX,
            };
            let deepest = if at(3) == at(0) { 683 } else { 2 };
            assert_eq!(gaps.deepest(whole), deepest);
            // Every second one, then the others.
            for sensor in (0..sensors).step_by(2).chain((1..sensors).step_by(2)) {
                gaps.set(sensor, None);
            }
            assert_eq!((gaps.deepest(whole), gaps.blocks.len()), (0, 1));
            assert_eq!(gaps.blocks.len() + gaps.spare.len(), blocks);
            assert!(gaps.totals.iter().all(|total| *total == Total::default()));
        }
    }
}
