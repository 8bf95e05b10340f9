//! The best split that never changes.
//!
//! **Best** is the least largest utilisation of a core (that decides which task sets are schedulable, and how much room
//! is left), and among those the least sum of utilisations. Exhaustive in effect: dynamic programming over cores visits
//! every split, and is checked against plain enumeration.

use crate::grid::Share;
use crate::policy::loads::Loads;
use crate::policy::optimum::{Splitter, plus, worst};
use crate::pool::{PerCore, Pool};

/// The best static split of `loads`.
pub fn static_best(loads: &Loads, pool: Pool) -> PerCore<Share> {
    let splitter = Splitter::new(pool, loads.cores());
    let largest = splitter.least(|core, share| loads.at(core, share), worst);
    let bound = loads.largest(&largest);
    let within = |core: usize, share: Share| {
        let load = loads.at(core, share);
        if load <= bound { load } else { f64::INFINITY }
    };
    splitter.least(within, plus)
}
