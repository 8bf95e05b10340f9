//! The rate of one phase under each share.

use serde::{Deserialize, Serialize};

use crate::grid::{Grid, Share};

/// Instructions per second for each share of a [`Grid`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateTable {
    grid: Grid,
    /// In the order of [`Grid::index`].
    rates: Box<[f32]>,
}

impl RateTable {
    /// The rate under each share, as `rate` gives it (instructions per second, positive).
    pub fn new(grid: Grid, rate: impl FnMut(Share) -> f32) -> RateTable {
        RateTable {
            grid,
            rates: grid.shares().map(rate).collect(),
        }
    }

    /// Grid of all shares.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Instructions per second with `share`.
    pub fn rate(&self, share: Share) -> f32 {
        self.rates[self.grid.index(share)]
    }

    /// All rates, in the order of [`Grid::index`].
    pub fn rates(&self) -> &[f32] {
        &self.rates
    }

    /// The least table above this one in which more of a resource is never slower: the best rate among the shares
    /// within each. A core may leave partitions unused, so it can really reach this rate.
    #[must_use]
    pub fn monotone(&self) -> RateTable {
        let mut rates = self.rates.clone();
        for share in self.grid.shares() {
            let at = self.grid.index(share);
            let fewer_ways = (share.ways > 1).then(|| at - usize::from(self.grid.partitions));
            let fewer_partitions = (share.partitions > 1).then(|| at - 1);
            for less in [fewer_ways, fewer_partitions].into_iter().flatten() {
                rates[at] = rates[at].max(rates[less]);
            }
        }
        RateTable { grid: self.grid, rates }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monotone_table_is_the_best_of_what_is_had() {
        let grid = Grid { ways: 4, partitions: 3 };
        let rough = RateTable::new(grid, |share| {
            f32::from(share.ways * 7 % 5 + share.partitions * 3 % 4 + 1)
        });
        let smooth = rough.monotone();
        for share in grid.shares() {
            let within = |other: &Share| other.ways <= share.ways && other.partitions <= share.partitions;
            let best = grid
                .shares()
                .filter(within)
                .map(|other| rough.rate(other))
                .fold(0.0, f32::max);
            assert_eq!(smooth.rate(share), best);
        }
    }
}
