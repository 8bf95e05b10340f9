//! Rates of one phase as whole numbers, which decisions compare, and their running sums.

use crate::grid::{Grid, Share};
use crate::policy::surface::View;
use crate::table::RateTable;

/// Levels of a rate: 18 bits. A table's sum over the largest grid (64 by 64), the weighted sum over 16 cores, and the
/// sum of two with the number of a cell beside it ([`crate::policy::Exact`]) each fit into 31 bits.
pub const LEVELS: i32 = (1 << 18) - 1;

/// Rates of one phase in whole levels, with their running sums.
#[derive(Clone, Debug)]
pub struct Levels {
    grid: Grid,
    /// In the order of [`Grid::index`].
    levels: Box<[i32]>,
    /// `sums[c * (B + 1) + b]`: the sum over all shares with at most c ways and at most b partitions; 0 for c or b of
    /// 0.
    sums: Box<[i32]>,
}

impl Levels {
    /// `rates` in levels of `whole` (instructions per second).
    pub(crate) fn new(rates: &RateTable, whole: f64) -> Levels {
        let grid = rates.grid();
        let level = |&rate: &f32| (f64::from(rate) / whole * f64::from(LEVELS)).round() as i32;
        let levels: Box<[i32]> = rates.rates().iter().map(level).collect();
        let width = usize::from(grid.partitions) + 1;
        let mut sums = vec![0; (usize::from(grid.ways) + 1) * width];
        for (row, of_ways) in levels.chunks(width - 1).enumerate() {
            let mut along = 0;
            for (column, level) in of_ways.iter().enumerate() {
                along += level;
                sums[(row + 1) * width + column + 1] = sums[row * width + column + 1] + along;
            }
        }
        Levels {
            grid,
            levels,
            sums: sums.into(),
        }
    }

    /// Surface of the levels beyond `least`.
    pub(crate) fn beyond(&self, least: Share) -> View<'_> {
        View::beyond(&self.levels, self.grid, least)
    }

    /// The least part of `share` with the same level, not below `least`: fewer ways first, then fewer partitions.
    pub(crate) fn trimmed(&self, mut share: Share, least: Share) -> Share {
        let level = self.at(share);
        let at = |ways, partitions| self.at(Share { ways, partitions });
        while share.ways > least.ways && at(share.ways - 1, share.partitions) == level {
            share.ways -= 1;
        }
        while share.partitions > least.partitions && at(share.ways, share.partitions - 1) == level {
            share.partitions -= 1;
        }
        share
    }

    /// The level with `share`.
    pub fn at(&self, share: Share) -> i32 {
        self.levels[self.grid.index(share)]
    }

    /// The sum of all levels from `from` up to `ways` and `partitions` more, both included.
    pub fn sum(&self, from: Share, ways: usize, partitions: usize) -> i32 {
        let width = usize::from(self.grid.partitions) + 1;
        let (top, left) = (usize::from(from.ways) - 1, usize::from(from.partitions) - 1);
        let (bottom, right) = (top + ways + 1, left + partitions + 1);
        let sums = |row: usize, column: usize| self.sums[row * width + column];
        sums(bottom, right) - sums(top, right) - sums(bottom, left) + sums(top, left)
    }
}
