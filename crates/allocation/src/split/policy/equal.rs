//! Every core the same.

use crate::grid::Share;
use crate::pool::{PerCore, Pool};

/// The even split among `cores` cores. A remainder goes to the first ones.
pub fn equal(pool: Pool, cores: usize) -> PerCore<Share> {
    let part = |all: u8, core: usize| (usize::from(all) / cores + usize::from(core < usize::from(all) % cores)) as u8;
    let share = |core| Share {
        ways: part(pool.grid.ways, core),
        partitions: part(pool.grid.partitions, core),
    };
    (0..cores).map(share).collect()
}
