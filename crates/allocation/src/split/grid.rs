//! Resources that a machine can split, and the share of one core.

use serde::{Deserialize, Serialize};

/// Most ways, and most bandwidth partitions, of a machine: a mask of ways has 64 bits, and tables of decisions as many
/// entries.
pub const PARTS_MAX: u8 = 64;

/// Resources that a machine can split among its cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grid {
    /// Ways of the last-level cache, 1..=[`PARTS_MAX`].
    pub ways: u8,
    /// Partitions of memory bandwidth, 1..=[`PARTS_MAX`].
    pub partitions: u8,
}

/// Part of the cache and of the memory's bandwidth that one core has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Share {
    /// Cache ways, at least 1.
    pub ways: u8,
    /// Bandwidth partitions, at least 1.
    pub partitions: u8,
}

impl Grid {
    /// The grid of the fifth paper's machine: 20 ways, 20 partitions.
    pub const PAPER: Grid = Grid {
        ways: 20,
        partitions: 20,
    };

    /// Number of different shares that one core can have.
    pub const fn len(self) -> usize {
        self.ways as usize * self.partitions as usize
    }

    /// Whether there is nothing to split.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether ways and partitions are both in 1..=[`PARTS_MAX`].
    pub fn is_sound(self) -> bool {
        let sound = 1..=PARTS_MAX;
        sound.contains(&self.ways) && sound.contains(&self.partitions)
    }

    /// Share of a core that has the whole machine.
    pub const fn all(self) -> Share {
        Share {
            ways: self.ways,
            partitions: self.partitions,
        }
    }

    /// Index of `share` in a table, by ways and then by partitions.
    ///
    /// # Panics
    /// In debug builds, if `share` is not of this grid.
    pub fn index(self, share: Share) -> usize {
        debug_assert!(self.holds(share), "{share:?} is not of {self:?}");
        (share.ways as usize - 1) * self.partitions as usize + share.partitions as usize - 1
    }

    /// Whether one core can have `share` here.
    pub fn holds(self, share: Share) -> bool {
        (1..=self.ways).contains(&share.ways) && (1..=self.partitions).contains(&share.partitions)
    }

    /// Every share of one core, in the order of [`Grid::index`].
    pub fn shares(self) -> impl Iterator<Item = Share> {
        (1..=self.ways).flat_map(move |ways| (1..=self.partitions).map(move |partitions| Share { ways, partitions }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbered_in_their_order() {
        let grid = Grid { ways: 3, partitions: 5 };
        let numbers: Vec<usize> = grid.shares().map(|share| grid.index(share)).collect();
        assert_eq!(numbers, (0..grid.len()).collect::<Vec<_>>());
    }
}
