//! The number of objects that are stale at the worst instant of a span of time.
//!
//! **Terms.** A *gap* is a span, start included, end excluded, in which an object may be stale. Each sensor has one gap
//! at most. The *depth* at an instant is the number of gaps that contain it.
//!
//! **Method.** The ends of all gaps are kept in order of time in a treap (Seidel and Aragon, "Randomized Search Trees",
//! Algorithmica 16, 1996): a binary search tree by time that is at once a heap by a fixed pseudo-random rank. Walking
//! the ends in order, the depth rises by 1 at each start and falls by 1 at each end. Every node keeps the sum of these
//! steps over its subtree and the largest of their prefix sums, so the deepest instant of a span takes one way down for
//! each end of the span. All operations cost O(log N) on average over the ranks, which depend on nothing but N.
//! Everything is allocated at construction.

use punctual_units::Time;

/// A span of time: `from` included, `to` excluded. With `to` = `Time::MAX` it has no end of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub from: Time,
    pub to: Time,
}

/// The index of no node: an empty subtree.
const NONE: u32 = u32::MAX;

/// The gaps of sensors `0..N`.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    /// Nodes `0..N` are the ends of the sensors' gaps, nodes `N..2N` their starts.
    nodes: Box<[Node]>,
    gaps: Box<[Option<Gap>]>,
    root: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    at: Time,
    rank: u32,
    left: u32,
    right: u32,
    /// The sum of the steps in this subtree.
    sum: i32,
    /// The largest prefix sum of the steps in this subtree; 0 for the empty prefix.
    peak: i32,
}

/// Position of a node in the order: by time, then by number, so that at one instant gaps end before others start.
type Key = (Time, u32);

impl Gaps {
    /// Allocates nodes for `sensors` sensors, which have no gaps yet.
    pub fn new(sensors: usize) -> Self {
        let node = |number: usize| Node {
            at: Time::ZERO,
            rank: rank(number as u32),
            left: NONE,
            right: NONE,
            sum: 0,
            peak: 0,
        };
        Gaps {
            nodes: (0..2 * sensors).map(node).collect(),
            gaps: vec![None; sensors].into(),
            root: NONE,
        }
    }

    /// The sensor's gap. O(1).
    pub fn get(&self, sensor: usize) -> Option<Gap> {
        self.gaps[sensor]
    }

    /// Replaces the sensor's gap. An empty span counts as no gap. O(log N).
    pub fn set(&mut self, sensor: usize, gap: Option<Gap>) {
        let gap = gap.filter(|gap| gap.from < gap.to);
        let before = std::mem::replace(&mut self.gaps[sensor], gap);
        let (end, start) = (sensor as u32, (sensor + self.gaps.len()) as u32);
        self.shift(end, before.map(|gap| gap.to), gap.map(|gap| gap.to));
        self.shift(start, before.map(|gap| gap.from), gap.map(|gap| gap.from));
    }

