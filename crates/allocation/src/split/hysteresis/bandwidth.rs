//! Bandwidth partitions among cores whose ways are given.

use crate::pool::{CORES_MAX, PerCore};

/// Most partitions of a machine.
pub(super) const PARTITIONS_MAX: usize = 64;

/// Value of each number of partitions to a core, from 0; negative infinity: not allowed.
pub(super) type Worth = [f64; PARTITIONS_MAX + 1];

/// Worth of a core that is not allowed any number of partitions yet.
pub(super) const NOTHING: Worth = [f64::NEG_INFINITY; PARTITIONS_MAX + 1];

/// Splits `partitions` among the cores so that the sum of their worths is largest; `None` if no split is allowed.
///
/// By dynamic programming over the cores: best_n(p) = max over q <= p of best_(n-1)(p - q) + worth_n(q).
pub(super) fn best(worth: &[Worth], partitions: u8) -> Option<PerCore<u8>> {
    let all = usize::from(partitions);
    let mut best = NOTHING;
    best[0] = 0.0;
    let mut taken = [[0_u8; PARTITIONS_MAX + 1]; CORES_MAX];
    for (worth, taken) in worth.iter().zip(&mut taken) {
        let mut next = NOTHING;
        for take in (0..=all).filter(|take| worth[*take] > f64::NEG_INFINITY) {
            for have in take..=all {
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
    let mut shares = PerCore::from_elem(0, worth.len());
    for (share, taken) in shares.iter_mut().zip(&taken).rev() {
        *share = taken[left];
        left -= usize::from(*share);
    }
    Some(shares)
}

/// Least number of partitions that each core is allowed; `None` if their sum exceeds `partitions`, or a core is allowed
/// no number at all.
pub(super) fn least(worth: &[Worth], partitions: u8) -> Option<PerCore<u8>> {
    let first = |worth: &Worth| worth.iter().position(|value| *value > f64::NEG_INFINITY);
    let least: PerCore<u8> = worth
        .iter()
        .map(|worth| first(worth).map(|at| at as u8))
        .collect::<Option<_>>()?;
    let sum: u32 = least.iter().map(|share| u32::from(*share)).sum();
    (sum <= u32::from(partitions)).then_some(least)
}

/// Hands out what `shares` leave of `partitions`, one at a time to the core of the largest average gain over all that
/// is left (the fifth paper's theta over bandwidth alone), each core's gain counted `weight` times; partitions from
/// which no core gains go to the first.
pub(super) fn hand_out(worth: &[Worth], shares: &mut [u8], partitions: u8, weight: impl Fn(usize) -> i64) {
    let mut left = usize::from(partitions) - shares.iter().map(|share| usize::from(*share)).sum::<usize>();
    while left > 0 {
        let theta = |(core, share): (usize, &u8)| {
            let has = usize::from(*share);
            let more = &worth[core][has + 1..=has + left];
            let gain = more.iter().map(|value| value - worth[core][has]).sum::<f64>();
            (core, gain * weight(core) as f64)
        };
        let gains = shares.iter().enumerate().map(theta);
        // Of equal gains the first.
        let Some((core, _)) = gains.reduce(|best, other| if other.1 > best.1 { other } else { best }) else {
            return;
        };
        shares[core] += 1;
        left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn worth(values: &[f64]) -> Worth {
        let mut worth = NOTHING;
        worth[1..=values.len()].copy_from_slice(values);
        worth
    }

    /// Every way of sharing out.
    fn brute(worth: &[Worth], left: usize) -> f64 {
        match worth {
            [] if left == 0 => 0.0,
            [] => f64::NEG_INFINITY,
            [first, rest @ ..] => (0..=left)
                .map(|take| first[take] + brute(rest, left - take))
                .fold(f64::NEG_INFINITY, f64::max),
        }
    }

    proptest! {
        #[test]
        fn the_best_is_that_of_brute_force(
            values in prop::collection::vec(prop::collection::vec(0.0f64..1.0, 8), 1..4),
        ) {
            let worth: Vec<Worth> = values.iter().map(|values| worth(values)).collect();
            let shares = best(&worth, 8).unwrap();
            prop_assert_eq!(shares.iter().map(|share| u32::from(*share)).sum::<u32>(), 8);
            let sum: f64 = shares.iter().zip(&worth).map(|(share, worth)| worth[usize::from(*share)]).sum();
            prop_assert!((sum - brute(&worth, 8)).abs() < 1e-9);
        }

        #[test]
        fn all_is_handed_out(values in prop::collection::vec(prop::collection::vec(0.0f64..1.0, 8), 1..4)) {
            let worth: Vec<Worth> = values.iter().map(|values| worth(values)).collect();
            let mut shares = least(&worth, 8).unwrap();
            prop_assert!(shares.iter().all(|share| *share == 1));
            hand_out(&worth, &mut shares, 8, |_| 1);
            prop_assert_eq!(shares.iter().map(|share| u32::from(*share)).sum::<u32>(), 8);
        }
    }

    #[test]
    fn what_is_not_allowed_is_not_given() {
        let mut wants_three = NOTHING;
        wants_three[3] = 1.0;
        assert_eq!(
            best(&[wants_three, worth(&[0.0; 5])], 5),
            Some(PerCore::from_slice(&[3, 2]))
        );
        assert_eq!(best(&[wants_three, wants_three], 5), None);
        assert_eq!(least(&[wants_three, wants_three], 5), None);
    }

    #[test]
    fn a_plateau_is_looked_over() {
        // One partition more does nothing for the first core, three do much.
        let mut shares = vec![1, 1];
        hand_out(
            &[worth(&[0.0, 0.0, 0.0, 9.0, 9.0]), worth(&[0.0, 1.0, 1.0, 1.0, 1.0])],
            &mut shares,
            5,
            |_| 1,
        );
        assert_eq!(shares, [4, 1]);
    }
}
