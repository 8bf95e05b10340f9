//! Energy at equal misses and equal fresh share.
//!
//! A control law that spends less may simply let more jobs be late, or less data be fresh. So each law runs with many
//! set points. For each point of the baseline's front the question is how much power the other law needs *at that
//! quality*: no more late jobs, no less fresh data.
//!
//! Between set points the comparison interpolates. A loop that spends a part of its time at each of several set points
//! has the means of their late jobs, fresh data and power in these parts. So every mixture of points is possible, and
//! the least power at a given quality is a small linear program:
//!
//! ```text
//! minimise sum l_i power_i   over   sum l_i misses_i <= misses,  sum l_i fresh_i >= fresh,  sum l_i = 1,  l_i >= 0
//! ```
//!
//! With three constraints beside the signs, some optimum mixes three points at most (a vertex), so it suffices to try
//! all mixtures of one, two and three points at which constraints hold exactly. Where no mixture has the quality, the
//! law does not reach it, and the point counts as lost. The baseline is compared with its own mixtures as well: a gain
//! by mixing alone is no other law's merit.

use serde::Serialize;

/// Differences of late jobs and fresh data that count as equal: a tenth of a percent of the jobs, a percent of the
/// data.
const EQUAL: [f64; 2] = [0.001, 0.01];

/// Allowance for rounding: parts of a mixture are not negative, and its quality is at least the wanted one.
const ROUNDING: f64 = 1e-9;

/// Results of one set point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Share of late jobs, 0 to 1.
    pub misses: f64,
    /// Mean share of fresh data, 0 to 1.
    pub fresh: f64,
    /// Mean power, in watts.
    pub power: f64,
}

impl Point {
    /// How much worse than `other`: late jobs in excess, and fresh data that is missing; at most 0 means as good.
    fn lacks(&self, other: &Point) -> [f64; 2] {
        [
            self.misses - other.misses - EQUAL[0],
            other.fresh - self.fresh - EQUAL[1],
        ]
    }
}

/// The points that no other point of the same law beats at no higher power.
pub fn front(points: &[Point]) -> Vec<Point> {
    let is_beaten = |point: &&Point| {
        points.iter().any(|other| {
            let no_worse = other.misses <= point.misses && other.fresh >= point.fresh && other.power <= point.power;
            no_worse && other != *point
        })
    };
    points.iter().filter(|point| !is_beaten(point)).copied().collect()
}

/// For every point of the baseline's front, the least power of the other law's mixtures of that quality, divided by the
/// point's own power; `None` where no mixture has the quality.
pub fn power_ratios(baseline: &[Point], other: &[Point]) -> Vec<Option<f64>> {
    let ratio = |point: &Point| Some(least_power(other, point)? / point.power);
    front(baseline).iter().map(ratio).collect()
}

/// The least power of a mixture of `points` with at least the quality of `wanted`; `None` where no mixture has it.
fn least_power(points: &[Point], wanted: &Point) -> Option<f64> {
    // The lack of a mixture is the mean of its points' lacks; it must not be above 0.
    let lacks: Vec<[f64; 2]> = points.iter().map(|point| point.lacks(wanted)).collect();
    let power = |parts: &[(usize, f64)]| {
        let lack = |c: usize| parts.iter().map(|(i, part)| part * lacks[*i][c]).sum::<f64>();
        let fits = parts.iter().all(|(_, part)| *part >= -ROUNDING) && (0..2).all(|c| lack(c) <= ROUNDING);
        fits.then(|| parts.iter().map(|(i, part)| part * points[*i].power).sum::<f64>())
    };
    let n = points.len();
    let alone = (0..n).filter_map(|i| power(&[(i, 1.0)]));
    let pairs = (0..n).flat_map(|i| (0..i).flat_map(move |j| [(i, j, 0), (i, j, 1)]));
    let of_two = pairs.filter_map(|(i, j, c)| {
        // l lacks_i + (1 - l) lacks_j = 0
        let part = lacks[j][c] / (lacks[j][c] - lacks[i][c]);
        part.is_finite().then(|| power(&[(i, part), (j, 1.0 - part)])).flatten()
    });
    let triples = (0..n).flat_map(|i| (0..i).flat_map(move |j| (0..j).map(move |k| (i, j, k))));
    let of_three = triples.filter_map(|(i, j, k)| {
        let (part_i, part_j) = both_exact(lacks[i], lacks[j], lacks[k])?;
        power(&[(i, part_i), (j, part_j), (k, 1.0 - part_i - part_j)])
    });
    alone.chain(of_two).chain(of_three).reduce(f64::min)
}

