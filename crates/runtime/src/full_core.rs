//! Whether our own real-time threads left their core any slack: values in, values out.
//!
//! **Problem.** The kernel takes a core away from real-time threads that fill it (real-time throttling: 0.95 of every
//! second by default, `/proc/sys/kernel/sched_rt_runtime_us`). To the probe that looks like any other gap, but the
//! machine is not to blame, so such a gap excuses no late job. **Method.** Sum the CPU time of our own real-time
//! threads on that core over the last second. Other programs there do not count: they disturb us, which is the very
//! case for an excuse.

use std::collections::VecDeque;

use punctual_units::{Nanos, Time};

/// Default period of the kernel's real-time throttling.
const SECOND: Nanos = Nanos::from_secs(1);

/// Our share of the second from which throttling must be expected; the kernel's default limit is 95 %.
const FULL_SHARE: f64 = 0.94;

/// Measurements closer together than this are merged.
const APART: Nanos = Nanos::from_millis(1);

/// Greatest number of points: one per [`APART`] of the second, and one at either end.
const POINTS_MAX: usize = 1002;

/// CPU time of our threads over the last second.
#[derive(Clone, Debug)]
pub struct FullCore {
    /// Time of each measurement, with the CPU time until then. The first is at least a second old, once any is.
    points: VecDeque<(Time, Nanos)>,
}

impl Default for FullCore {
    /// Allocates all memory that it will ever use.
    fn default() -> Self {
        FullCore {
            points: VecDeque::with_capacity(POINTS_MAX),
        }
    }
}

impl FullCore {
    /// Adds a measurement: the cumulative CPU time `used` until `now`. Returns whether the second before `now` was
    /// full; never true in the first second.
    pub fn observe(&mut self, now: Time, used: Nanos) -> bool {
        while self.points.get(1).is_some_and(|(at, _)| now.since(*at) >= SECOND) {
            self.points.pop_front();
        }
        let (since, before) = *self.points.front().unwrap_or(&(now, used));
        let span = now.since(since);
        if self.points.back().is_none_or(|(at, _)| now.since(*at) >= APART) {
            self.points.push_back((now, used));
        }
        span >= SECOND && used.saturating_sub(before).ratio(span) >= FULL_SHARE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The answers to windows of 100 ms, each busy by such a share.
    fn answers(shares: &[f64]) -> Vec<bool> {
        let window = Nanos::from_millis(100);
        let mut core = FullCore::default();
        let mut used = Nanos::ZERO;
        core.observe(Time::ZERO, used);
        let step = |(k, share): (u64, &f64)| {
            used += window.scaled(*share);
            core.observe(Time::ZERO + window * k, used)
        };
        (1..).zip(shares).map(step).collect()
    }

    #[test]
    fn a_core_is_full_by_the_second_not_by_the_window() {
        let alternating: Vec<f64> = (0..20).map(|k| f64::from(k % 2)).collect();
        assert!(!answers(&alternating).contains(&true));
        let full = answers(&[0.96; 20]);
        assert_eq!(
            full.iter().filter(|full| **full).count(),
            11,
            "each window that ends a full second"
        );
        assert!(!answers(&[0.96; 9]).contains(&true), "less than a second says nothing");
    }

    proptest! {
        /// However often it is asked, the memory is bounded, and threads that use less than the share never fill it.
        #[test]
        fn little_work_never_fills_a_core(
            gaps in prop::collection::vec(1u64..20_000_000, 1..3000),
            share in 0.0f64..0.93,
        ) {
            let mut core = FullCore::default();
            let mut now = Time::ZERO;
            for gap in gaps {
                now = now + Nanos(gap);
                prop_assert!(!core.observe(now, now.since(Time::ZERO).scaled(share)));
                prop_assert!(core.points.len() <= POINTS_MAX);
            }
        }
    }
}
