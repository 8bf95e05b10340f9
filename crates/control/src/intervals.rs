//! Does a figure differ between two runs by more than chance?
//!
//! **Shares** (late jobs): Wilson's interval for each run, and Newcombe's for the difference, which is made of the two;
//! both hold for few late jobs, also for none (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927; R. G. Newcombe, Statist. in
//! Medicine 17, 1998, method 10). They assume independent jobs, and late ones come in clusters: divide the number of
//! jobs by [`dispersion`] first.
//!
//! **Means** over time: windows that follow each other are not independent. The method of batch means cuts a run into
//! [`BATCHES`] parts that nearly are, and takes their means as observations; Welch's interval compares these.

/// Parts of a run that count as independent observations.
pub const BATCHES: usize = 10;

/// Quantile 0.975 of the normal distribution.
const Z: f64 = 1.96;
/// Quantile 0.975 of Student's distribution for 1 to 18 degrees of freedom, which two times ten batches have at most.
const STUDENT: [f64; 18] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101,
];

/// Wilson's interval at 95 % for the true share, given `count` of `among`, which need not be whole numbers.
pub fn wilson(count: f64, among: f64) -> [f64; 2] {
    let share = count / among;
    let middle = share + Z * Z / (2.0 * among);
    let half = Z * (share * (1.0 - share) / among + Z * Z / (4.0 * among * among)).sqrt();
    [middle - half, middle + half].map(|bound| bound / (1.0 + Z * Z / among))
}

/// Newcombe's interval at 95 % for the second share less the first; each is a share and the number of observations.
pub fn difference_of_shares(before: [f64; 2], after: [f64; 2]) -> [f64; 2] {
    let [a, b] = [before, after].map(|[share, among]| (share, wilson(share * among, among)));
    let distance = |x: f64, y: f64| (x * x + y * y).sqrt();
    let difference = b.0 - a.0;
    [
        difference - distance(b.0 - b.1[0], a.1[1] - a.0),
        difference + distance(b.1[1] - b.0, a.0 - a.1[0]),
    ]
}

/// Variance of the counts of batches over that of independent observations, at least 1. Each batch is a count and the
/// number that it is among (Pearson's statistic over its degrees of freedom).
pub fn dispersion(batches: &[[f64; 2]]) -> f64 {
    let sum = |of: usize| batches.iter().map(|batch| batch[of]).sum::<f64>();
    let share = sum(0) / sum(1);
    let counted = batches.iter().filter(|[_, among]| *among > 0.0);
    let terms = counted.map(|[count, among]| (count - share * among).powi(2) / (share * (1.0 - share) * among));
    let (number, statistic) = terms.fold((0, 0.0), |(number, sum), term| (number + 1, sum + term));
    // No or all late jobs: 0 / 0.
    let dispersion = statistic / f64::from(number - 1);
    if dispersion.is_finite() {
        dispersion.max(1.0)
    } else {
        1.0
    }
}

/// Welch's interval at 95 % for the second mean less the first, over the means of [`BATCHES`] batches each.
pub fn difference_of_means(before: &[f64; BATCHES], after: &[f64; BATCHES]) -> [f64; 2] {
    let number = BATCHES as f64;
    let [a, b] = [before, after].map(|batches| {
        let mean = batches.iter().sum::<f64>() / number;
        let squares: f64 = batches.iter().map(|batch| (batch - mean).powi(2)).sum();
        (mean, squares / (number - 1.0) / number)
    });
    let variance = a.1 + b.1;
    // Welch and Satterthwaite's degrees of freedom: 9 to 18.
    let freedom = variance * variance * (number - 1.0) / (a.1 * a.1 + b.1 * b.1);
    let freedom = if freedom.is_finite() { freedom } else { number - 1.0 };
    let quantile = STUDENT[(freedom as usize).clamp(1, STUDENT.len()) - 1];
    // Constant figures have no variance, and sums of different length differ in the last bits.
    let rounding = 1e-9 * a.0.abs().max(b.0.abs());
    let (difference, half) = (b.0 - a.0, quantile * variance.sqrt() + rounding);
    [difference - half, difference + half]
}

