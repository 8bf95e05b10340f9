//! The utilisation at which half of the task sets are schedulable, with a confidence interval.
//!
//! **Method.** The share of schedulable sets by utilisation, pooled to a non-increasing curve (adjacent means that rise
//! are averaged: isotonic regression), crosses one half between two utilisations: linear in between. The interval is
//! that of the same estimate over sets drawn again with replacement within each utilisation (bootstrap).

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::stats::mean;

/// Number of resamples of the bootstrap.
pub const RESAMPLES: usize = 400;

/// The utilisation with a 90 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Half {
    /// The estimate from the sets themselves.
    pub at: f64,
    /// The 5th percentile over the resamples.
    pub low: f64,
    /// The 95th percentile over the resamples.
    pub high: f64,
    /// The first and the last utilisation that were run: a crossing beyond them is not seen.
    seen: (f64, f64),
}

impl Half {
    /// Suffix where `at` is only a bound: the crossing lies at or beyond an end of the utilisations that were run.
    pub fn bound(self) -> &'static str {
        let (first, last) = self.seen;
        if self.at <= first {
            " (at most)"
        } else if self.at >= last {
            " (at least)"
        } else {
            ""
        }
    }
}

/// The utilisation at which half of the sets are schedulable; `sets` has each utilisation, rising, with a verdict per
/// set.
pub fn half(sets: &[(f64, Vec<bool>)], seed: u64) -> Option<Half> {
    let shares: Vec<(f64, f64)> = sets
        .iter()
        .map(|(utilisation, verdicts)| Some((*utilisation, share(verdicts.iter().copied())?)))
        .collect::<Option<_>>()?;
    let at = crossing(&shares)?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut again: Vec<f64> = (0..RESAMPLES).filter_map(|_| resample(sets, &mut random)).collect();
    again.sort_by(f64::total_cmp);
    let quantile = |share: f64| again[((again.len() - 1) as f64 * share).round() as usize];
    Some(Half {
        at,
        low: quantile(0.05),
        high: quantile(0.95),
        seen: (shares.first()?.0, shares.last()?.0),
    })
}

fn resample(sets: &[(f64, Vec<bool>)], random: &mut ChaCha8Rng) -> Option<f64> {
    let mut shares = Vec::with_capacity(sets.len());
    for (utilisation, verdicts) in sets {
        let drawn = verdicts
            .iter()
            .map(|_| verdicts[random.random_range(0..verdicts.len())]);
        shares.push((*utilisation, share(drawn)?));
    }
    crossing(&shares)
}

fn share(verdicts: impl Iterator<Item = bool>) -> Option<f64> {
    mean(verdicts.map(f64::from))
}

/// The utilisation at which the curve falls to one half; the first if it never is above, the last if it never falls to
/// it.
fn crossing(shares: &[(f64, f64)]) -> Option<f64> {
    let falling = non_increasing(shares);
    let first = falling.first()?;
    if first.1 <= 0.5 {
        return Some(first.0);
    }
    let crosses = |pair: &&[(f64, f64)]| pair[0].1 > 0.5 && pair[1].1 <= 0.5;
    match falling.windows(2).find(crosses) {
        None => falling.last().map(|last| last.0),
        Some(pair) => {
            let ((from, above), (to, below)) = (pair[0], pair[1]);
            Some(from + (to - from) * (above - 0.5) / (above - below))
        }
    }
}

/// The closest non-increasing curve: averages neighbours that rise.
fn non_increasing(shares: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (_, share) in shares {
        let mut block = (*share, 1);
        while let Some((before, count)) = blocks.last().copied().filter(|(before, _)| *before < block.0) {
            blocks.pop();
            let all = count + block.1;
            block = ((before * count as f64 + block.0 * block.1 as f64) / all as f64, all);
        }
        blocks.push(block);
    }
    let values = blocks
        .into_iter()
        .flat_map(|(value, count)| std::iter::repeat_n(value, count));
    shares.iter().map(|(utilisation, _)| *utilisation).zip(values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(shares: &[(f64, usize)]) -> Vec<(f64, Vec<bool>)> {
        shares
            .iter()
            .map(|(at, good)| (*at, (0..10).map(|k| k < *good).collect()))
            .collect()
    }

    #[test]
    fn half_lies_between_the_utilisations_around_it() {
        let found = half(&sets(&[(1.0, 10), (2.0, 8), (3.0, 4), (4.0, 0)]), 1).unwrap();
        assert!((found.at - 2.75).abs() < 1e-9, "{found:?}");
        assert!(found.low < found.at && found.at < found.high, "{found:?}");
    }

    #[test]
    fn a_curve_that_never_falls_ends_at_the_last() {
        let ends = |shares| {
            let found = half(&sets(shares), 1).unwrap();
            (found.at, found.bound())
        };
        assert_eq!(ends(&[(1.0, 10), (2.0, 10)]), (2.0, " (at least)"));
        assert_eq!(ends(&[(1.0, 0), (2.0, 0)]), (1.0, " (at most)"));
        assert_eq!(ends(&[(1.0, 10), (2.0, 0)]), (1.5, ""));
    }

    #[test]
    fn neighbours_that_rise_are_pooled() {
        assert_eq!(
            non_increasing(&[(1.0, 1.0), (2.0, 0.4), (3.0, 0.6)]),
            [(1.0, 1.0), (2.0, 0.5), (3.0, 0.5)]
        );
    }
}
