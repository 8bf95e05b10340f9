//! The share of each sensor's updates that is admitted, and the objects that may expire.
//!
//! **Uniform**: every sensor has the admitted share q, or the least share that keeps the minimum fresh on average
//! (`least.rs`) if that is more.
//!
//! **Coldest first**: an object is the hotter the higher its *access/update ratio*, reads per update (Kang, Son and
//! Stankovic, "Managing Deadline Miss Ratio and Sensor Data Freshness in Real-Time Databases", IEEE TKDE 16(10), 2004):
//! refreshing an object that no job reads gains nothing. With the rate 1/period of each sensor, the budget is q * (sum
//! of the rates). The hottest objects have all their updates admitted until the budget is used up; the marginal ones
//! have the fraction that is left; the others have only the updates that the freshness minimum admits. Equally hot
//! objects share alike, so that while nothing has been read all are marginal and have q: as if uniform.
//!
//! Since all sensors are watched for the same time, reads * period orders objects as reads / updates does. The rate is
//! the specified one, not a count of recent updates: a control period is often shorter than a sensor's period, and the
//! count would then be 0 or 1 by chance.
//!
//! The coldest objects are left to expire first: an object **may be given up** if fewer objects are strictly colder
//! than may be stale at a time.

use std::cmp::Reverse;

use punctual_units::{SensorId, Share};
use serde::{Deserialize, Serialize};

use super::SensorSpec;

/// The updates that are shed when not all are admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shedding {
    /// Every sensor loses the same share of its updates.
    #[default]
    Uniform,
    /// Objects with the fewest reads per update lose theirs first.
    ColdestFirst,
}

/// The share of each sensor's updates that the knob admits.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    admitted: Share,
    /// The share that keeps the minimum on average: with uniform shedding, the least share of any sensor.
    least: f64,
    ranking: Option<Ranking>,
}

/// The admitted share of one sensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lot {
    /// The share of its updates to admit, 0 to 1.
    pub share: f64,
    /// The share that the knob alone would admit; no more than `share`.
    pub by_knob: f64,
    /// Whether the sensor's object may be left to expire.
    pub may_be_given_up: bool,
}

impl Shares {
    /// All updates admitted; `stale_max` is how many objects may be stale at a time, `least` the share that keeps this
    /// minimum on average.
    pub fn new(shedding: Shedding, sensors: &[SensorSpec], stale_max: usize, least: f64) -> Self {
        Shares {
            admitted: Share::ONE,
            least,
            ranking: match shedding {
                Shedding::Uniform => None,
                Shedding::ColdestFirst => Some(Ranking::new(sensors, stale_max)),
            },
        }
    }

    /// The admitted share over all sensors: the knob.
    pub fn admitted(&self) -> Share {
        self.admitted
    }

    /// The knob below which no fewer updates are admitted. Coldest-first the knob adds updates of the hottest objects
    /// to those that the minimum needs, from 0 on.
    pub fn least(&self) -> Share {
        match &self.ranking {
            None => Share::clamped(self.least),
            Some(_) => Share::ZERO,
        }
    }

    /// Sets the least share.
    pub fn set_least(&mut self, least: f64) {
        self.least = least;
    }

    /// Sets the knob. O(1); with coldest-first O(N).
    pub fn set_admitted(&mut self, share: Share) {
        self.admitted = share;
        if let Some(ranking) = &mut self.ranking {
            ranking.divide(share);
        }
    }

    /// Ranks the objects anew. O(N log N) with coldest-first, otherwise does nothing.
    pub fn rank(&mut self, reads: impl Fn(SensorId) -> u64) {
        if let Some(ranking) = &mut self.ranking {
            ranking.rank(reads);
            ranking.divide(self.admitted);
        }
    }

    /// Whether numbers of reads are needed: with coldest-first.
    pub fn ranks_objects(&self) -> bool {
        self.ranking.is_some()
    }

    /// The admitted share of this sensor's updates.
    pub fn of(&self, sensor: usize) -> Lot {
        let admitted = self.admitted.get();
        match &self.ranking {
            None => Lot {
                share: admitted.max(self.least),
                by_knob: admitted,
                may_be_given_up: true,
            },
            Some(ranking) => ranking.lots[sensor],
        }
    }
}

/// Objects by heat, and the lot of each.
#[derive(Clone, Debug)]
struct Ranking {
    stale_max: usize,
    /// Nanoseconds between two updates, at least 1.
    periods: Box<[u64]>,
    /// Heat of each object: reads * period.
    heat: Vec<u128>,
    /// Sensors, the hottest first; equally hot ones by number.
    order: Vec<u32>,
    lots: Vec<Lot>,
}

impl Ranking {
    /// All objects equally hot, all updates admitted.
    fn new(sensors: &[SensorSpec], stale_max: usize) -> Self {
        let lot = Lot {
            share: 1.0,
            by_knob: 1.0,
            may_be_given_up: stale_max > 0,
        };
        Ranking {
            stale_max,
            periods: sensors.iter().map(|spec| spec.period.0.max(1)).collect(),
            heat: vec![0; sensors.len()],
            order: (0..sensors.len() as u32).collect(),
            lots: vec![lot; sensors.len()],
        }
    }

