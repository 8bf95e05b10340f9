//! Costs of lending, learned from the leases themselves.
//!
//! **Problem.** A measurement before a run is made beside another load than the run's. **Method.** The costs are a
//! quantile of the latest leases' costs; the samples measured before the run count as the oldest. A release before
//! which nothing was lent drops the oldest sample: otherwise costs so high that nothing is lent any more would never
//! fall. Once no sample is left the measurement before the run counts again.

use std::collections::VecDeque;

use punctual_units::{Nanos, Share, percentile_of_rising};

use super::LendingCosts;

/// Sliding window over the costs of leases.
#[derive(Clone, Debug)]
pub struct LearntCosts {
    hand_over: Latest,
    take_back: Latest,
    quantile: Share,
    before: LendingCosts,
}

/// The latest samples, at most `room`. Nothing here allocates after the start: a real-time thread asks before each
/// lease.
#[derive(Clone, Debug)]
struct Latest {
    in_order: VecDeque<Nanos>,
    rising: Vec<Nanos>,
    room: usize,
}

impl Latest {
    fn new(figures: &[Nanos], room: usize) -> Latest {
        let mut latest = Latest {
            in_order: VecDeque::with_capacity(room),
            rising: Vec::with_capacity(room),
            room,
        };
        figures.iter().for_each(|figure| latest.push(*figure));
        latest
    }

    fn push(&mut self, figure: Nanos) {
        if self.in_order.len() == self.room {
            self.forget_oldest();
        }
        self.in_order.push_back(figure);
        let place = self.rising.partition_point(|other| *other < figure);
        self.rising.insert(place, figure);
    }

    fn forget_oldest(&mut self) {
        let oldest = self.in_order.pop_front();
        let place = oldest.and_then(|oldest| self.rising.binary_search(&oldest).ok());
        place.map(|place| self.rising.remove(place));
    }

    fn at(&self, quantile: Share) -> Option<Nanos> {
        percentile_of_rising(&self.rising, quantile.get())
    }
}

impl LearntCosts {
    /// Returns costs that the share `quantile` of the latest `window` leases (at least one) does not exceed, beginning
    /// with the samples of a measurement. Without samples lending costs nothing until the first lease.
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
        LearntCosts {
            hand_over: Latest::new(hand_over, window),
            take_back: Latest::new(take_back, window),
            quantile,
            before: LendingCosts::measured(hand_over, take_back, quantile).unwrap_or_default(),
        }
    }

    /// Adds the costs of one lease.
    pub fn lent(&mut self, hand_over: Nanos, take_back: Nanos) {
        self.hand_over.push(hand_over);
        self.take_back.push(take_back);
    }

    /// Drops the oldest samples: a release came with no lease before it.
    pub fn kept(&mut self) {
        self.hand_over.forget_oldest();
        self.take_back.forget_oldest();
    }

    /// Expected costs of the next lease.
    pub fn costs(&self) -> LendingCosts {
        let figures = self.hand_over.at(self.quantile).zip(self.take_back.at(self.quantile));
        figures.map_or(self.before, |(hand_over, take_back)| LendingCosts {
            hand_over,
            take_back,
        })
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