    /// Moves a node from one instant to another; `None` is outside of the tree.
    fn shift(&mut self, node: u32, before: Option<Time>, at: Option<Time>) {
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.root = self.without(self.root, (before, node));
        }
        if let Some(at) = at {
            let fresh = &mut self.nodes[node as usize];
            (fresh.at, fresh.left, fresh.right) = (at, NONE, NONE);
            self.root = self.with(self.root, node);
        }
    }

    /// The largest depth within `span`, which must not be empty. O(log N), and changes nothing.
    pub fn deepest(&self, span: Gap) -> usize {
        let (first, end) = ((span.from, NONE), (span.to, 0));
        // Depth before the subtree `tree`; at the end, before the first node of the span.
        let (mut depth, mut tree, mut deepest) = (0, self.root, 0);
        // Whether a node to the right of the subtree lies within the span.
        let mut is_inside = false;
        while tree != NONE {
            let Node { left, right, .. } = self.nodes[tree as usize];
            let through = depth + self.sum(left) + self.step(tree);
            if self.key(tree) < first {
                (depth, tree) = (through, right);
                continue;
            }
            if is_inside {
                deepest = deepest.max(through + self.peak(right));
            } else if self.key(tree) < end {
                deepest = deepest.max(self.deepest_before(right, through, end));
                is_inside = true;
            }
            tree = left;
        }
        // No prefix of all steps has more ends than starts, so the depth is never negative.
        deepest.max(depth) as usize
    }

    /// The largest depth after a node of `tree` that lies before `end`; `depth` is that before the subtree.
    fn deepest_before(&self, mut tree: u32, mut depth: i32, end: Key) -> i32 {
        let mut deepest = depth;
        while tree != NONE {
            let Node { left, right, .. } = self.nodes[tree as usize];
            if self.key(tree) < end {
                deepest = deepest.max(depth + self.peak(left));
                depth += self.sum(left) + self.step(tree);
                (deepest, tree) = (deepest.max(depth), right);
            } else {
                tree = left;
            }
        }
        deepest
    }

    fn step(&self, node: u32) -> i32 {
        if (node as usize) < self.gaps.len() { -1 } else { 1 }
    }

    fn sum(&self, tree: u32) -> i32 {
        if tree == NONE { 0 } else { self.nodes[tree as usize].sum }
    }

    fn peak(&self, tree: u32) -> i32 {
        if tree == NONE {
            0
        } else {
            self.nodes[tree as usize].peak
        }
    }

    fn key(&self, node: u32) -> Key {
        (self.nodes[node as usize].at, node)
    }

    /// Puts a node into the tree; returns the new root.
    fn with(&mut self, tree: u32, node: u32) -> u32 {
        if tree == NONE || self.nodes[node as usize].rank > self.nodes[tree as usize].rank {
            let (left, right) = self.split(tree, self.key(node));
            return self.joined(node, left, right);
        }
        let Node { left, right, .. } = self.nodes[tree as usize];
        if self.key(node) < self.key(tree) {
            let left = self.with(left, node);
            self.joined(tree, left, right)
        } else {
            let right = self.with(right, node);
            self.joined(tree, left, right)
        }
    }

    /// Removes the node of this key, which must be in the tree; returns the new root.
    fn without(&mut self, tree: u32, key: Key) -> u32 {
        let Node { left, right, .. } = self.nodes[tree as usize];
        match key.cmp(&self.key(tree)) {
            std::cmp::Ordering::Less => {
                let left = self.without(left, key);
                self.joined(tree, left, right)
            }
            std::cmp::Ordering::Equal => self.merge(left, right),
            std::cmp::Ordering::Greater => {
                let right = self.without(right, key);
                self.joined(tree, left, right)
            }
        }
    }

    /// Splits a tree into the nodes before `key` and the others.
    fn split(&mut self, tree: u32, key: Key) -> (u32, u32) {
        if tree == NONE {
            return (NONE, NONE);
        }
        let Node { left, right, .. } = self.nodes[tree as usize];
        if self.key(tree) < key {
            let (before, after) = self.split(right, key);
            (self.joined(tree, left, before), after)
        } else {
            let (before, after) = self.split(left, key);
            (before, self.joined(tree, after, right))
        }
    }

    /// Merges two trees; all keys of the first must be less than all keys of the second.
    fn merge(&mut self, first: u32, second: u32) -> u32 {
        if first == NONE || second == NONE {
            return first.min(second);
        }
        let (a, b) = (self.nodes[first as usize], self.nodes[second as usize]);
        if a.rank > b.rank {
            let right = self.merge(a.right, second);
            self.joined(first, a.left, right)
        } else {
            let left = self.merge(first, b.left);
            self.joined(second, left, b.right)
        }
    }

    /// Makes the node the root of two subtrees, and computes its sums.
    fn joined(&mut self, node: u32, left: u32, right: u32) -> u32 {
        let through = self.sum(left) + self.step(node);
        let sum = through + self.sum(right);
        let peak = self.peak(left).max(through).max(through + self.peak(right));
        let root = &mut self.nodes[node as usize];
        (root.left, root.right, root.sum, root.peak) = (left, right, sum, peak);
        node
    }
}

/// A pseudo-random rank: the finaliser of MurmurHash3 (Appleby, 2011), a bijection, so no two nodes rank alike.
fn rank(node: u32) -> u32 {
    let mut rank = node.wrapping_add(0x9E37_79B9);
    rank = (rank ^ (rank >> 16)).wrapping_mul(0x85EB_CA6B);
    rank = (rank ^ (rank >> 13)).wrapping_mul(0xC2B2_AE35);
    rank ^ (rank >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SENSORS: usize = 12;
    const HORIZON: u64 = 40;

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
            ops in prop::collection::vec((0..SENSORS, gap(), 0..HORIZON, 1..HORIZON), 1..200)
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

    /// Nodes on the longest way down.
    fn height(gaps: &Gaps, tree: u32) -> u32 {
        if tree == NONE {
            return 0;
        }
        let node = gaps.nodes[tree as usize];
        1 + height(gaps, node.left).max(height(gaps, node.right))
    }

    #[test]
    fn the_tree_stays_low_when_gaps_come_in_order_of_time() {
        let sensors = 4096;
        let mut gaps = Gaps::new(sensors);
        for sensor in 0..sensors {
            let from = Time(10 * sensor as u64);
            gaps.set(
                sensor,
                Some(Gap {
                    from,
                    to: Time(from.0 + 15),
                }),
            );
        }
        // 13 levels hold 8192 nodes at best; a random tree has about 2.5 times as many (Devroye, 1986: 4.311 ln n at
        // most).
        let height = height(&gaps, gaps.root);
        assert!(height <= 39, "{height}");
        assert_eq!(
            gaps.deepest(Gap {
                from: Time::ZERO,
                to: Time::MAX
            }),
            2
        );
    }
}
