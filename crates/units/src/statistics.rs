//! Mean and percentile: one definition of each, for the whole workspace.

use std::borrow::Borrow;
use std::cmp::Ordering;

/// Arithmetic mean; `None` without values.
///
/// ```
/// assert_eq!(punctual_units::mean([1.0, 2.0, 6.0]), Some(3.0));
/// ```
pub fn mean<V: Borrow<f64>>(values: impl IntoIterator<Item = V>) -> Option<f64> {
    let add = |(sum, count): (f64, u64), value: V| (sum + value.borrow(), count + 1);
    let (sum, count) = values.into_iter().fold((0.0, 0), add);
    (count > 0).then(|| sum / count as f64)
}

/// Percentile by nearest rank: the smallest value that at least `share` of the values (0 to 1) do not exceed; `None`
/// without values. Values that do not compare (NaN) may be sorted anywhere.
///
/// ```
/// assert_eq!(punctual_units::percentile([30, 10, 20], 0.5), Some(20));
/// ```
pub fn percentile<V: PartialOrd + Copy>(values: impl IntoIterator<Item = V>, share: f64) -> Option<V> {
    let mut rising: Vec<V> = values.into_iter().collect();
    rising.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    percentile_of_rising(&rising, share)
}

/// Like [`percentile`], for values that are already in rising order.
pub fn percentile_of_rising<V: Copy>(rising: &[V], share: f64) -> Option<V> {
    let rank = (share * rising.len() as f64).ceil() as usize;
    rising.get(rank.clamp(1, rising.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let falling = || (1..=100).rev();
        assert_eq!(percentile(falling(), 0.99), Some(99));
        assert_eq!(percentile(falling(), 0.5), Some(50));
        assert_eq!(percentile(falling(), 0.9999), Some(100));
        assert_eq!(percentile(falling(), 0.0), Some(1));
        assert_eq!(percentile([7.5], 0.99), Some(7.5));
        assert_eq!(percentile::<f64>([], 0.5), None);
        assert_eq!(mean::<f64>([]), None);
    }

    proptest! {
        /// At least the share does not exceed it, and less than the share is below it.
        #[test]
        fn a_percentile_is_the_least_value_that_enough_do_not_exceed(
            values in prop::collection::vec(0u32..50, 1..60),
            share in 0.0f64..=1.0,
        ) {
            let found = percentile(values.iter().copied(), share).unwrap();
            let count = |holds: &dyn Fn(u32) -> bool| values.iter().filter(|value| holds(**value)).count() as f64;
            prop_assert!(values.contains(&found));
            prop_assert!(count(&|value| value <= found) >= share * values.len() as f64);
            prop_assert!(count(&|value| value < found) < (share * values.len() as f64).max(1.0));
        }

        #[test]
        fn the_mean_lies_between_the_extremes(values in prop::collection::vec(-1e6f64..1e6, 1..60)) {
            let mean = mean(&values).unwrap();
            let (least, most) = (percentile(values.iter().copied(), 0.0), percentile(values.iter().copied(), 1.0));
            prop_assert!(least.unwrap() - 1e-6 <= mean && mean <= most.unwrap() + 1e-6);
        }
    }
}
