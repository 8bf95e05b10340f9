//! Parameters of a split and of its changes.

use punctual_allocation::{Grid, Share, WayMask};
use punctual_units::Nanos;

/// Resources that the cores of a machine split among them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitModel {
    /// Numbers of ways and bandwidth partitions.
    pub grid: Grid,
    /// Number of cores, at least 1.
    pub cores: usize,
    /// Size of one cache way, in bytes.
    pub way_bytes: f64,
    /// Bandwidth of one partition, in bytes per second.
    pub partition_bandwidth: f64,
    /// Cost of filling ways that a core gains.
    pub refill: Refill,
    /// The least time between two decisions.
    pub decision_gap: Nanos,
}

/// Cost of filling ways that a core gains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refill {
    /// Gained ways are filled at once.
    Free,
    /// The core stands still until its gained ways are filled.
    Charged,
}

/// Share of one core: `share.ways` ways from way `first` on, and `share.partitions` bandwidth partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Number of the lowest way.
    pub first: u8,
    /// Numbers of ways and partitions.
    pub share: Share,
}

impl Slice {
    /// Makes the slice of these ways, with `partitions` partitions.
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
    /// The fifth paper's machine: four cores, 20 ways of 2 MiB, 20 partitions of 72 MB/s, at most one decision per
    /// millisecond.
    pub const PAPER: SplitModel = SplitModel {
        grid: Grid::PAPER,
        cores: 4,
        way_bytes: 2.0 * 1024.0 * 1024.0,
        partition_bandwidth: 72e6,
        refill: Refill::Charged,
        decision_gap: Nanos::from_millis(1),
    };

    /// Bandwidth of `partitions` partitions, in bytes per second.
    pub(super) fn bandwidth(&self, partitions: u8) -> f64 {
        f64::from(partitions) * self.partition_bandwidth
    }

    /// Whether `slices` stay within the resources, and give no way to two cores.
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
