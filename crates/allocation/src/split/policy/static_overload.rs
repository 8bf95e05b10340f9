//! The split that never changes and leaves the least work undone.
//!
//! Between [`static_best`](super::static_best), which spreads what is missing, and
//! [`static_fewest`](super::static_fewest), which gives cores up: the least sum over the cores of the utilisation
//! beyond 1, and among those the least sum of utilisations. Exhaustive in effect, as there.

use crate::grid::Share;
use crate::policy::loads::Loads;
use crate::policy::optimum::{Splitter, plus};
use crate::pool::{PerCore, Pool};

/// Cost of a unit of overload: more than all utilisations that a task set can have together.
const OVERLOAD: f64 = 1e6;

/// The static split of `loads` with the least total overload.
pub fn static_overload(loads: &Loads, pool: Pool) -> PerCore<Share> {
    let cost = |core: usize, share: Share| {
        let load = loads.at(core, share);
        (load - 1.0).max(0.0) * OVERLOAD + load
    };
    Splitter::new(pool, loads.cores()).least(cost, plus)
}
