//! The modes of the loop.
//!
//! ```text
//!            warm-up is over            a reading, a knob or the model fails
//!  WarmUp ────────────────────► Running ────────────────────────────────► Fallback
//!   ▲  │                           ▲                                       │  │  ▲
//!   │  │ a reading or a knob fails │ GOOD_WINDOWS good windows in a row    │  │  │
//!   │  │                           └───────────────────────────────────────┘  │  │
//!   │  └──────────────────────────────────────────────────────────────────────┼──┘
//!   └─────────────────────────────────────────────────────────────────────────┘
//!     the same, while warm-up is not over
//! ```
//!
//! In fallback the knobs go to the safe setting (see [`crate::Regulator`]), and the report says why. Readings may be
//! missing for a while without harm (a window in which no job ended), so silence becomes a failure only after
//! [`SILENT_WINDOWS`] and [`SILENT_RELEASES`].

use punctual_units::Time;
use serde::{Deserialize, Serialize};

/// Windows without a finished real-time job after which tardiness counts as lost, at the least.
pub const SILENT_WINDOWS: u64 = 10;

/// As `SILENT_WINDOWS`, in releases of the rarest real-time task: a job may be late, or outlive a few windows.
pub const SILENT_RELEASES: u64 = 10;

/// Good windows in a row after which the loop trusts its meters and knobs again. After silence a window with late jobs
/// is not good: the jobs that waited meanwhile are still being worked off.
pub const GOOD_WINDOWS: u32 = 5;

/// Mode of the loop, with its state.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Holds the operating point so that the first decision sees a running system.
    WarmUp {
        /// When warm-up is over.
        until: Time,
    },
    /// The control law turns the knobs.
    Running,
    /// Holds the safe setting.
    Fallback {
        /// Description of the failure.
        reason: String,
        /// Good windows since the failure.
        good: u32,
        /// When warm-up is over: a fault does not shorten it.
        until: Time,
    },
}

punctual_units::named! {
    /// A mode without its state, for reports.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum ModeName by as_str {
        #[default]
        WarmUp = "warm-up",
        Running = "running",
        Fallback = "fallback",
    }
}

impl Mode {
    /// The mode after a window that ended at `now` with the given `fault`, if any. `good`: the window counts towards
    /// the end of a fallback.
    pub fn next(self, fault: Option<String>, good: bool, now: Time) -> Mode {
        match (self, fault) {
            (Mode::Running, Some(reason)) => Mode::fallback(reason, now),
            (Mode::WarmUp { until } | Mode::Fallback { until, .. }, Some(reason)) => Mode::fallback(reason, until),
            (Mode::WarmUp { until }, None) => Mode::starting(until, now),
            (Mode::Running, None) => Mode::Running,
            (Mode::Fallback { reason, until, .. }, None) if !good => Mode::fallback(reason, until),
            (Mode::Fallback { good, until, .. }, None) if good + 1 >= GOOD_WINDOWS => Mode::starting(until, now),
            (Mode::Fallback { reason, good, until }, None) => Mode::Fallback {
                reason,
                good: good + 1,
                until,
            },
        }
    }

    fn fallback(reason: String, until: Time) -> Mode {
        Mode::Fallback { reason, good: 0, until }
    }

    /// Warm-up, or running once it is over.
    fn starting(until: Time, now: Time) -> Mode {
        if now < until {
            Mode::WarmUp { until }
        } else {
            Mode::Running
        }
    }

    /// The mode's name in reports.
    pub fn name(&self) -> ModeName {
        match self {
            Mode::WarmUp { .. } => ModeName::WarmUp,
            Mode::Running => ModeName::Running,
            Mode::Fallback { .. } => ModeName::Fallback,
        }
    }

    /// Why the loop is in fallback; `None` if it is not.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Mode::Fallback { reason, .. } => Some(reason),
            Mode::WarmUp { .. } | Mode::Running => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: Option<&str> = Some("clock meter: no such file");

    fn fault(reason: Option<&str>) -> Option<String> {
        reason.map(String::from)
    }

    #[test]
    fn warm_up_ends_on_time_and_any_fault_falls_back() {
        let warm = Mode::WarmUp { until: Time(100) };
        assert_eq!(warm.clone().next(None, true, Time(99)), warm);
        assert_eq!(warm.clone().next(None, true, Time(100)), Mode::Running);
        assert_eq!(warm.next(fault(FAULT), true, Time(1)).reason(), FAULT);
        assert_eq!(
            Mode::Running.next(fault(FAULT), true, Time(1)).name(),
            ModeName::Fallback
        );
    }

    #[test]
    fn a_fault_does_not_shorten_warm_up() {
        let mut mode = Mode::WarmUp { until: Time(100) }.next(fault(FAULT), true, Time(1));
        for _ in 0..GOOD_WINDOWS {
            assert_eq!(mode.name(), ModeName::Fallback);
            mode = mode.next(None, true, Time(2));
        }
        assert_eq!(mode, Mode::WarmUp { until: Time(100) });
        assert_eq!(mode.next(None, true, Time(100)), Mode::Running);
    }

    #[test]
    fn fallback_ends_only_after_enough_good_windows_in_a_row() {
        let mut mode = Mode::Running.next(fault(FAULT), true, Time(1));
        for _ in 0..GOOD_WINDOWS - 1 {
            mode = mode.next(None, true, Time(2));
            assert_eq!(mode.name(), ModeName::Fallback);
        }
        let relapsed = mode.clone().next(fault(FAULT), true, Time(3));
        assert_eq!(
            relapsed,
            Mode::Fallback {
                reason: FAULT.unwrap().into(),
                good: 0,
                until: Time(1)
            }
        );
        assert_eq!(mode.next(None, true, Time(3)), Mode::Running);
    }
    #[test]
    fn a_window_that_is_not_good_begins_the_count_anew() {
        let mut mode = Mode::Running.next(fault(FAULT), true, Time(1));
        let goods = [true, true, true, true, false, true, true, true, true];
        for good in goods {
            mode = mode.next(None, good, Time(2));
            assert_eq!(mode.name(), ModeName::Fallback);
        }
        assert_eq!(mode.next(None, true, Time(3)), Mode::Running);
    }
}
