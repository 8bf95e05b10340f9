//! Energy at equal misses and equal fresh share.
//!
//! A law that spends less may simply let more jobs be late, or less data be fresh. So each law runs with many set points,
//! and points are compared only with points that are no worse in both: for a point of the baseline, the *match* is the
//! cheapest point of the other law with no more late jobs and no less fresh data. Where there is none, the other law
//! does not reach that quality, and the point counts as lost.

use serde::Serialize;

/// Late jobs and fresh data that are equal for the comparison: a tenth of a percent of the jobs, a percent of the data.
const EQUAL: [f64; 2] = [0.001, 0.01];

/// What one set point gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Share of late jobs.
    pub misses: f64,
    /// Mean fresh share.
    pub fresh: f64,
    /// Mean power, in watts.
    pub power: f64,
}

impl Point {
    /// Whether this point's quality is no worse than `other`'s.
    fn serves(&self, other: &Point) -> bool {
        self.misses <= other.misses + EQUAL[0] && self.fresh >= other.fresh - EQUAL[1]
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

/// For every point of the baseline's front, the power of its match over its own; none where there is no match.
pub fn power_ratios(baseline: &[Point], other: &[Point]) -> Vec<Option<f64>> {
    let cheapest = |point: &Point| {
        let matches = other.iter().filter(|candidate| candidate.serves(point));
        matches.map(|candidate| candidate.power / point.power).reduce(f64::min)
    };
    front(baseline).iter().map(cheapest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(power_ratios(&baseline, &other), [Some(0.75), None]);
        assert_eq!(power_ratios(&baseline, &baseline), [Some(1.0), Some(1.0)]);
    }
}
