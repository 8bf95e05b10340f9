//! The split that never changes and overloads the fewest cores.
//!
//! In overload, [`static_best`](super::static_best) spreads what is missing: it keeps the most loaded core as low as it
//! can, and so may leave every core a little over 1 and all of them late. For soft real-time work it is better to give
//! one core up. So **best** is here the fewest cores with a utilisation over 1, and among those the least sum of
//! utilisations. Exhaustive in effect, as there. Where no core need be overloaded, any split that overloads none is as
//! good by the first count; the sum decides.

use crate::grid::Share;
use crate::policy::loads::Loads;
use crate::policy::optimum::{Splitter, plus};
use crate::pool::{PerCore, Pool};

/// Cost of an overloaded core beyond its utilisation: more than all utilisations that a task set can have together. A
/// core has at most some dozen tasks, each of which takes at most some hundred periods with the least share.
const OVERLOADED: f64 = 1e6;

/// The static split of `loads` that overloads the fewest cores.
pub fn static_fewest(loads: &Loads, pool: Pool) -> PerCore<Share> {
    let cost = |core: usize, share: Share| {
        let load = loads.at(core, share);
        if load > 1.0 { OVERLOADED + load } else { load }
    };
    Splitter::new(pool, loads.cores()).least(cost, plus)
}
