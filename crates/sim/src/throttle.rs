//! The best-effort share as a duty cycle, like a CPU quota of the kernel.
//!
//! Best-effort work runs in the first part of each period and is stopped for the rest. The quota of a period is not
//! carried over, so the share is an upper bound in every period.

use punctual_units::{Nanos, Share, Time};

/// Period of the duty cycle. Chosen by hand: kernel quotas are no smoother than this.
pub const THROTTLE_PERIOD: Nanos = Nanos::from_millis(10);

/// Duty cycle of best-effort work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throttle {
    pub share: Share,
}

impl Throttle {
    /// Time that best-effort work may run in each period.
    fn open_span(self) -> Nanos {
        THROTTLE_PERIOD.scaled(self.share.get())
    }

    /// Whether best-effort work may run at `now`.
    pub fn open(self, now: Time) -> bool {
        now.0 % THROTTLE_PERIOD.0 < self.open_span().0
    }

    /// When that changes next; `Time::MAX` for a share of 0 or 1.
    pub fn next_change(self, now: Time) -> Time {
        let open = self.open_span();
        if open == Nanos::ZERO || open == THROTTLE_PERIOD {
            return Time::MAX;
        }
        let phase = Nanos(now.0 % THROTTLE_PERIOD.0);
        let ends = if phase < open { open } else { THROTTLE_PERIOD };
        now + (ends - phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_open_time_is_the_share(share in 0.0f64..=1.0, start in 0u64..1 << 40) {
            let throttle = Throttle { share: Share::clamped(share) };
            // From the start of one period to the start of another.
            let start = Time(start - start % THROTTLE_PERIOD.0);
            let end = start + THROTTLE_PERIOD * 3;
            let (mut now, mut open) = (start, Nanos::ZERO);
            while now < end {
                let next = throttle.next_change(now).min(end);
                if throttle.open(now) {
                    open += next.since(now);
                }
                now = next;
            }
            let expected = (THROTTLE_PERIOD * 3).scaled(share);
            prop_assert!(open.0.abs_diff(expected.0) <= 3, "{} for {}", open, expected);
        }
    }
}
