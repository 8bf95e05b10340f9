//! Schedutil (since Linux 4.7, `cpufreq_schedutil.c`): the clock follows the scheduler's own utilisation.
//!
//! ```text
//! f = 1.25 f_top u,  u = the largest utilisation of any core, as a share of a core at the top clock
//! ```
//!
//! and the lowest step at or above f. Utilisation is a moving average that decays to half in 32 ms (PELT) and counts
//! time at a lower clock for less (frequency invariance, as on the A15). While a real-time task runs, the clock is at
//! the top: `uclamp` gives such tasks 1024 by default. The clock changes at most once per rate limit: 1000 transitions,
//! 10 ms at most.
//!
//! **Left out.** The bandwidth of SCHED_DEADLINE as a floor, and the boost for tasks that wait for I/O: no simulated
//! task has either. The rule that a core which was never idle keeps its clock applies to policies of one core.

use punctual_sim::LoadSample;
use punctual_units::{Hertz, Nanos, Time};

use super::at_least;

/// Factor that keeps utilisation at most 80 % of the clock: `map_util_freq` adds a quarter.
const HEADROOM: f64 = 1.25;
/// Time after which the past counts half: `y^32 = 0.5`, in periods of 1024 us.
const HALF_LIFE: Nanos = Nanos(32 * 1024 * 1000);
const RATE_LIMIT_MAX: Nanos = Nanos::from_millis(10);
const TRANSITIONS: u64 = 1000;

/// Parameters of the schedutil governor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedutil {
    /// Whether the clock is at the top while a real-time task runs, as by default
    /// (`sched_util_clamp_min_rt_default` = 1024).
    pub real_time_at_top: bool,
    /// The least time between two changes; `None`: as the kernel derives it from the transition time.
    pub rate_limit: Option<Nanos>,
}

impl Default for Schedutil {
    fn default() -> Schedutil {
        Schedutil {
            real_time_at_top: true,
            rate_limit: None,
        }
    }
}

impl Schedutil {
    /// The least time between two changes of the clock.
    pub fn rate_limit(&self, transition: Nanos) -> Nanos {
        let derived = (transition * TRANSITIONS).min(RATE_LIMIT_MAX);
        self.rate_limit.unwrap_or(derived).max(Nanos(1))
    }

    /// Decides the clock from now on, with the largest utilisation of any core.
    pub fn decide(&self, utilisation: f64, sample: &LoadSample<'_>) -> Hertz {
        let LoadSample { loads, steps, .. } = *sample;
        let top = steps[steps.len() - 1];
        if self.real_time_at_top && loads.iter().any(|load| load.real_time) {
            return top;
        }
        at_least(HEADROOM * utilisation * top.0 as f64, steps)
    }
}

/// Moving average of one core's utilisation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pelt {
    average: f64,
    /// Limit of the average: the present clock as a share of the top while the core is busy, else 0.
    level: f64,
    since: Time,
}

impl Pelt {
    /// Utilisation at `now`, 0 to 1.
    pub fn at(&self, now: Time) -> f64 {
        let kept = 0.5f64.powf(now.since(self.since).ratio(HALF_LIFE));
        self.level + (self.average - self.level) * kept
    }

    /// Sets the share of the top clock at which the core works from `now` on; 0 while it is idle.
    pub fn work(&mut self, level: f64, now: Time) {
        if level != self.level {
            *self = Pelt {
                average: self.at(now),
                level,
                since: now,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use punctual_sim::CoreLoad;

    fn steps() -> Vec<Hertz> {
        (2..=20).map(|hundreds| Hertz::from_mhz(100 * hundreds)).collect()
    }

    fn mhz(rule: Schedutil, utilisation: f64, real_time: bool) -> u64 {
        let busy = CoreLoad {
            real_time,
            ..CoreLoad::default()
        };
        let sample = LoadSample {
            now: Time::ZERO,
            elapsed: Nanos::from_millis(10),
            loads: &[CoreLoad::default(), busy],
            current: Hertz::from_mhz(200),
            steps: &steps(),
            transition: Nanos::ZERO,
        };
        rule.decide(utilisation, &sample).0 / 1_000_000
    }

    #[test]
    fn the_clock_leaves_a_quarter_of_headroom() {
        assert_eq!(
            [0.0, 0.4, 0.404, 0.8, 1.0].map(|u| mhz(Schedutil::default(), u, false)),
            [200, 1000, 1100, 2000, 2000]
        );
    }

    #[test]
    fn a_real_time_task_takes_the_top_unless_it_is_clamped() {
        assert_eq!(mhz(Schedutil::default(), 0.1, true), 2000);
        let clamped = Schedutil {
            real_time_at_top: false,
            ..Schedutil::default()
        };
        assert_eq!(mhz(clamped, 0.1, true), 300);
    }

    #[test]
    fn the_rate_limit_is_a_thousand_transitions_up_to_10_ms() {
        assert_eq!(Schedutil::default().rate_limit(Nanos::from_micros(140)), RATE_LIMIT_MAX);
        assert_eq!(
            Schedutil::default().rate_limit(Nanos::from_micros(2)),
            Nanos::from_millis(2)
        );
    }

    #[test]
    fn utilisation_halves_in_32_periods() {
        let mut pelt = Pelt::default();
        pelt.work(1.0, Time::ZERO);
        let one = Time::ZERO + HALF_LIFE;
        assert!((pelt.at(one) - 0.5).abs() < 1e-12);
        pelt.work(0.0, one);
        assert!((pelt.at(one + HALF_LIFE) - 0.25).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn a_steady_core_is_worth_its_clock_and_looking_changes_nothing(
            level in 0.0f64..=1.0,
            look_us in prop::collection::vec(1u64..1_000_000, 0..8),
        ) {
            let mut pelt = Pelt::default();
            let mut looked = pelt;
            pelt.work(level, Time::ZERO);
            looked.work(level, Time::ZERO);
            let mut now = Time::ZERO;
            for gap in look_us {
                now = now + Nanos::from_micros(gap);
                looked.work(level, now);
                prop_assert_eq!(looked.at(now), pelt.at(now));
                prop_assert!(looked.at(now) <= level);
            }
            prop_assert!((pelt.at(now + Nanos::from_secs(5)) - level).abs() < 1e-9);
        }
    }
}
