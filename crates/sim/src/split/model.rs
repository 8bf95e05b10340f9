//! What is split, and what a split costs.

use punctual_allocation::{Grid, Share, WayMask};
use punctual_units::Nanos;

/// What the cores of a machine split among them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitModel {
    /// What can be split.
    pub grid: Grid,
    /// Cores, at least 1.
    pub cores: usize,
    /// Size of one cache way (bytes).
    pub way_bytes: f64,
    /// Bandwidth of one partition (bytes per second).
    pub partition_bandwidth: f64,
    /// What ways cost that change hands.
    pub refill: Refill,
    /// The least time between two decisions.
    pub decision_gap: Nanos,
}

/// What ways cost that change hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refill {
    /// Nothing.
    Free,
    /// The core that gained them stands still until they are filled.
    Charged,
}

/// What one core has: `share.ways` ways from way `first` on, and `share.partitions` bandwidth partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The number of the lowest way.
    pub first: u8,
    /// How much.
    pub share: Share,
}

impl Slice {
    /// These ways, with so many partitions.
    pub(crate) fn of(ways: WayMask, partitions: u8) -> Slice {
        Slice {
            first: ways.first(),
            share: Share {
                ways: ways.count(),
                partitions,
            },
        }
    }

    /// The ways as a bit mask.
    pub fn mask(self) -> u64 {
        (u64::MAX >> (64 - u32::from(self.share.ways))) << self.first
    }
}

impl SplitModel {
    /// The fifth paper's machine: four cores, 20 ways of 2 MiB, 20 partitions of 72 MB/s, a decision per millisecond at
    /// most.
    pub const PAPER: SplitModel = SplitModel {
        grid: Grid::PAPER,
        cores: 4,
        way_bytes: 2.0 * 1024.0 * 1024.0,
        partition_bandwidth: 72e6,
        refill: Refill::Charged,
        decision_gap: Nanos::from_millis(1),
    };

    /// Bytes per second of `partitions`.
    pub(super) fn bandwidth(&self, partitions: u8) -> f64 {
        f64::from(partitions) * self.partition_bandwidth
    }

    /// Whether `slices` hand out no more than there is, and no way twice.
    pub(super) fn holds(&self, slices: &[Option<Slice>]) -> bool {
        let mut taken = 0u64;
        let mut partitions = 0u32;
        let fits = |slice: &Slice| {
            let ends = u32::from(slice.first) + u32::from(slice.share.ways);
            let apart = self.grid.holds(slice.share) && ends <= u32::from(self.grid.ways) && taken & slice.mask() == 0;
            taken |= slice.mask();
            partitions += u32::from(slice.share.partitions);
            apart
        };
        slices.len() == self.cores && slices.iter().flatten().all(fits) && partitions <= u32::from(self.grid.partitions)
    }
}
