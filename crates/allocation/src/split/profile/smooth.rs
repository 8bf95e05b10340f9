//! Rates in which more of a resource is never slower.
//!
//! **Problem.** Measured rates are noisy: one of the fifth paper's programs gets slower by more than 1 % in 212 of the
//! 760 steps by one partition. An allocator that believes them leaves partitions unused for no reason.
//!
//! **Method.** Two, for different questions. [`Smoothing::Best`] is what a core can reach that may leave partitions
//! unused: the best rate among the shares within its own. But the best of many noisy figures is too good. And where
//! phases do not begin at the same progress under every share, it is the best of different parts of the program. Whole
//! runs then come out faster than any recorded one; [`super::Accuracy::faster_than_recorded`] says by how much.
//! [`Smoothing::Nearest`] is the monotone table with the least squared distance to the logarithms of the rates
//! (isotonic regression over both resources), which averages noise instead of choosing from it. It is found by
//! Dykstra's alternating projections (An algorithm for restricted least squares regression, JASA 78, 1983) on the
//! tables that grow with ways and on those that grow with partitions; either projection pools neighbours that are out
//! of order.

use serde::{Deserialize, Serialize};

use crate::grid::{Grid, Share};
use crate::table::RateTable;

/// Sweeps of the alternating projections, at most.
const SWEEPS_MAX: usize = 500;
/// A sweep that moves no logarithm further than this ends them: rates are kept to seven digits.
const STILL: f64 = 1e-8;

/// Treatment of rates that fall where they should grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Smoothing {
    /// Nothing: rates as they were recorded.
    #[default]
    AsRecorded,
    /// The best rate among the shares within each ([`RateTable::monotone`]).
    Best,
    /// The nearest table without falls.
    Nearest,
}

impl Smoothing {
    /// Applies the smoothing to `rates`.
    #[must_use]
    pub fn of(self, rates: RateTable) -> RateTable {
        match self {
            Smoothing::AsRecorded => rates,
            Smoothing::Best => rates.monotone(),
            Smoothing::Nearest => nearest(&rates),
        }
    }
}

/// The table without falls whose logarithms are nearest to those of `rates`.
fn nearest(rates: &RateTable) -> RateTable {
    let grid = rates.grid();
    let mut table: Vec<f64> = rates.rates().iter().map(|rate| f64::from(*rate).ln()).collect();
    // Corrections of each projection, which the next sweep adds back before it projects anew.
    let mut by_ways = vec![0.0; table.len()];
    let mut by_partitions = vec![0.0; table.len()];
    for _ in 0..SWEEPS_MAX {
        let before = table.clone();
        project(&mut table, &mut by_ways, &along_ways(grid));
        project(&mut table, &mut by_partitions, &along_partitions(grid));
        let moved = table.iter().zip(&before).map(|(now, before)| (now - before).abs());
        if moved.fold(0.0, f64::max) < STILL {
            break;
        }
    }
    // Falls that the last sweep left are below single precision, or the bound was reached.
    RateTable::new(grid, |share| table[grid.index(share)].exp() as f32).monotone()
}

/// Indices of the rates that differ in ways only, one list for each number of partitions.
fn along_ways(grid: Grid) -> Vec<Vec<usize>> {
    let line = |partitions| {
        (1..=grid.ways)
            .map(|ways| grid.index(Share { ways, partitions }))
            .collect()
    };
    (1..=grid.partitions).map(line).collect()
}

/// Indices of the rates that differ in partitions only.
fn along_partitions(grid: Grid) -> Vec<Vec<usize>> {
    let line = |ways| {
        (1..=grid.partitions)
            .map(|partitions| grid.index(Share { ways, partitions }))
            .collect()
    };
    (1..=grid.ways).map(line).collect()
}

/// Dykstra's step: adds what was taken, makes every line grow, and keeps what that took.
fn project(table: &mut [f64], taken: &mut [f64], lines: &[Vec<usize>]) {
    for line in lines {
        let given: Vec<f64> = line.iter().map(|place| table[*place] + taken[*place]).collect();
        for ((place, given), level) in line.iter().zip(&given).zip(growing(&given)) {
            taken[*place] = given - level;
            table[*place] = level;
        }
    }
}

/// The nearest sequence that does not fall: neighbours that are out of order share their mean.
fn growing(values: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::with_capacity(values.len());
    for value in values {
        let (mut sum, mut count) = (*value, 1);
        while let Some((before, many)) = pools.last().copied() {
            if before * count as f64 <= sum * many as f64 {
                break;
            }
            sum += before;
            count += many;
            pools.pop();
        }
        pools.push((sum, count));
    }
    let level = |(sum, count): (f64, usize)| std::iter::repeat_n(sum / count as f64, count);
    pools.into_iter().flat_map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grows(table: &RateTable) -> bool {
        let grid = table.grid();
        grid.shares().all(|share| {
            let more_ways = Share {
                ways: share.ways + 1,
                ..share
            };
            let more_partitions = Share {
                partitions: share.partitions + 1,
                ..share
            };
            [more_ways, more_partitions]
                .into_iter()
                .all(|more| !grid.holds(more) || table.rate(more) >= table.rate(share))
        })
    }

    fn distance(a: &RateTable, b: &RateTable) -> f64 {
        let apart = |(a, b): (&f32, &f32)| (f64::from(*a).ln() - f64::from(*b).ln()).powi(2);
        a.rates().iter().zip(b.rates()).map(apart).sum()
    }

    fn table(grid: Grid, logarithms: &[f64]) -> RateTable {
        RateTable::new(grid, |share| logarithms[grid.index(share)].exp() as f32)
    }

    const GRID: Grid = Grid { ways: 4, partitions: 3 };

    #[test]
    fn neighbours_out_of_order_share_their_mean() {
        assert_eq!(growing(&[1.0, 4.0, 2.0, 3.0, 7.0]), [1.0, 3.0, 3.0, 3.0, 7.0]);
        assert_eq!(growing(&[3.0, 2.0, 1.0]), [2.0, 2.0, 2.0]);
        assert_eq!(growing(&[]), [] as [f64; 0]);
    }

    proptest! {
        #[test]
        fn a_smoothed_table_grows_and_a_growing_one_stays(logarithms in prop::collection::vec(-2.0..2.0f64, 12)) {
            let rough = table(GRID, &logarithms);
            let smooth = Smoothing::Nearest.of(rough.clone());
            prop_assert!(grows(&smooth));
            let again = Smoothing::Nearest.of(smooth.clone());
            prop_assert!(distance(&again, &smooth) < 1e-10);
            prop_assert!(distance(&rough, &smooth) <= distance(&rough, &rough.monotone()) + 1e-6);
        }

        /// The nearest point of a convex set sees every other point of the set at an obtuse angle.
        #[test]
        fn no_growing_table_is_nearer(
            logarithms in prop::collection::vec(-2.0..2.0f64, 12),
            other in prop::collection::vec(-2.0..2.0f64, 12),
        ) {
            let rough = table(GRID, &logarithms);
            let smooth = Smoothing::Nearest.of(rough.clone());
            let other = table(GRID, &other).monotone();
            prop_assert!(distance(&rough, &smooth) <= distance(&rough, &other) + 1e-6);
        }
    }
}