/// Parts of the first two points for which a mixture of the three lacks exactly nothing, by Cramer's rule; `None` if
/// the equations have no unique solution.
fn both_exact(a: [f64; 2], b: [f64; 2], c: [f64; 2]) -> Option<(f64, f64)> {
    let (a, b) = ([a[0] - c[0], a[1] - c[1]], [b[0] - c[0], b[1] - c[1]]);
    let determinant = a[0] * b[1] - a[1] * b[0];
    let parts = (
        (c[1] * b[0] - c[0] * b[1]) / determinant,
        (c[0] * a[1] - c[1] * a[0]) / determinant,
    );
    (parts.0.is_finite() && parts.1.is_finite()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(misses: f64, fresh: f64, power: f64) -> Point {
        Point { misses, fresh, power }
    }

    #[test]
    fn a_front_keeps_what_nothing_beats() {
        let points = [
            point(0.1, 0.9, 2.0),
            point(0.2, 0.9, 2.0),
            point(0.1, 0.8, 1.0),
            point(0.3, 0.5, 3.0),
        ];
        assert_eq!(front(&points), [points[0], points[2]]);
    }

    #[test]
    fn power_is_compared_at_no_worse_quality_only() {
        let baseline = [point(0.1, 0.9, 2.0), point(0.0, 1.0, 4.0)];
        let other = [point(0.05, 0.9, 1.5), point(0.1, 0.5, 0.5)];
        let ratios = power_ratios(&baseline, &other);
        // A percent less fresh data counts as equal, so a fortieth of the time may be spent at the second point.
        assert!(ratios.len() == 2 && ratios[1].is_none(), "{ratios:?}");
        assert!(
            (ratios[0].unwrap() - (1.5 - 1.0 / 40.0) / 2.0).abs() < 1e-9,
            "{ratios:?}"
        );
    }

    proptest! {
        /// Against mixtures on a grid, which the exact optimum must not be worse than, nor better by more than the grid
        /// is coarse.
        #[test]
        fn the_least_power_is_that_of_the_best_mixture(
            points in prop::collection::vec((0.0..1.0f64, 0.0..1.0f64, 1.0..2.0f64), 3),
            wanted in (0.2..0.8f64, 0.2..0.8f64),
        ) {
            let points: Vec<Point> = points.into_iter().map(|(m, f, p)| point(m, f, p)).collect();
            let wanted = point(wanted.0, wanted.1, 1.0);
            let least = least_power(&points, &wanted);
            let mut on_grid: Option<f64> = None;
            for i in 0..=100u32 {
                for j in 0..=100 - i {
                    let parts = [i, j, 100 - i - j].map(|part| f64::from(part) / 100.0);
                    let mix =
                        |read: fn(&Point) -> f64| parts.iter().zip(&points).map(|(l, p)| l * read(p)).sum::<f64>();
                    let mixed = point(mix(|p| p.misses), mix(|p| p.fresh), mix(|p| p.power));
                    if mixed.lacks(&wanted).iter().all(|lack| *lack <= 0.0) {
                        on_grid = Some(on_grid.map_or(mixed.power, |least| least.min(mixed.power)));
                    }
                }
            }
            if let Some(grid) = on_grid {
                let least = least.expect("a mixture on the grid is a mixture");
                prop_assert!(least <= grid + 1e-6, "{least} {grid}");
            }
            if let Some(least) = least {
                prop_assert!(least >= points.iter().map(|p| p.power).fold(f64::MAX, f64::min) - 1e-6);
            }
        }

        /// No law saves against itself by standing still, and it never needs more.
        #[test]
        fn a_law_matches_itself(points in prop::collection::vec((0.0..1.0f64, 0.0..1.0f64, 1.0..2.0f64), 1..8)) {
            let points: Vec<Point> = points.into_iter().map(|(m, f, p)| point(m, f, p)).collect();
            prop_assert!(
                power_ratios(&points, &points).iter().all(|ratio| ratio.is_some_and(|ratio| ratio <= 1.0 + 1e-9))
            );
        }
    }
}