/// Mean of values, each with a weight; `None` without one.
pub fn weighted_mean(values: &[Option<(f64, f64)>]) -> Option<f64> {
    let (sum, weights) = { values.iter().flatten() }.fold((0.0, 0.0), |(sum, weights), (value, weight)| {
        (sum + value * weight, weights + weight)
    });
    (weights > 0.0).then(|| sum / weights)
}

/// Means of [`BATCHES`] parts of `values` of nearly equal length; `None` if a part has no value.
pub fn batch_means(values: &[Option<(f64, f64)>]) -> Option<[f64; BATCHES]> {
    let mut means = [0.0; BATCHES];
    for (number, mean) in means.iter_mut().enumerate() {
        let part = &values[values.len() * number / BATCHES..values.len() * (number + 1) / BATCHES];
        *mean = weighted_mean(part)?;
    }
    Some(means)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wilson_s_interval_is_the_textbook_s() {
        let [low, high] = wilson(10.0, 100.0);
        assert!(
            (low - 0.0552).abs() < 1e-4 && (high - 0.1744).abs() < 1e-4,
            "{low} {high}"
        );
        assert!(wilson(0.0, 100.0)[0].abs() < 1e-12);
    }

    /// Newcombe's paper, table II, column (a): 56/70 less 48/80 is 0.0524 to 0.3339 by method 10.
    #[test]
    fn newcombe_s_interval_is_the_paper_s() {
        let [low, high] = difference_of_shares([48.0 / 80.0, 80.0], [56.0 / 70.0, 70.0]);
        assert!(
            (low - 0.0524).abs() < 1e-3 && (high - 0.3339).abs() < 1e-3,
            "{low} {high}"
        );
    }

    #[test]
    fn clustered_late_jobs_are_worth_fewer_observations() {
        let even = [[1.0, 53.0]; BATCHES];
        let mut clustered = [[0.0, 53.0]; BATCHES];
        clustered[3][0] = 10.0;
        assert_eq!(dispersion(&even), 1.0);
        assert!(dispersion(&clustered) > 9.0, "{}", dispersion(&clustered));
        assert_eq!(dispersion(&[[0.0, 53.0]; BATCHES]), 1.0);
    }

    #[test]
    fn means_without_spread_differ_by_what_they_differ() {
        let [low, high] = difference_of_means(&[1.0; BATCHES], &[3.0; BATCHES]);
        assert!((low - 2.0).abs() < 1e-8 && (high - 2.0).abs() < 1e-8, "{low} {high}");
        // 20 W for 1 ms, then 10 W for 19 ms.
        let uneven = [Some((20.0, 1.0)), None, Some((10.0, 19.0))];
        assert_eq!(weighted_mean(&uneven), Some(10.5));
        let [one, other] = [600, 1200].map(|windows| batch_means(&vec![Some((0.95, 1.0)); windows]).unwrap());
        let [low, high] = difference_of_means(&one, &other);
        assert!(low <= 0.0 && high >= 0.0, "{low} {high}");
        assert_eq!(batch_means(&[Some((1.0, 1.0)); 9]), None);
        assert_eq!(batch_means(&[Some((1.0, 1.0)); 25]), Some([1.0; BATCHES]));
    }

    proptest! {
        /// Swapped runs differ by the same, the other way round; and a difference lies in its interval.
        #[test]
        fn a_difference_lies_in_its_interval_and_changes_sign_when_swapped(
            a in 0u32..100, b in 0u32..100, before in proptest::array::uniform10(0.0f64..1.0),
            after in proptest::array::uniform10(0.0f64..1.0),
        ) {
            let (a, b) = ([f64::from(a) / 100.0, 100.0], [f64::from(b) / 100.0, 100.0]);
            let mean = |batches: &[f64; BATCHES]| batches.iter().sum::<f64>() / BATCHES as f64;
            for (one, other, difference) in [
                (difference_of_shares(a, b), difference_of_shares(b, a), b[0] - a[0]),
                (difference_of_means(&before, &after), difference_of_means(&after, &before), mean(&after) - mean(&before)),
            ] {
                prop_assert!(one[0] <= difference + 1e-9 && difference - 1e-9 <= one[1]);
                prop_assert!((one[0] + other[1]).abs() < 1e-9 && (one[1] + other[0]).abs() < 1e-9);
            }
        }
    }
}