    fn rank(&mut self, reads: impl Fn(SensorId) -> u64) {
        let Ranking {
            periods, heat, order, ..
        } = self;
        for (sensor, (heat, period)) in (0..).zip(heat.iter_mut().zip(periods)) {
            *heat = u128::from(reads(SensorId(sensor))) * u128::from(*period);
        }
        order.sort_unstable_by_key(|&sensor| (Reverse(heat[sensor as usize]), sensor));
    }

    /// Divides the budget among groups of equally hot objects, the hottest first.
    fn divide(&mut self, admitted: Share) {
        let mut budget = admitted.get() * rate(&self.order, &self.periods);
        let mut colder = self.order.len();
        for group in self
            .order
            .chunk_by(|&a, &b| self.heat[a as usize] == self.heat[b as usize])
        {
            colder -= group.len();
            let rate = rate(group, &self.periods);
            // At 1 nothing is shed, regardless of the rounding of the sums.
            let share = if admitted == Share::ONE {
                1.0
            } else {
                (budget / rate).clamp(0.0, 1.0)
            };
            budget -= share * rate;
            let may_be_given_up = colder < self.stale_max;
            for &sensor in group {
                self.lots[sensor as usize] = Lot {
                    share,
                    by_knob: share,
                    may_be_given_up,
                };
            }
        }
    }
}

/// Updates per nanosecond of these sensors together.
fn rate(sensors: &[u32], periods: &[u64]) -> f64 {
    sensors
        .iter()
        .map(|&sensor| 1.0 / periods[sensor as usize] as f64)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use punctual_units::Nanos;

    fn shares(periods: &[u64], stale_max: usize) -> Shares {
        let spec = |&period| SensorSpec {
            period: Nanos(period),
            avi: Nanos(2 * period),
            value_bytes_max: 0,
        };
        Shares::new(
            Shedding::ColdestFirst,
            &periods.iter().map(spec).collect::<Vec<_>>(),
            stale_max,
            0.0,
        )
    }

    proptest! {
        #[test]
        fn the_budget_goes_to_the_hottest_and_is_used_up(
            objects in prop::collection::vec((1..1000u64, 0..6u64), 1..40),
            knob in 0.0..=1.0f64,
            stale_max in 0..40usize,
        ) {
            let (periods, reads): (Vec<_>, Vec<_>) = objects.into_iter().unzip();
            let mut shares = shares(&periods, stale_max);
            shares.set_admitted(Share::clamped(knob));
            shares.rank(|sensor| reads[sensor.index()]);

            let rate = |i: usize| 1.0 / periods[i] as f64;
            let total: f64 = (0..periods.len()).map(rate).sum();
            let given: f64 = (0..periods.len()).map(|i| shares.of(i).share * rate(i)).sum();
            prop_assert!((given - knob * total).abs() <= 1e-9 * total, "{} of {}", given, knob * total);

            let heat = |i: usize| reads[i] * periods[i];
            for hot in 0..periods.len() {
                for cold in 0..periods.len() {
                    if heat(hot) > heat(cold) {
                        // The allowance is rounding in the budget: far less than one update in a run.
                        prop_assert!(shares.of(hot).share > 1.0 - 1e-9 || shares.of(cold).share < 1e-9);
                    }
                    if heat(hot) == heat(cold) {
                        prop_assert_eq!(shares.of(hot).share, shares.of(cold).share);
                    }
                }
                let colder = (0..periods.len()).filter(|&cold| heat(cold) < heat(hot)).count();
                prop_assert_eq!(shares.of(hot).may_be_given_up, colder < stale_max);
            }
        }

        #[test]
        fn a_knob_at_one_sheds_nothing(objects in prop::collection::vec((1..1000u64, 0..6u64), 1..40)) {
            let (periods, reads): (Vec<_>, Vec<_>) = objects.into_iter().unzip();
            let mut shares = shares(&periods, 0);
            shares.rank(|sensor| reads[sensor.index()]);
            prop_assert!((0..periods.len()).all(|sensor| shares.of(sensor).share == 1.0));
        }
    }

    #[test]
    fn the_marginal_object_has_the_fraction_that_is_left() {
        let mut shares = shares(&[8, 8, 8, 8], 1);
        shares.rank(|sensor| [3, 9, 0, 5][sensor.index()]);
        shares.set_admitted(Share::clamped(0.625)); // 2.5 of 4 objects
        assert_eq!([0, 1, 2, 3].map(|sensor| shares.of(sensor).share), [0.5, 1.0, 0.0, 1.0]);
        assert_eq!(
            [0, 1, 2, 3].map(|sensor| shares.of(sensor).may_be_given_up),
            [false, false, true, false]
        );
    }
}
