//! The costs of lending an idle exclusive core, and until when a lease pays.

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

    /// End of a lease of a core that is idle at `now`, so that a job finds its core ready at its `release`; `None` if
    /// no other work would get to run until then.
    ///
    /// ```
    /// use punctual_cores::LendingCosts;
    /// use punctual_units::{Nanos, Time};
    /// let costs = LendingCosts { hand_over: Nanos::from_micros(15), take_back: Nanos::from_micros(40) };
    /// let release = Time(10_000_000);
    /// assert_eq!(costs.lease_end(Time(0), release), Some(Time(9_960_000)));
    /// assert_eq!(costs.lease_end(Time(9_950_000), release), None);
    /// ```
    pub fn lease_end(self, now: Time, release: Time) -> Option<Time> {
        let end = release - self.take_back;
        (end.since(now) > self.hand_over).then_some(end)
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
            match costs.lease_end(Time(now), Time(release)) {
                Some(end) => {
                    prop_assert!(end + costs.take_back <= Time(release), "ready at the release");
                    prop_assert!(Time(now) + costs.hand_over < end, "another thread gets to run");
                }
                None => prop_assert!(now + hand_over + take_back >= release, "no thread could have run"),
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
    }
}
