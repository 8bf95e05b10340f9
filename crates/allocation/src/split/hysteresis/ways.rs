//! Ways among cores in a row, with what it costs to fill those that change hands.

use super::account::LossLimits;
use crate::masks::WayMask;
use crate::pool::{CORES_MAX, PerCore};

/// Most ways of a cache.
pub(super) const WAYS_MAX: usize = 64;

/// Gain of one core by each number of ways, and its limits.
#[derive(Clone, Debug)]
pub(super) struct WayGains {
    /// Seconds saved with each number of ways, against any reference.
    pub saved: [f64; WAYS_MAX + 1],
    /// Seconds that each number of ways loses against the base; infinite: not allowed.
    pub loses: [f64; WAYS_MAX + 1],
    /// Seconds to fill one way.
    pub fill: f64,
    /// Seconds to fill one way under the base share.
    pub back: f64,
    /// Seconds to fill the bytes that are cold now, under the base share.
    pub cold: f64,
    pub limits: LossLimits,
    /// Ways before the decision.
    pub before: WayMask,
    /// Ways under the base split.
    pub own: WayMask,
}

impl WayGains {
    /// A claim that saves nothing and is not allowed any number of ways yet.
    pub fn new(limits: LossLimits, before: WayMask, own: WayMask) -> WayGains {
        WayGains {
            saved: [0.0; WAYS_MAX + 1],
            loses: [f64::INFINITY; WAYS_MAX + 1],
            fill: 0.0,
            back: 0.0,
            cold: 0.0,
            limits,
            before,
            own,
        }
    }

    /// Seconds that the ways from `begin` up to `stop` save, filling counted; `None` if the core cannot afford them.
    fn worth(&self, begin: usize, stop: usize) -> Option<f64> {
        let mask = WayMask::new(begin as u8, (stop - begin) as u8);
        let (gained, missing) = (f64::from(mask.gained(self.before)), f64::from(self.own.gained(mask)));
        let width = stop - begin;
        let debt = self.cold + (gained + missing) * self.back;
        self.limits
            .allow(debt, self.loses[width], mask.count() >= self.own.count())
            .then_some(self.saved[width] - gained * self.fill)
    }
}

/// The masks, side by side over all `ways`, that save most in sum; `None` if the cores can afford no placement.
///
/// By dynamic programming over the boundaries between neighbours: at most cores x ways^2 / 2 steps.
pub(super) fn place(claims: &[WayGains], ways: u8) -> Option<PerCore<WayMask>> {
    let all = usize::from(ways);
    let mut best = [f64::NEG_INFINITY; WAYS_MAX + 1];
    best[0] = 0.0;
    let mut from = [[0_u8; WAYS_MAX + 1]; CORES_MAX];
    for (number, (claim, from)) in claims.iter().zip(&mut from).enumerate() {
        let mut next = [f64::NEG_INFINITY; WAYS_MAX + 1];
        let stops = if number + 1 == claims.len() { all } else { 1 };
        for begin in (0..all).filter(|begin| best[*begin] > f64::NEG_INFINITY) {
            for stop in stops.max(begin + 1)..=all {
                let Some(worth) = claim.worth(begin, stop) else {
                    continue;
                };
                if best[begin] + worth > next[stop] {
                    (next[stop], from[stop]) = (best[begin] + worth, begin as u8);
                }
            }
        }
        best = next;
    }
    if best[all] == f64::NEG_INFINITY {
        return None;
    }
    let mut masks = PerCore::from_elem(WayMask::new(0, 1), claims.len());
    let mut stop = all;
    for (mask, from) in masks.iter_mut().zip(&from).rev() {
        let begin = usize::from(from[stop]);
        *mask = WayMask::new(begin as u8, (stop - begin) as u8);
        stop = begin;
    }
    Some(masks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::masks::side_by_side;

    const WAYS: u8 = 8;

    fn claims(saved: &[Vec<f64>], fill: f64, before: &[u8]) -> Vec<WayGains> {
        let claim = |(saved, before): (&Vec<f64>, WayMask)| {
            let limits = LossLimits {
                lead: 1e9,
                debt: 0.0,
                gap: 1e9,
            };
            let mut claim = WayGains::new(limits, before, before);
            claim.fill = fill;
            claim.back = fill;
            claim.saved[1..=saved.len()].copy_from_slice(saved);
            claim.loses[1..=saved.len()].fill(0.0);
            claim
        };
        saved.iter().zip(side_by_side(before)).map(claim).collect()
    }

    fn sum(claims: &[WayGains], masks: &[WayMask]) -> f64 {
        let worth = |(claim, mask): (&WayGains, &WayMask)| {
            claim.saved[usize::from(mask.count())] - f64::from(mask.gained(claim.before)) * claim.fill
        };
        claims.iter().zip(masks).map(worth).sum()
    }

    proptest! {
        #[test]
        fn the_best_placement_is_that_of_brute_force(
            saved in prop::collection::vec(prop::collection::vec(0.0f64..1.0, usize::from(WAYS)), 3),
            fill in 0.0f64..0.3,
            before in (1u8..4, 1u8..4),
        ) {
            let claims = claims(&saved, fill, &[before.0, before.1, WAYS - before.0 - before.1]);
            let masks = place(&claims, WAYS).unwrap();
            let mut most = f64::NEG_INFINITY;
            for first in 1..WAYS - 1 {
                for second in 1..WAYS - first {
                    most = most.max(sum(&claims, &side_by_side(&[first, second, WAYS - first - second])));
                }
            }
            prop_assert!((sum(&claims, &masks) - most).abs() < 1e-9);
        }
    }

    #[test]
    fn a_core_that_cannot_lose_keeps_what_it_has() {
        let moved = |change: fn(&mut WayGains)| {
            let mut claims = claims(&[vec![0.0; 8], (0..8).map(f64::from).collect()], 0.01, &[4, 4]);
            change(&mut claims[0]);
            place(&claims, WAYS).unwrap()
        };
        assert_eq!(moved(|_| ()), side_by_side(&[1, 7]));
        // Three ways to have back are 0.03 s, of which it may owe two's.
        assert_eq!(moved(|claim| claim.limits.gap = 0.025), side_by_side(&[2, 6]));
        // One that is ahead by 0.515 s can lose half a second and owe one way.
        let half = |claim: &mut WayGains| {
            claim.limits.lead = 0.515;
            claim.loses[..4].fill(0.5);
        };
        assert_eq!(moved(half), side_by_side(&[3, 5]));
        assert_eq!(moved(|claim| claim.limits.lead = 0.0), side_by_side(&[4, 4]));
    }

    #[test]
    fn what_costs_more_than_it_saves_does_not_move() {
        let rising: Vec<f64> = (0..8).map(|ways| f64::from(ways) * 0.1).collect();
        let claims = claims(&[vec![0.0; 8], rising], 0.11, &[4, 4]);
        assert_eq!(place(&claims, WAYS), Some(side_by_side(&[4, 4])));
    }
}
