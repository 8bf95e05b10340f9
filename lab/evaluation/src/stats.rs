//! Medians and spreads over seeds and machines.

pub use punctual_units::mean;
use serde::{Deserialize, Serialize};

/// The median; for an even number, the mean of the two middle values. `None` if `values` is empty.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(upper)) {
        (_, None) => None,
        (1, Some(middle)) => Some(*middle),
        (_, Some(above)) => Some((sorted[upper - 1] + above) / 2.0),
    }
}

/// The smallest value; `None` if `values` is empty.
pub fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::min)
}

/// The largest value; `None` if `values` is empty.
pub fn greatest(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

/// A median and the range around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    /// The spread of `values`; `None` if it is empty.
    pub fn of(values: &[f64]) -> Option<Spread> {
        Some(Spread {
            median: median(values)?,
            low: least(values)?,
            high: greatest(values)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn medians_of_few() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
    }

    proptest! {
        #[test]
        fn half_of_the_values_lie_on_either_side(values in prop::collection::vec(-1e3f64..1e3, 1..40)) {
            let spread = Spread::of(&values).unwrap();
            let below = values.iter().filter(|value| **value < spread.median).count();
            let above = values.iter().filter(|value| **value > spread.median).count();
            prop_assert!(below <= values.len() / 2 && above <= values.len() / 2);
            prop_assert!(spread.low <= spread.median && spread.median <= spread.high);
            prop_assert!(mean(&values).is_some_and(|mean| spread.low - 1e-9 <= mean && mean <= spread.high + 1e-9));
        }
    }
}
