//! Decides whether an idle exclusive core is lent, and until when.

use punctual_units::{Nanos, Share, Time, percentile};
use serde::{Deserialize, Serialize};

/// Costs of lending as measured on the machine (a high percentile, not a mean: the cost is paid by a deadline).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LendingCosts {
    /// From the decision to lend until other work runs there.
    pub hand_over: Nanos,
    /// From the decision to take back until the real-time job could run there.
    pub take_back: Nanos,
}

impl LendingCosts {
    /// The costs that the share `quantile` of the measured ones does not exceed (nearest rank); `None` where one of
    /// them was never measured.
    ///
    /// ```
    /// use punctual_cores::LendingCosts;
    /// use punctual_units::{Nanos, Share};
    /// let measured: Vec<Nanos> = (1..=100).map(Nanos::from_micros).collect();
    /// let costs = LendingCosts::measured(&measured, &measured, Share::clamped(0.99)).unwrap();
    /// assert_eq!(costs.take_back, Nanos::from_micros(99));
    /// ```
    pub fn measured(hand_over: &[Nanos], take_back: &[Nanos], quantile: Share) -> Option<LendingCosts> {
        let at = |samples: &[Nanos]| percentile(samples.iter().copied(), quantile.get());
        Some(LendingCosts {
            hand_over: at(hand_over)?,
            take_back: at(take_back)?,
        })
    }
}

/// Knowledge about the core's next real-time job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRelease {
    /// Released at this instant: a periodic task's timer.
    At(Time),
    /// Released any time from now on: an event, or a job that waits for its medium.
    Anytime {
        /// The least slack of the core's tasks: deadline less response bound. The job may begin this much later.
        slack: Nanos,
    },
    /// No further job comes.
    Never,
}

/// Decision about an idle exclusive core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Leave the core idle: the time is too short to lend it.
    Keep,
    /// Lend the core; begin to take it back at this instant.
    Until(Time),
    /// Lend the core; take it back when the next job is released.
    UntilReleased,
}

/// Decides whether to lend a core that is idle at `now`.
///
/// A lease ends `take_back` before a known release, so that the job finds its core ready; it is granted only if other
/// work gets to run at all, that is if more than `hand_over` lies before its end. Where the release is not known,
/// taking back delays the job by `take_back`: the core is lent if the job's slack covers that.
///
/// ```
/// use punctual_cores::{Lease, LendingCosts, NextRelease, lend};
/// use punctual_units::{Nanos, Time};
/// let costs = LendingCosts { hand_over: Nanos::from_micros(15), take_back: Nanos::from_micros(40) };
/// let release = Time(10_000_000);
/// assert_eq!(lend(Time(0), NextRelease::At(release), costs), Lease::Until(Time(9_960_000)));
/// assert_eq!(lend(Time(9_950_000), NextRelease::At(release), costs), Lease::Keep);
/// ```
pub fn lend(now: Time, next: NextRelease, costs: LendingCosts) -> Lease {
    match next {
        NextRelease::Never => Lease::UntilReleased,
        NextRelease::Anytime { slack } if slack >= costs.take_back => Lease::UntilReleased,
        NextRelease::Anytime { .. } => Lease::Keep,
        NextRelease::At(release) => {
            let end = release - costs.take_back;
            if end.since(now) > costs.hand_over {
                Lease::Until(end)
            } else {
                Lease::Keep
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_lease_is_of_use_and_ends_in_time(
            now in 0u64..1000,
            release in 0u64..1000,
            hand_over in 0u64..300,
            take_back in 0u64..300,
        ) {
            let costs = LendingCosts { hand_over: Nanos(hand_over), take_back: Nanos(take_back) };
            match lend(Time(now), NextRelease::At(Time(release)), costs) {
                Lease::Until(end) => {
                    prop_assert!(end + costs.take_back <= Time(release), "ready at the release");
                    prop_assert!(Time(now) + costs.hand_over < end, "another thread gets to run");
                }
                Lease::Keep => prop_assert!(now + hand_over + take_back >= release, "no thread could have run"),
                Lease::UntilReleased => prop_assert!(false, "the release is known"),
            }
        }

        #[test]
        fn no_more_than_the_rest_of_the_measured_costs_exceeds(
            samples in prop::collection::vec(0u64..100, 1..50),
            quantile in 0.0..=1.0f64,
        ) {
            let samples: Vec<Nanos> = samples.into_iter().map(Nanos).collect();
            let costs = LendingCosts::measured(&samples, &samples, Share::clamped(quantile)).unwrap();
            let above = samples.iter().filter(|sample| **sample > costs.take_back).count();
            prop_assert!(above as f64 <= (1.0 - quantile) * samples.len() as f64 + 1e-9);
            prop_assert!(samples.contains(&costs.hand_over));
            prop_assert_eq!(LendingCosts::measured(&samples, &[], Share::clamped(quantile)), None);
        }

        #[test]
        fn an_unknown_release_is_risked_only_within_the_slack(slack in 0u64..300, take_back in 0u64..300) {
            let costs = LendingCosts { hand_over: Nanos::ZERO, take_back: Nanos(take_back) };
            let lent = lend(Time(7), NextRelease::Anytime { slack: Nanos(slack) }, costs) == Lease::UntilReleased;
            prop_assert_eq!(lent, take_back <= slack);
        }
    }
}
