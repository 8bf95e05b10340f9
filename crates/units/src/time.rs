//! Instants, spans, and the clock that returns instants.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A span of time in nanoseconds, 0 to about 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

/// An instant in nanoseconds since the origin of the machine's clock (boot on Linux, start of the run in `sim`).
///
/// Instants of different machines do not compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Nanos {
    /// Empty span, 0 ns.
    pub const ZERO: Nanos = Nanos(0);
    /// Longest span; used for "without bound".
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// Converts microseconds to nanoseconds; saturates at `Nanos::MAX`.
    pub const fn from_micros(micros: u64) -> Self {
        Nanos(micros.saturating_mul(1_000))
    }

    /// Converts milliseconds to nanoseconds; saturates at `Nanos::MAX`.
    pub const fn from_millis(millis: u64) -> Self {
        Nanos(millis.saturating_mul(1_000_000))
    }

    /// Converts seconds to nanoseconds; saturates at `Nanos::MAX`.
    pub const fn from_secs(secs: u64) -> Self {
        Nanos(secs.saturating_mul(1_000_000_000))
    }

    /// Converts seconds, rounded to the nanosecond; negative values and NaN become zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Nanos((secs * 1e9).round() as u64) // float-to-int casts saturate
    }

    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// The span in milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 * 1e-6
    }

    /// The span in microseconds.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 * 1e-3
    }

    /// Computes `self - other`, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }

    /// Multiplies by a non-negative factor; negative factors and NaN give zero.
    pub fn scaled(self, factor: f64) -> Nanos {
        Nanos((self.0 as f64 * factor).round() as u64)
    }

    /// Ratio `self / other`; if `other` is zero, infinite, or NaN for two zeros.
    pub fn ratio(self, other: Nanos) -> f64 {
        self.0 as f64 / other.0 as f64
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Duration {
        Duration::from_nanos(span.0)
    }
}

impl From<Duration> for Nanos {
    fn from(span: Duration) -> Nanos {
        Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        self.saturating_sub(other)
    }
}

impl Mul<u64> for Nanos {
    type Output = Nanos;
    fn mul(self, times: u64) -> Nanos {
        Nanos(self.0.saturating_mul(times))
    }
}

impl std::iter::Sum for Nanos {
    fn sum<I: Iterator<Item = Nanos>>(spans: I) -> Nanos {
        spans.fold(Nanos::ZERO, Add::add)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.1} us", self.as_micros_f64()),
            1_000_000..1_000_000_000 => write!(f, "{:.2} ms", self.as_millis_f64()),
            _ => write!(f, "{:.2} s", self.as_secs_f64()),
        }
    }
}

impl Time {
    /// Origin of the clock: boot on Linux, the run's start in `sim`.
    pub const ZERO: Time = Time(0);
    /// Instant that never comes; used for "no deadline".
    pub const MAX: Time = Time(u64::MAX);

    /// Span since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// Seconds since the clock's origin.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }
}

impl Add<Nanos> for Time {
    type Output = Time;
    fn add(self, span: Nanos) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub<Nanos> for Time {
    type Output = Time;
    fn sub(self, span: Nanos) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

/// Source of instants. Policies never hold a clock: they are given `now`.
pub trait Clock {
    /// Current instant; never runs backwards.
    fn now(&self) -> Time;

    /// Current instant of a clock that runs on while the machine is suspended: for ages only, never compared with a
    /// deadline. Equals [`now`](Clock::now) on a machine that is never suspended.
    fn since_boot(&self) -> Time {
        self.now()
    }

    /// Stamp for measuring short spans within one thread: only the difference of two stamps has a meaning, and is off
    /// by a few tens of nanoseconds. Cheaper than [`now`](Clock::now) where the machine allows.
    fn stamp(&self) -> Time {
        self.now()
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Time {
        (**self).now()
    }

    fn since_boot(&self) -> Time {
        (**self).since_boot()
    }

    fn stamp(&self) -> Time {
        (**self).stamp()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }

    fn since_boot(&self) -> Time {
        (**self).since_boot()
    }

    fn stamp(&self) -> Time {
        (**self).stamp()
    }
}

/// A clock that stands still until it is moved: for tests and for the simulated machine.
///
/// Clones share the same instant.
///
/// ```
/// use punctual_units::{Clock, ManualClock, Nanos, Time};
/// let clock = ManualClock::default();
/// clock.advance(Nanos::from_millis(5));
/// assert_eq!(clock.now(), Time(5_000_000));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Moves the clock forward to `instant`; an earlier instant is ignored.
    pub fn set(&self, instant: Time) {
        self.0.fetch_max(instant.0, Ordering::AcqRel);
    }

    /// Moves the clock forward by `span`.
    pub fn advance(&self, span: Nanos) {
        self.0.fetch_add(span.0, Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_span_added_and_measured_again_is_the_same(start in 0..u64::MAX / 2, span in 0..u64::MAX / 2) {
            prop_assert_eq!((Time(start) + Nanos(span)).since(Time(start)), Nanos(span));
        }

        #[test]
        fn arithmetic_saturates_instead_of_wrapping(a in any::<u64>(), b in any::<u64>()) {
            prop_assert!(Nanos(a) + Nanos(b) >= Nanos(a.max(b)));
            prop_assert!(Nanos(a) - Nanos(b) <= Nanos(a));
        }

        #[test]
        fn seconds_round_trip_within_float_precision(nanos in 0u64..1 << 52) {
            let back = Nanos::from_secs_f64(Nanos(nanos).as_secs_f64());
            prop_assert!(back.0.abs_diff(nanos) <= 1);
        }
    }

    #[test]
    fn senseless_seconds_become_zero_spans() {
        assert_eq!(Nanos::from_secs_f64(-1.0), Nanos::ZERO);
        assert_eq!(Nanos::from_secs_f64(f64::NAN), Nanos::ZERO);
    }

    #[test]
    fn a_manual_clock_never_runs_backwards() {
        let clock = ManualClock::default();
        clock.set(Time(10));
        clock.set(Time(5));
        assert_eq!(clock.now(), Time(10));
    }
}
