//! Ondemand, by the old and the new rule.
//!
//! *Old* (Linux 2.6.3x, `cpufreq_ondemand.c`; V. Pallipadi and A. Starikovskiy, Linux Symposium 2006): every max(10 ms,
//! 1000 transitions), with the load of each core in percent, f the present clock and L the largest load times f,
//!
//! ```text
//! L > up f             the top step
//! L < (up - diff) f    the lowest step at or above L / (up - diff)
//! else                 the clock stays
//! ```
//!
//! with up = 80 and diff = 10, or 95 and 3 where idle time is counted exactly, as in all tickless kernels.
//!
//! *New* (since Linux 3.12): every min(10 ms, 1000 transitions), with the largest load in percent and the clock's
//! range,
//!
//! ```text
//! load > up            the top step, for `sampling_down_factor` samples
//! else                 the step nearest to min + load (max - min) / 100
//! ```
//!
//! with up = 95. The new rule never holds a clock: a steady load is mapped to a clock, whatever the clock was before.
//! After more than two sampling periods of idleness the load before them counts once more (`cpufreq_governor.c`).
//!
//! Later kernels only shortened the period: 2 ms at most, then 1.5 transitions.

use std::fmt;

use punctual_sim::{CoreLoad, LoadSample};
use punctual_units::{Hertz, Nanos};

use super::at_least;

/// Load in percent above which the clock goes to the top, in kernels that count idle time exactly.
const MICRO_UP_PERCENT: u32 = 95;
/// How far below that the load has to fall before the old rule lowers the clock, in percent, in the same kernels.
const MICRO_DIFFERENTIAL: u32 = 3;
/// `LATENCY_MULTIPLIER`: a transition may cost a thousandth of the time.
const TRANSITIONS: u64 = 1000;
/// Bound on the sampling period: at least this by the old rule, at most this by the new one.
const TEN_MS: Nanos = Nanos::from_millis(10);

/// The two algorithms named ondemand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The rule of Linux 2.6.3x.
    Old {
        /// Load in percent (up - diff) below which the clock goes down.
        down_percent: u32,
    },
    /// The rule of Linux 3.12 and later.
    New,
}

/// Rule and parameters of ondemand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ondemand {
    /// The old or the new rule.
    pub rule: Rule,
    /// Load in percent above which the clock goes to the top.
    pub up_percent: u32,
    /// Sampling periods for which the top step is held once it is reached.
    pub sampling_down_factor: u32,
    /// Sampling period; `None`: as the kernel of that rule derives it from the transition time.
    pub sampling: Option<Nanos>,
}

/// State of an ondemand governor between samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OndemandState {
    /// Load of each core at the last sample; `None` once it was used a second time.
    previous: Vec<Option<f64>>,
    /// Additional sampling periods until the next sample.
    held: u32,
}

impl OndemandState {
    /// Number of sampling periods until the next sample.
    pub fn stretch(&self) -> u32 {
        1 + self.held
    }
}

impl Ondemand {
    /// Ondemand of Linux 2.6.3x, with the thresholds of tickless kernels: 95 and 3.
    pub fn old() -> Ondemand {
        Ondemand::old_between(MICRO_UP_PERCENT - MICRO_DIFFERENTIAL, MICRO_UP_PERCENT)
    }

    /// The old rule with these thresholds in percent: `down_percent` is up - diff. 20 and 90 are the first paper's.
    pub fn old_between(down_percent: u32, up_percent: u32) -> Ondemand {
        Ondemand {
            rule: Rule::Old { down_percent },
            up_percent,
            sampling_down_factor: 1,
            sampling: None,
        }
    }

    /// Ondemand of Linux 3.12 and later.
    pub fn modern() -> Ondemand {
        Ondemand {
            rule: Rule::New,
            up_percent: MICRO_UP_PERCENT,
            sampling_down_factor: 1,
            sampling: None,
        }
    }

