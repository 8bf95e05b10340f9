//! Made-up traces: drawn from a seed.

use punctual_units::{Nanos, Share};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::trace::{Reading, Sensor, Trace};

impl Trace {
    /// Draws a trace from a seed: `count` sensors with periods uniform between the bounds, avi twice the period, and
    /// random-walk values, long enough for every sensor to report twice and for `length`.
    pub fn synthetic(count: u32, period_min: Nanos, period_max: Nanos, length: Nanos, seed: u64) -> Trace {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let sensors: Vec<Sensor> = (0..count)
            .map(|_| {
                let period = Nanos(rng.random_range(period_min.0..=period_max.0));
                Sensor {
                    period,
                    avi: period * 2,
                }
            })
            .collect();
        let length = length.max(period_max * 2);
        let mut readings = Vec::new();
        for (sensor, spec) in sensors.iter().enumerate() {
            let mut at = spec.period.scaled(Share::clamped(rng.random::<f64>()).get());
            let mut value = 20.0;
            while at < length {
                value += rng.random_range(-0.5..=0.5);
                readings.push(Reading {
                    at,
                    sensor: sensor as u32,
                    value,
                });
                at += spec.period;
            }
        }
        readings.sort_by_key(|reading| (reading.at, reading.sensor));
        Trace { sensors, readings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn synthetic_sensors_keep_their_period(seed in any::<u64>(), count in 1u32..40) {
            let (min, max) = (Nanos::from_millis(100), Nanos::from_millis(900));
            let trace = Trace::synthetic(count, min, max, Nanos::from_secs(3), seed);
            prop_assert_eq!(&trace, &Trace::synthetic(count, min, max, Nanos::from_secs(3), seed));
            let mut last = vec![None; count as usize];
            for reading in &trace.readings {
                let sensor = reading.sensor as usize;
                if let Some(before) = last[sensor].replace(reading.at) {
                    prop_assert_eq!(reading.at - before, trace.sensors[sensor].period);
                }
            }
            prop_assert!(last.iter().all(Option::is_some));
        }
    }
}
