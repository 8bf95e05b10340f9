//! Bandwidth partitions among cores whose ways are given.

use crate::pool::CORES_MAX;

/// Most partitions of a machine.
pub(super) const PARTITIONS_MAX: usize = 64;

/// What each number of partitions is worth to a core, from 0; negative infinity where it must not be.
pub(super) type Worth = [f64; PARTITIONS_MAX + 1];

/// The partitions of each core that are worth most in sum, of `partitions` in all; none if no way of sharing them out is allowed.
///
/// By dynamic programming over the cores: best_n(p) = max over q <= p of best_(n-1)(p - q) + worth_n(q).
pub(super) fn share_out(worth: &[Worth], partitions: u8) -> Option<(f64, Vec<u8>)> {
    let all = usize::from(partitions);
    let mut best = [f64::NEG_INFINITY; PARTITIONS_MAX + 1];
    best[0] = 0.0;
    let mut taken = [[0_u8; PARTITIONS_MAX + 1]; CORES_MAX];
    for (worth, taken) in worth.iter().zip(&mut taken) {
        let mut next = [f64::NEG_INFINITY; PARTITIONS_MAX + 1];
        for have in 0..=all {
            for take in 0..=have {
                let sum = best[have - take] + worth[take];
                if sum > next[have] {
                    (next[have], taken[have]) = (sum, take as u8);
                }
            }
        }
        best = next;
    }
    if best[all] == f64::NEG_INFINITY {
        return None;
    }
    let mut left = all;
    let mut shares = vec![0; worth.len()];
    for (share, taken) in shares.iter_mut().zip(&taken).rev() {
        *share = taken[left];
        left -= usize::from(*share);
    }
    Some((best[all], shares))
}
