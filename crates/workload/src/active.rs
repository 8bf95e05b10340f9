//! When a task is switched on.

use punctual_units::{Nanos, Time};
use serde::{Deserialize, Serialize};

/// The part of a run in which a task releases jobs, counted from the run's start: a disturbance comes and goes. A job
/// that is under way at the end of it is completed.
///
/// ```
/// use punctual_units::{Nanos, Time};
/// use punctual_workload::Active;
///
/// let disturbance = Active { from: Nanos::from_secs(150), until: Nanos::from_secs(400) };
/// let second = |s| Time::ZERO + Nanos::from_secs(s);
/// assert_eq!(disturbance.admit(Time::ZERO, second(150)), Some(second(150)));
/// assert_eq!(disturbance.admit(Time::ZERO, second(400)), None);
/// assert_eq!(Active::ALWAYS.admit(Time::ZERO, second(400)), Some(second(400)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// No job is released before.
    pub from: Nanos,
    /// No job is released from here on; [`Nanos::MAX`] for the whole run. After `from`.
    pub until: Nanos,
}

impl Active {
    /// For the whole run.
    pub const ALWAYS: Active = Active {
        from: Nanos::ZERO,
        until: Nanos::MAX,
    };

    /// `release`, if it falls before the end of this part of a run that began at `start`.
    pub fn admit(self, start: Time, release: Time) -> Option<Time> {
        (release < start + self.until).then_some(release)
    }
}
