//! The least share of updates that keeps a minimum of the objects fresh.
//!
//! With the share q of a sensor's updates admitted by error diffusion, the distance from one admitted reading to the
//! next is n = 1/q on average: floor(n) readings, or one more in the part n - floor(n) of the cases. After k readings
//! the next admitted one is in the store k periods plus the margin after the last one was sampled, so the object is
//! stale for `max(0, k * period + margin - avi)` of these k periods. It is fresh for the rest; the mean of that over
//! all objects is the fresh share that q gives. It grows with q, so bisection finds the least q that gives the minimum.
//!
//! The fresh share so found is a mean over time: at single instants fewer objects may be fresh. The rule of
//! `admission.rs` admits the updates that these instants need.

use punctual_units::{Nanos, Share};

use super::SensorSpec;
use super::freshness::within_reach;

/// Halvings of the range 0..1: finds the share to one in a million.
const HALVINGS: u32 = 20;

/// The least share of updates that keeps `minimum` of the objects fresh on average; 1 if no share does. O(N).
pub(super) fn least_share(sensors: &[SensorSpec], margin: Nanos, minimum: Share) -> f64 {
    let enough = |share: f64| mean_fresh(sensors, margin, share) >= minimum.get();
    if enough(0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// The mean share of objects that are fresh with this share of updates admitted; 1 if there are no objects.
fn mean_fresh(sensors: &[SensorSpec], margin: Nanos, share: f64) -> f64 {
    if sensors.is_empty() {
        return 1.0;
    }
    let fresh: f64 = sensors.iter().map(|spec| fresh_part(spec, margin, share)).sum();
    fresh / sensors.len() as f64
}

/// The part of the time in which the sensor's object is fresh, 0 to 1.
fn fresh_part(spec: &SensorSpec, margin: Nanos, share: f64) -> f64 {
    if share <= 0.0 || !within_reach(spec, margin) {
        return 0.0;
    }
    let period = spec.period.0.max(1) as f64;
    let readings = 1.0 / share;
    let stale_after = |readings: f64| (readings * period + margin.0 as f64 - spec.avi.0 as f64).max(0.0);
    let longer = readings.fract();
    let stale = (1.0 - longer) * stale_after(readings.floor()) + longer * stale_after(readings.floor() + 1.0);
    1.0 - (stale / (readings * period)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sensors(periods: &[(u64, f64)]) -> Vec<SensorSpec> {
        let spec = |&(period, factor): &(u64, f64)| SensorSpec {
            period: Nanos(period),
            avi: Nanos((factor * period as f64) as u64),
            value_bytes_max: 0,
        };
        periods.iter().map(spec).collect()
    }

    #[test]
    fn a_value_that_is_valid_for_two_periods_needs_a_quarter_of_its_updates_for_half_of_the_objects() {
        let sensors = sensors(&[(1000, 2.0); 10]);
        let least = |minimum| least_share(&sensors, Nanos::ZERO, Share::clamped(minimum));
        assert!((least(0.5) - 0.25).abs() < 1e-5, "{}", least(0.5));
        assert!((least(1.0) - 0.5).abs() < 1e-5, "{}", least(1.0));
        assert_eq!(least(0.0), 0.0);
    }

    #[test]
    fn a_value_that_is_valid_for_one_period_needs_as_many_updates_as_there_are_fresh_objects() {
        let sensors = sensors(&[(1000, 1.0); 10]);
        let least = |minimum| least_share(&sensors, Nanos::ZERO, Share::clamped(minimum));
        assert!((least(0.5) - 0.5).abs() < 1e-5, "{}", least(0.5));
        assert!((least(0.9) - 0.9).abs() < 1e-5, "{}", least(0.9));
    }

    proptest! {
        #[test]
        fn more_updates_never_make_fewer_objects_fresh(
            periods in prop::collection::vec((10..1000u64, 1.0..5.0f64), 1..10),
            share in 0.01..1.0f64,
            more in 0.0..1.0f64,
        ) {
            let sensors = sensors(&periods);
            let fresh = |share| mean_fresh(&sensors, Nanos::ZERO, share);
            let more = share + more * (1.0 - share);
            prop_assert!(
                fresh(more) >= fresh(share) - 1e-9,
                "{} at {}, {} at {}",
                fresh(share),
                share,
                fresh(more),
                more
            );
        }
    }
}
