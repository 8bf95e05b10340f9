//! Which ways a core may fill: contiguous masks, placed so that boundaries move little.
//!
//! **Problem.** A policy says how many ways a core has; the hardware wants to know which, and on most processors they
//! must lie side by side (Intel's manual, volume 3B, 17.19.2). A way that changes hands is cold for the core that gains
//! it.
//!
//! **Method.** Cores lie in their order (fifth paper, section VII), so a split is a row of boundaries x_1 <= x_2 <= ..
//! between neighbours, with x_(i+1) - x_i at least what core i needs. If a boundary moves by k, at most k ways change
//! hands over it. [`place`] finds the boundaries that move least in sum, by dynamic programming over their positions: a
//! shortest path of cores times ways steps. Ways that no core needs stay with the core that had them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::grid::Grid;
use crate::pool::{CORES_MAX, PerCore};

/// A contiguous set of cache ways; bit *i* is way *i*.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WayMask(u64);

impl WayMask {
    /// `count` ways from `first` on; way 63 is the last that there can be.
    ///
    /// # Panics
    /// Without ways, or past way 63.
    pub const fn new(first: u8, count: u8) -> WayMask {
        assert!(count > 0 && first as u32 + count as u32 <= 64, "no such ways");
        WayMask((u64::MAX >> (64 - count as u32)) << first)
    }

    /// The ways whose bits are set; `None` where there are none, or they do not lie side by side.
    pub const fn from_bits(bits: u64) -> Option<WayMask> {
        let holes = bits != 0 && (bits >> bits.trailing_zeros()).wrapping_add(1).count_ones() > 1;
        if bits == 0 || holes { None } else { Some(WayMask(bits)) }
    }

    /// The bits, as hardware and the kernel's `schemata` want them.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Index of the lowest way.
    pub const fn first(self) -> u8 {
        self.0.trailing_zeros() as u8
    }

    /// Number of ways, at least 1.
    pub const fn count(self) -> u8 {
        self.0.count_ones() as u8
    }

    /// Number of these ways that are not in `before` and must be filled anew.
    pub const fn gained(self, before: WayMask) -> u8 {
        (self.0 & !before.0).count_ones() as u8
    }
}

impl fmt::Display for WayMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for WayMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WayMask({:#x})", self.0)
    }
}

/// The masks of cores that have `ways`, side by side from way 0.
///
/// # Panics
/// If a core has none, or all together have more than 64.
pub fn side_by_side(ways: &[u8]) -> PerCore<WayMask> {
    let mut first = 0;
    let mask = |&count: &u8| {
        let mask = WayMask::new(first, count);
        first += count;
        mask
    };
    ways.iter().map(mask).collect()
}

/// Hands out all of the grid's ways, at least `needed` to each core, so that the boundaries between cores move least in
/// sum from `before`. A core between two boundaries that move the same way gains and loses ways: where ways cost, the
/// hysteresis rule counts those that change hands.
///
/// Among placements that move equally little, boundaries lie as low as they can.
///
/// # Panics
/// In debug builds, if more is needed than there is, or there are more than [`CORES_MAX`] cores.
pub fn place(needed: &[u8], before: &[WayMask], grid: Grid) -> PerCore<WayMask> {
    let (cores, all) = (needed.len(), usize::from(grid.ways));
    debug_assert!(cores <= CORES_MAX && needed.iter().map(|need| usize::from(*need)).sum::<usize>() <= all);
    // least[x]: the least that boundaries up to this one move, if this one lies at x; u16::MAX where it cannot.
    const NEVER: u16 = u16::MAX;
    let mut least = [NEVER; 65];
    least[0] = 0;
    let mut came_from = [[0_u8; 65]; CORES_MAX];
    for core in 0..cores {
        let last = core + 1 == cores;
        let was = if last {
            all
        } else {
            usize::from(before[core + 1].first())
        };
        let need = usize::from(needed[core]);
        let (mut next, mut best, mut from) = ([NEVER; 65], NEVER, 0);
        for x in need..=all {
            if least[x - need] < best {
                (best, from) = (least[x - need], x - need);
            }
            if best < NEVER && (!last || x == all) {
                next[x] = best + x.abs_diff(was) as u16;
                came_from[core][x] = from as u8;
            }
        }
        least = next;
    }
    let mut masks = PerCore::from_elem(WayMask::new(0, 1), cores);
    let mut end = all;
    for core in (0..cores).rev() {
        let begin = usize::from(came_from[core][end]);
        masks[core] = WayMask::new(begin as u8, (end - begin) as u8);
        end = begin;
    }
    masks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GRID: Grid = Grid { ways: 8, partitions: 1 };

    /// All ways to lay `needed` side by side over all of the grid, by enumeration.
    fn placements(needed: &[u8]) -> Vec<PerCore<WayMask>> {
        fn rest(needed: &[u8], from: u8) -> Vec<Vec<u8>> {
            match needed {
                [] => Vec::new(),
                [last] if from + last <= GRID.ways => vec![vec![GRID.ways - from]],
                [_] => Vec::new(),
                [first, others @ ..] => (*first..=GRID.ways - from)
                    .flat_map(|ways| {
                        let others = rest(others, from + ways);
                        others.into_iter().map(move |others| [vec![ways], others].concat())
                    })
                    .collect(),
            }
        }
        rest(needed, 0).iter().map(|ways| side_by_side(ways)).collect()
    }

    /// By how much boundaries move.
    fn moved(masks: &[WayMask], before: &[WayMask]) -> u32 {
        let pairs = masks.iter().zip(before);
        pairs
            .map(|(now, then)| u32::from(now.first().abs_diff(then.first())))
            .sum()
    }

    proptest! {
        #[test]
        fn no_placement_moves_less(
            needed in proptest::collection::vec(1_u8..=2, 4),
            before in proptest::collection::vec(1_u8..=2, 4),
        ) {
            let before = place(&before, &side_by_side(&[2, 2, 2, 2]), GRID);
            let masks = place(&needed, &before, GRID);
            let least = placements(&needed).iter().map(|other| moved(other, &before)).min();
            prop_assert_eq!(Some(moved(&masks, &before)), least);
            prop_assert!(masks.iter().zip(&needed).all(|(mask, need)| mask.count() >= *need));
            prop_assert_eq!(masks.iter().fold(0, |all, mask| all | mask.bits()), 0xff);
            prop_assert!(masks.windows(2).all(|pair| pair[0].bits() & pair[1].bits() == 0));
        }
    }

    #[test]
    fn as_the_paper_gives_ways_to_four_cores() {
        let before = side_by_side(&[7, 6, 4, 3]);
        let masks = place(&[6, 7, 4, 3], &before, Grid::PAPER);
        assert_eq!(masks, side_by_side(&[6, 7, 4, 3]));
        let gained: Vec<u8> = masks.iter().zip(&before).map(|(now, then)| now.gained(*then)).collect();
        assert_eq!(gained, [0, 1, 0, 0]);
    }

    #[test]
    fn what_no_core_needs_stays_where_it_was() {
        let before = side_by_side(&[5, 5, 5, 5]);
        assert_eq!(place(&[3, 3, 3, 3], &before, Grid::PAPER), before);
        assert_eq!(place(&[3, 6, 3, 3], &before, Grid::PAPER)[3], before[3]);
    }

    #[test]
    fn a_mask_is_its_bits() {
        let mask = WayMask::new(4, 3);
        assert_eq!((mask.bits(), mask.first(), mask.count()), (0b111_0000, 4, 3));
        assert_eq!((mask.to_string(), WayMask::new(0, 64).bits()), ("70".into(), u64::MAX));
    }
}
