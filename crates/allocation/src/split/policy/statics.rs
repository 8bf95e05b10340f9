//! The static splits: those that never change, each the best of all by its objectives.
//!
//! - [`Base::StaticBest`]: the least largest utilisation of a core (that decides which task sets are schedulable, and
//!   how much room is left), and among those the least sum of utilisations.
//! - [`Base::StaticFewest`]: the fewest cores with a utilisation over 1, and among those the least sum. In overload,
//!   `StaticBest` spreads what is missing, and so may leave every core a little over 1 and all of them late. For soft
//!   real-time work it is better to give one core up. Where no core need be overloaded, the sum decides.
//! - [`Base::StaticOverload`], between both: the least sum over the cores of the utilisation beyond 1, and among those
//!   the least sum of utilisations.
//!
//! Exhaustive in effect: dynamic programming over cores ([`super::optimum`]) visits every split, and is checked against
//! plain enumeration.

use crate::allocator::CoreShares;
use crate::policy::optimum::{Objectives, SplitSearch, plus, worst};
use crate::policy::{Loads, equal};
use crate::pool::Pool;
use crate::settings::Base;

/// Cost of an overloaded core, or of a unit of overload: more than all utilisations that a task set can have together.
/// A core has at most some dozen tasks, each of which takes at most some hundred periods with the least share.
const OVERLOADED: f64 = 1e6;

const BEST: Objectives = &[
    (|load, _| load, worst),
    (|load, bound| if load <= bound { load } else { f64::INFINITY }, plus),
];
const FEWEST: Objectives = &[(|load, _| if load > 1.0 { OVERLOADED + load } else { load }, plus)];
const OVERLOAD: Objectives = &[(|load, _| (load - 1.0).max(0.0) * OVERLOADED + load, plus)];

impl Base {
    /// Objectives of the split, the first before all others; `None`: it is the even one.
    pub(crate) fn objectives(self) -> Option<Objectives> {
        match self {
            Base::Even => None,
            Base::StaticBest => Some(BEST),
            Base::StaticOverload => Some(OVERLOAD),
            Base::StaticFewest | Base::Ahead | Base::AheadStatic => Some(FEWEST),
        }
    }

    /// The split of `loads`; where it looks ahead, the one to start from before anything is known.
    pub fn split(self, loads: &Loads, pool: Pool) -> CoreShares {
        let search = |objectives| SplitSearch::new(pool, loads.cores(), objectives).advance(loads, &mut { u64::MAX });
        let found = self.objectives().and_then(search);
        CoreShares::side_by_side(found.unwrap_or_else(|| equal(pool, loads.cores())))
    }
}
