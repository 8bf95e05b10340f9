//! The kernel's clock governors: baselines that set the clock from utilisation alone and know no deadline.
//!
//! **Problem.** Where no controller sets the clock, the kernel does. A fair comparison needs its governors unchanged,
//! and "ondemand" names two algorithms, an old and a new one.
//!
//! **Method.** A governor is a pure state machine: the activity of the cores since the last sample in, a clock out
//! ([`Governor`]).
//!
//! | name | rule | of |
//! |---|---|---|
//! | `performance` | the top step | |
//! | `userspace:1000MHz` | one step | |
//! | `ondemand-old` | [`Ondemand::old`] | Linux 2.6.3x |
//! | `ondemand` | [`Ondemand::modern`] | Linux 3.12 and later |
//! | `schedutil` | [`Schedutil`] | Linux 4.7 and later |

mod ondemand;
mod schedutil;

use std::fmt;
use std::str::FromStr;

use punctual_sim::{Governor, LoadSample};
use punctual_units::{Hertz, Nanos, Time};

pub use ondemand::{Ondemand, OndemandState, Rule};
use schedutil::Pelt;
pub use schedutil::Schedutil;

/// Governor of the kernel with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KernelGovernor {
    /// The highest step, always.
    Performance,
    /// The step nearest to this clock, always: `userspace` with `scaling_setspeed`.
    Userspace(Hertz),
    /// Ondemand, by the old or the new rule.
    Ondemand(Ondemand),
    /// The clock follows the scheduler's utilisation.
    Schedutil(Schedutil),
}

/// A running governor with its state.
#[derive(Clone, Debug)]
struct GovernorState {
    governor: KernelGovernor,
    /// State of ondemand.
    loads: OndemandState,
    /// The scheduler's estimate of each core's utilisation, for schedutil.
    utilisation: Vec<Pelt>,
}

impl KernelGovernor {
    /// Starts the governor before its first sample.
    pub fn start(self) -> Box<dyn Governor> {
        Box::new(GovernorState {
            governor: self,
            loads: OndemandState::default(),
            utilisation: Vec::new(),
        })
    }
}

impl Governor for GovernorState {
    fn sampling(&self, transition: Nanos) -> Option<Nanos> {
        match self.governor {
            KernelGovernor::Performance | KernelGovernor::Userspace(_) => None,
            KernelGovernor::Ondemand(rule) => Some(rule.sampling(transition) * u64::from(self.loads.stretch())),
            KernelGovernor::Schedutil(rule) => Some(rule.rate_limit(transition)),
        }
    }

    /// The clock lies between two steps only with `userspace`.
    fn decide(&mut self, sample: &LoadSample<'_>) -> Hertz {
        match self.governor {
            KernelGovernor::Performance => sample.steps[sample.steps.len() - 1],
            KernelGovernor::Userspace(clock) => clock,
            KernelGovernor::Ondemand(rule) => rule.decide(&mut self.loads, sample),
            KernelGovernor::Schedutil(rule) => {
                let utilisation = self.utilisation.iter().map(|pelt| pelt.at(sample.now));
                rule.decide(utilisation.fold(0.0, f64::max), sample)
            }
        }
    }

    fn track(&mut self, core: usize, share: f64, now: Time) {
        if matches!(self.governor, KernelGovernor::Schedutil(_)) {
            let known = self.utilisation.len().max(core + 1);
            self.utilisation.resize(known, Pelt::default());
            self.utilisation[core].work(share, now);
        }
    }

    fn boxed(&self) -> Box<dyn Governor> {
        Box::new(self.clone())
    }
}

/// The lowest step at or above `wanted`, else the highest: the kernel's `CPUFREQ_RELATION_L`.
fn at_least(wanted: f64, steps: &[Hertz]) -> Hertz {
    let above = steps.partition_point(|step| (step.0 as f64) < wanted);
    steps[above.min(steps.len() - 1)]
}

/// A text that names no governor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{name}\" is no governor: write performance, userspace:1000MHz, ondemand-old, ondemand-old:20..90, ondemand, ondemand:90 or schedutil"
)]
pub struct UnknownGovernor {
    /// The text as written.
    pub name: String,
}

impl FromStr for KernelGovernor {
    type Err = UnknownGovernor;

    /// Reads `performance`, `userspace:1000MHz`, `ondemand-old` (with thresholds in percent: `ondemand-old:20..90`),
    /// `ondemand` (`ondemand:90`) or `schedutil`.
    fn from_str(name: &str) -> Result<KernelGovernor, UnknownGovernor> {
        let unknown = || UnknownGovernor { name: name.into() };
        let percent = |text: &str| {
            let share = text.parse::<u32>().ok().filter(|percent| (1..=100).contains(percent));
            share.ok_or_else(unknown)
        };
        match name.split_once(':').unwrap_or((name, "")) {
            ("performance", "") => Ok(KernelGovernor::Performance),
            ("schedutil", "") => Ok(KernelGovernor::Schedutil(Schedutil::default())),
            ("ondemand", "") => Ok(KernelGovernor::Ondemand(Ondemand::modern())),
            ("ondemand", up) => Ok(KernelGovernor::Ondemand(Ondemand {
                up_percent: percent(up)?,
                ..Ondemand::modern()
            })),
            ("ondemand-old", "") => Ok(KernelGovernor::Ondemand(Ondemand::old())),
            ("ondemand-old", range) => {
                let (down, up) = range.split_once("..").ok_or_else(unknown)?;
                let (down, up) = (percent(down)?, percent(up)?);
                match down < up {
                    true => Ok(KernelGovernor::Ondemand(Ondemand::old_between(down, up))),
                    false => Err(unknown()),
                }
            }
            ("userspace", clock) => {
                let mhz = clock.strip_suffix("MHz").and_then(|mhz| mhz.parse::<u32>().ok());
                mhz.map(|mhz| KernelGovernor::Userspace(Hertz::from_mhz(mhz.into())))
                    .ok_or_else(unknown)
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for KernelGovernor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelGovernor::Performance => f.write_str("performance"),
            KernelGovernor::Userspace(clock) => write!(f, "userspace:{:.0}MHz", clock.as_mhz_f64()),
            KernelGovernor::Ondemand(rule) => rule.fmt(f),
            KernelGovernor::Schedutil(_) => f.write_str("schedutil"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in [
            "performance",
            "userspace:1000MHz",
            "ondemand-old",
            "ondemand-old:20..90",
            "ondemand",
            "ondemand:90",
            "schedutil",
        ] {
            assert_eq!(name.parse::<KernelGovernor>().unwrap().to_string(), name);
        }
        for name in [
            "",
            "conservative",
            "userspace",
            "userspace:1GHz",
            "ondemand:0",
            "ondemand-old:90..20",
            "performance:1",
        ] {
            let error = name.parse::<KernelGovernor>().unwrap_err();
            assert!(error.to_string().contains("schedutil"), "{error}");
        }
    }

    #[test]
    fn the_lowest_step_that_suffices() {
        let steps = [400, 800, 1200].map(Hertz::from_mhz);
        let found = |mhz: f64| at_least(mhz * 1e6, &steps).as_mhz_f64();
        assert_eq!(
            [0.0, 400.0, 401.0, 1200.0, 5000.0].map(found),
            [400.0, 400.0, 800.0, 1200.0, 1200.0]
        );
    }
}
