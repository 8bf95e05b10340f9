//! The kernel's clock governors: baselines that set the clock from utilisation alone and know no deadline.
//!
//! **Problem.** Where no controller sets the clock, the kernel does. A fair comparison needs its governors unchanged,
//! and "ondemand" names two algorithms, an old and a new one.
//!
//! **Method.** A governor is a pure state machine: the activity of the cores since the last sample in, a clock out. The
//! times of samples are part of it: a sample that falls due while every core is idle waits until one works, because the
//! kernel's deferrable timers and scheduler hooks do the same.
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

use punctual_units::{Hertz, Nanos};

pub use ondemand::{Ondemand, OndemandState, Rule};
pub(crate) use schedutil::Pelt;
pub use schedutil::Schedutil;

/// Governor that sets the clock while no controller does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Governor {
    /// The highest step, always.
    Performance,
    /// The step nearest to this clock, always: `userspace` with `scaling_setspeed`.
    Userspace(Hertz),
    /// Ondemand, by the old or the new rule.
    Ondemand(Ondemand),
    /// The clock follows the scheduler's utilisation.
    Schedutil(Schedutil),
}

/// Load of one core since the governor's last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreLoad {
    /// Time that the core was busy.
    pub busy: Nanos,
    /// Utilisation as the scheduler tracks it: a share of a core at the top clock, 0 to 1.
    pub utilisation: f64,
    /// Whether a real-time job is running on the core.
    pub real_time: bool,
}

/// A running governor with its state.
#[derive(Clone, Debug)]
pub(crate) enum Governing {
    Fixed(Hertz),
    Ondemand(Ondemand, OndemandState),
    Schedutil(Schedutil),
}

impl Governor {
    /// Starts the governor before its first sample, on a clock with these steps, which are ascending.
    pub(crate) fn start(self, steps: &[Hertz]) -> Governing {
        match self {
            Governor::Performance => Governing::Fixed(steps[steps.len() - 1]),
            Governor::Userspace(clock) => Governing::Fixed(clock),
            Governor::Ondemand(rule) => Governing::Ondemand(rule, OndemandState::default()),
            Governor::Schedutil(rule) => Governing::Schedutil(rule),
        }
    }
}

impl Governing {
    /// Time between samples on a clock with this transition time; `None` where one decision is final.
    pub fn sampling(&self, transition: Nanos) -> Option<Nanos> {
        match self {
            Governing::Fixed(_) => None,
            Governing::Ondemand(rule, state) => Some(rule.sampling(transition) * u64::from(state.stretch())),
            Governing::Schedutil(rule) => Some(rule.rate_limit(transition)),
        }
    }

    /// Decides the clock from now on, `elapsed` after the last sample; it may lie between two steps only where it is
    /// fixed.
    pub fn decide(
        &mut self,
        loads: &[CoreLoad],
        elapsed: Nanos,
        current: Hertz,
        steps: &[Hertz],
        transition: Nanos,
    ) -> Hertz {
        match self {
            Governing::Fixed(clock) => *clock,
            Governing::Ondemand(rule, state) => rule.decide(state, loads, elapsed, current, steps, transition),
            Governing::Schedutil(rule) => rule.decide(loads, steps),
        }
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

impl FromStr for Governor {
    type Err = UnknownGovernor;

    /// Reads `performance`, `userspace:1000MHz`, `ondemand-old` (with thresholds in percent: `ondemand-old:20..90`),
    /// `ondemand` (`ondemand:90`) or `schedutil`.
    fn from_str(name: &str) -> Result<Governor, UnknownGovernor> {
        let unknown = || UnknownGovernor { name: name.into() };
        let percent = |text: &str| {
            let share = text.parse::<u32>().ok().filter(|percent| (1..=100).contains(percent));
            share.ok_or_else(unknown)
        };
        match name.split_once(':').unwrap_or((name, "")) {
            ("performance", "") => Ok(Governor::Performance),
            ("schedutil", "") => Ok(Governor::Schedutil(Schedutil::default())),
            ("ondemand", "") => Ok(Governor::Ondemand(Ondemand::modern())),
            ("ondemand", up) => Ok(Governor::Ondemand(Ondemand {
                up_percent: percent(up)?,
                ..Ondemand::modern()
            })),
            ("ondemand-old", "") => Ok(Governor::Ondemand(Ondemand::old())),
            ("ondemand-old", range) => {
                let (down, up) = range.split_once("..").ok_or_else(unknown)?;
                let (down, up) = (percent(down)?, percent(up)?);
                match down < up {
                    true => Ok(Governor::Ondemand(Ondemand::old_between(down, up))),
                    false => Err(unknown()),
                }
            }
            ("userspace", clock) => {
                let mhz = clock.strip_suffix("MHz").and_then(|mhz| mhz.parse::<u32>().ok());
                mhz.map(|mhz| Governor::Userspace(Hertz::from_mhz(mhz.into())))
                    .ok_or_else(unknown)
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Governor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Governor::Performance => f.write_str("performance"),
            Governor::Userspace(clock) => write!(f, "userspace:{:.0}MHz", clock.as_mhz_f64()),
            Governor::Ondemand(rule) => rule.fmt(f),
            Governor::Schedutil(_) => f.write_str("schedutil"),
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
            assert_eq!(name.parse::<Governor>().unwrap().to_string(), name);
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
            let error = name.parse::<Governor>().unwrap_err();
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
