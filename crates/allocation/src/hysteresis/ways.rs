//! Ways among cores in a row, with what it costs to fill those that change hands.

use crate::masks::WayMask;
use crate::pool::CORES_MAX;

/// Most ways of a cache.
pub(super) const WAYS_MAX: usize = 64;

/// What one core makes of ways.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Seconds saved with each number of ways, against any reference.
    pub saved: [f64; WAYS_MAX + 1],
    /// Seconds lost against the base share with each number of ways, until it can be had back.
    pub risk: [f64; WAYS_MAX + 1],
    /// Seconds to fill one way.
    pub fill: f64,
    /// Seconds that it can spare.
    pub credit: f64,
    /// What it has.
    pub before: WayMask,
}

/// The masks, side by side over all `ways`, of the largest sum of saved less filling seconds, and that sum.
pub(super) fn place(claims: &[Claim], ways: u8) -> Option<(f64, Vec<WayMask>)> {
    let all = usize::from(ways);
    let mut best = [f64::NEG_INFINITY; WAYS_MAX + 1];
    best[0] = 0.0;
    let mut from = [[0_u8; WAYS_MAX + 1]; CORES_MAX];
    for (number, (claim, from)) in claims.iter().zip(&mut from).enumerate() {
        let mut next = [f64::NEG_INFINITY; WAYS_MAX + 1];
        let last = number + 1 == claims.len();
        let first = usize::from(claim.before.first());
        let end = first + usize::from(claim.before.count());
        for begin in 0..all {
            if best[begin] == f64::NEG_INFINITY {
                continue;
            }
            for stop in begin + 1..=all {
                if last && stop != all {
                    continue;
                }
                let width = stop - begin;
                let kept = stop.min(end).saturating_sub(begin.max(first));
                let filling = (width - kept) as f64 * claim.fill;
                if filling + claim.risk[width] > claim.credit && !(filling == 0.0 && claim.risk[width] <= 0.0) {
                    continue;
                }
                let sum = best[begin] + claim.saved[width] - filling;
                if sum > next[stop] {
                    (next[stop], from[stop]) = (sum, begin as u8);
                }
            }
        }
        best = next;
    }
    if best[all] == f64::NEG_INFINITY {
        return None;
    }
    let mut masks = vec![WayMask::new(0, 1); claims.len()];
    let mut stop = all;
    for (mask, from) in masks.iter_mut().zip(&from).rev() {
        let begin = usize::from(from[stop]);
        *mask = WayMask::new(begin as u8, (stop - begin) as u8);
        stop = begin;
    }
    Some((best[all], masks))
}