    /// Time between two samples.
    pub fn sampling(&self, transition: Nanos) -> Nanos {
        let derived = match self.rule {
            Rule::Old { .. } => (transition * TRANSITIONS).max(TEN_MS),
            Rule::New => (transition * TRANSITIONS).min(TEN_MS),
        };
        self.sampling.unwrap_or(derived).max(Nanos(1))
    }

    /// Decides the clock until the next sample, from the cores' loads since the last one.
    pub fn decide(&self, state: &mut OndemandState, sample: &LoadSample<'_>) -> Hertz {
        let LoadSample { current, steps, .. } = *sample;
        let (bottom, top) = (steps[0], steps[steps.len() - 1]);
        let up = f64::from(self.up_percent);
        let load = 100.0 * self.busiest(state, sample);
        state.held = 0;
        if load > up {
            state.held = self.sampling_down_factor.saturating_sub(1);
            return top;
        }
        match self.rule {
            Rule::Old { down_percent } => {
                let down = f64::from(down_percent);
                if load < down {
                    at_least(load * current.0 as f64 / down, steps)
                } else {
                    current
                }
            }
            Rule::New => nearest(bottom.0 as f64 + load / 100.0 * (top.0 - bottom.0) as f64, steps),
        }
    }

    /// Busy share of the busiest core.
    fn busiest(&self, state: &mut OndemandState, sample: &LoadSample<'_>) -> f64 {
        let LoadSample { loads, elapsed, .. } = *sample;
        let long_idle = self.sampling(sample.transition) * 2;
        state.previous.resize(loads.len(), None);
        let load = |(load, previous): (&CoreLoad, &mut Option<f64>)| {
            let idle = elapsed - load.busy;
            match (self.rule, *previous) {
                (Rule::New, Some(before)) if idle > long_idle => {
                    *previous = None;
                    before
                }
                _ => {
                    let share = if elapsed > Nanos::ZERO {
                        load.busy.ratio(elapsed).min(1.0)
                    } else {
                        0.0
                    };
                    *previous = Some(share);
                    share
                }
            }
        };
        loads.iter().zip(&mut state.previous).map(load).fold(0.0, f64::max)
    }
}

/// The nearest step; of two equally near, the lower, as `cpufreq_table_find_index_ac` finds it.
fn nearest(wanted: f64, steps: &[Hertz]) -> Hertz {
    let distance = |step: &Hertz| (step.0 as f64 - wanted).abs();
    let nearer = |best: Hertz, step: Hertz| if distance(&step) < distance(&best) { step } else { best };
    steps.iter().copied().fold(steps[0], nearer)
}

