//! What lending costs, learnt from the leases themselves.
//!
//! **Problem.** What was measured before a run was measured beside another load than the run's. **Method.** The costs
//! are a quantile of the latest leases' ones, those of the measurement before the run counting as the oldest. A release
//! before which nothing was lent forgets the oldest figure: costs so high that nothing is lent any more would otherwise
//! stay for ever. With nothing left the measurement before the run counts again.

use std::collections::VecDeque;

use punctual_units::{Nanos, Share};

use super::LendingCosts;

/// A sliding window over leases.
#[derive(Clone, Debug)]
pub struct LearntCosts {
    hand_over: VecDeque<Nanos>,
    take_back: VecDeque<Nanos>,
    quantile: Share,
    window: usize,
    before: LendingCosts,
}

impl LearntCosts {
    /// Costs that the share `quantile` of the latest `window` leases (at least one) does not exceed, beginning with the
    /// figures of a measurement. Without figures lending costs nothing until the first lease.
    ///
    /// ```
    /// use punctual_cores::LearntCosts;
    /// use punctual_units::{Nanos, Share};
    /// let idle = [Nanos::from_micros(50); 200];
    /// let mut costs = LearntCosts::new(&idle, &idle, Share::clamped(0.99), 200);
    /// assert_eq!(costs.costs().take_back, Nanos::from_micros(50));
    /// for _ in 0..3 {
    ///     costs.lent(Nanos::from_micros(60), Nanos::from_micros(400));
    /// }
    /// assert_eq!(costs.costs().take_back, Nanos::from_micros(400));
    /// ```
    pub fn new(hand_over: &[Nanos], take_back: &[Nanos], quantile: Share, window: usize) -> LearntCosts {
        let window = window.max(1);
        let latest = |figures: &[Nanos]| {
            figures[figures.len().saturating_sub(window)..]
                .iter()
                .copied()
                .collect()
        };
        LearntCosts {
            hand_over: latest(hand_over),
            take_back: latest(take_back),
            quantile,
            window,
            before: LendingCosts::measured(hand_over, take_back, quantile).unwrap_or_default(),
        }
    }

    /// A lease cost so much.
    pub fn lent(&mut self, hand_over: Nanos, take_back: Nanos) {
        for (figures, figure) in [(&mut self.hand_over, hand_over), (&mut self.take_back, take_back)] {
            if figures.len() == self.window {
                figures.pop_front();
            }
            figures.push_back(figure);
        }
    }

    /// There was a release, and no lease before it.
    pub fn kept(&mut self) {
        self.hand_over.pop_front();
        self.take_back.pop_front();
    }

    /// What the next lease is to be taken to cost.
    pub fn costs(&mut self) -> LendingCosts {
        let quantile = self.quantile;
        let (hand_over, take_back) = (self.hand_over.make_contiguous(), self.take_back.make_contiguous());
        LendingCosts::measured(hand_over, take_back, quantile).unwrap_or(self.before)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn p99() -> Share {
        Share::clamped(0.99)
    }

    proptest! {
        /// After a window of leases only these count.
        #[test]
        fn a_window_later_what_was_before_is_forgotten(
            before in prop::collection::vec(0u64..1000, 0..30),
            leases in prop::collection::vec(0u64..1000, 8),
        ) {
            let figures = |of: &[u64]| of.iter().copied().map(Nanos).collect::<Vec<_>>();
            let (before, leases) = (figures(&before), figures(&leases));
            let mut learnt = LearntCosts::new(&before, &before, p99(), leases.len());
            leases.iter().for_each(|cost| learnt.lent(*cost, *cost));
            prop_assert_eq!(Some(learnt.costs()), LendingCosts::measured(&leases, &leases, p99()));
        }

        /// Nothing that a core once cost keeps it from being lent for longer than a window of releases.
        #[test]
        fn what_is_not_lent_is_tried_again(stall in 1u64..1_000_000_000, window in 1usize..50) {
            let usual = [Nanos(50)];
            let mut learnt = LearntCosts::new(&usual, &usual, p99(), window);
            learnt.lent(Nanos(stall), Nanos(stall));
            (0..window + 1).for_each(|_| learnt.kept());
            prop_assert_eq!(learnt.costs(), LendingCosts { hand_over: Nanos(50), take_back: Nanos(50) });
        }
    }

    #[test]
    fn one_stall_in_two_hundred_leases_does_not_count_and_three_do() {
        let usual = [Nanos(50); 200];
        let mut learnt = LearntCosts::new(&usual, &usual, p99(), 200);
        for (stalls, cost) in [(1, 50), (2, 50), (3, 9000)] {
            learnt.lent(Nanos(50), Nanos(9000));
            assert_eq!(learnt.costs().take_back, Nanos(cost), "{stalls} stalls");
        }
    }
}