impl fmt::Display for Ondemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, usual) = match self.rule {
            Rule::Old { .. } => ("ondemand-old", Ondemand::old()),
            Rule::New => ("ondemand", Ondemand::modern()),
        };
        match self.rule {
            Rule::Old { down_percent } if self.rule != usual.rule || self.up_percent != usual.up_percent => {
                write!(f, "{name}:{down_percent}..{}", self.up_percent)
            }
            Rule::New if self.up_percent != usual.up_percent => write!(f, "{name}:{}", self.up_percent),
            Rule::Old { .. } | Rule::New => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use punctual_units::Time;

    const TRANSITION: Nanos = Nanos::from_micros(140);

    fn steps() -> Vec<Hertz> {
        (2..=20).map(|hundreds| Hertz::from_mhz(100 * hundreds)).collect()
    }

    fn load(percent: u64) -> CoreLoad {
        CoreLoad {
            busy: Nanos::from_millis(percent),
            ..CoreLoad::default()
        }
    }

    /// The clock in MHz after 100 ms in which the busiest core was busy for so many of them.
    fn after(rule: Ondemand, percent: u64, from_mhz: u64) -> u64 {
        let sample = LoadSample {
            now: Time::ZERO,
            elapsed: Nanos::from_millis(100),
            loads: &[load(percent / 2), load(percent)],
            current: Hertz::from_mhz(from_mhz),
            steps: &steps(),
            transition: TRANSITION,
        };
        rule.decide(&mut OndemandState::default(), &sample).0 / 1_000_000
    }

    /// What `rule` decides sample by sample at 200 MHz, for so many milliseconds busy of so many, and what it
    /// remembers.
    fn decide(rule: Ondemand, state: &mut OndemandState, busy_ms: u64, elapsed_ms: u64) -> Hertz {
        let sample = LoadSample {
            now: Time::ZERO,
            elapsed: Nanos::from_millis(elapsed_ms),
            loads: &[load(busy_ms)],
            current: Hertz::from_mhz(200),
            steps: &steps(),
            transition: TRANSITION,
        };
        rule.decide(state, &sample)
    }

    #[test]
    fn the_old_rule_jumps_up_holds_and_comes_down_to_where_it_would_be_just_below_up() {
        let rule = Ondemand::old_between(70, 80);
        assert_eq!(after(rule, 81, 600), 2000);
        assert_eq!(after(rule, 80, 600), 600, "not above up");
        assert_eq!(after(rule, 70, 1000), 1000, "not below up - diff");
        // 35 % of 2000 MHz is 70 % of 1000 MHz.
        assert_eq!(after(rule, 35, 2000), 1000);
        assert_eq!(after(rule, 36, 2000), 1100, "the lowest step that is enough");
        assert_eq!(after(rule, 0, 2000), 200);
    }

    #[test]
    fn the_papers_thresholds_are_wide() {
        let rule = Ondemand::old_between(20, 90);
        assert_eq!(after(rule, 91, 200), 2000);
        for held in [20, 50, 90] {
            assert_eq!(after(rule, held, 1300), 1300);
        }
        assert_eq!(after(rule, 10, 2000), 1000);
    }

    #[test]
    fn the_new_rule_maps_load_to_clock_whatever_the_clock_was() {
        for from in [200, 1000, 2000] {
            assert_eq!(after(Ondemand::modern(), 0, from), 200);
            assert_eq!(after(Ondemand::modern(), 50, from), 1100);
            assert_eq!(after(Ondemand::modern(), 95, from), 1900, "1910 MHz is nearest to 1900");
            assert_eq!(after(Ondemand::modern(), 96, from), 2000);
        }
    }

    #[test]
    fn after_long_idleness_the_load_before_counts_once_more() {
        let state = &mut OndemandState::default();
        let mut decide = |busy_ms, elapsed_ms| decide(Ondemand::modern(), state, busy_ms, elapsed_ms);
        assert_eq!(decide(10, 10), Hertz::from_mhz(2000));
        assert_eq!(decide(1, 100), Hertz::from_mhz(2000), "idle for 99 ms");
        assert_eq!(decide(1, 100), Hertz::from_mhz(200), "once only");
    }

    #[test]
    fn the_top_is_held_for_so_many_samples() {
        let rule = Ondemand {
            sampling_down_factor: 5,
            ..Ondemand::modern()
        };
        let state = &mut OndemandState::default();
        let mut stretch = |busy_ms| {
            decide(rule, state, busy_ms, 10);
            state.stretch()
        };
        assert_eq!((stretch(10), stretch(5)), (5, 1));
    }

    #[test]
    fn periods_are_their_eras() {
        assert_eq!(Ondemand::old().sampling(TRANSITION), Nanos::from_millis(140));
        assert_eq!(Ondemand::old().sampling(Nanos::from_micros(1)), TEN_MS);
        assert_eq!(Ondemand::modern().sampling(TRANSITION), TEN_MS);
        assert_eq!(
            Ondemand::modern().sampling(Nanos::from_micros(1)),
            Nanos::from_millis(1)
        );
    }

    proptest! {
        #[test]
        fn a_clock_is_a_step_and_more_load_never_lowers_it(
            percent in 0u64..100,
            from in 0usize..19,
            down in 10u32..90,
            new in any::<bool>(),
        ) {
            let rule = if new { Ondemand::modern() } else { Ondemand::old_between(down, down + 9) };
            let from = steps()[from].0 / 1_000_000;
            let (less, more) = (after(rule, percent, from), after(rule, percent + 1, from));
            prop_assert!(steps().contains(&Hertz::from_mhz(less)));
            prop_assert!(less <= more, "{} then {} MHz", less, more);
        }
    }
}
