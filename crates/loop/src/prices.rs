//! The admitted share by prices: as fresh as data are worth, once goals hold.
//!
//! **Problem.** Sensor updates cost energy, and goals only say how fresh data must be at least. A set point of the data
//! response ratio buys freshness at any cost.
//!
//! **Method.** In this order: the minimum of fresh data (admission keeps it), the goals of tasks (a [`Staircase`] cuts
//! the share where the clock at its top is not enough), and of what is left the share of least cost
//!
//! ```text
//! cost = energy * (watts of the machine) - freshness * (share of fresh data)        in watts
//! ```
//!
//! Where freshness costs nothing that is the least share, where energy does all updates; no meter is needed for either.
//! Else the share descends the measured cost: it moves by a step, waits [`SETTLE`], and measures for [`SPAN`]. A step
//! that made the cost higher is reversed and halved, others grow a little, between [`STEP_MIN`] and [`STEP_MAX`], so
//! that the share follows a load that changes. A span in which the law did not run, or late jobs cut the share, counts
//! for nothing. All constants are chosen by hand.

use punctual_units::{Nanos, Share, Time};
use punctual_workload::Prices;

use crate::event::Vitals;
use crate::staircase::{BestEffortRange, Staircase};

/// Time after a step that does not count: data of up to this age were admitted at the share before.
const SETTLE: Nanos = Nanos::from_secs(2);
/// Time over which the cost of a share is measured.
const SPAN: Nanos = Nanos::from_secs(3);
/// First, least and largest step of the share.
const STEP: f64 = 0.1;
const STEP_MIN: f64 = 0.02;
const STEP_MAX: f64 = 0.15;
/// Factor of a step after one that did not raise the cost.
const ON: f64 = 1.3;

/// The admitted share, and what it is found from.
#[derive(Clone, Debug)]
pub(crate) struct Pricing {
    prices: Prices,
    /// Share of least cost, as far as known.
    asked: f64,
    /// The share in force: that one, or less where jobs are late.
    share: Staircase,
    /// Step to the next share; negative: down.
    step: f64,
    /// Cost of the share before.
    before: Option<f64>,
    span: Span,
}

/// A measurement under way.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    /// When the share was set.
    since: Time,
    /// When the measurement began, and the energy by then, in joules.
    from: Option<(Time, f64)>,
    /// Sum of the fresh shares, and their number.
    fresh: f64,
    samples: u32,
}

impl Span {
    fn starting(since: Time) -> Span {
        Span {
            since,
            ..Span::default()
        }
    }
}

impl Pricing {
    pub(crate) fn new(prices: Prices, start: Time) -> Pricing {
        let all = BestEffortRange {
            most: Share::ONE,
            least: Share::ZERO,
        };
        // From the least share, so that no job is late for data that no goal asks for.
        let mut share = Staircase::new(all);
        share.resume(0.0);
        Pricing {
            asked: if prices.freshness > 0.0 && prices.energy == 0.0 {
                1.0
            } else {
                0.0
            },
            prices,
            share,
            step: STEP,
            before: None,
            span: Span::starting(start),
        }
    }

    /// Whether data may be fresher than asked for.
    pub(crate) fn buys(&self) -> bool {
        self.prices.freshness > 0.0
    }

    /// Takes a decision's readings and the pressure of the task that is furthest from its goal (1: at its goal; `None`:
    /// not measured). Returns the share until the next decision, at least `floor`.
    pub(crate) fn step(
        &mut self,
        pressure: Option<f64>,
        at_top: bool,
        floor: Share,
        vitals: &Vitals,
        now: Time,
    ) -> Share {
        self.share.set_range(floor, Share::clamped(self.asked));
        let full = self.share.is_full();
        if !full {
            self.restart(now);
        } else if self.prices.energy > 0.0 && self.buys() {
            self.descend(floor.get(), vitals, now);
        }
        self.share.set_range(floor, Share::clamped(self.asked));
        if full {
            self.share.resume(self.asked);
        }
        self.share.step(pressure, at_top)
    }

    /// Begins a measurement anew: the law did not run, or shed for late jobs.
    pub(crate) fn restart(&mut self, now: Time) {
        self.span = Span::starting(now);
        self.before = None;
    }

    /// Measures, and moves the share that is asked for at the end of a span.
    fn descend(&mut self, least: f64, vitals: &Vitals, now: Time) {
        self.asked = self.asked.max(least);
        let Some(joules) = vitals.machine.energy_j() else {
            return self.restart(now);
        };
        if now.since(self.span.since) < SETTLE {
            return;
        }
        let (from, energy) = *self.span.from.get_or_insert((now, joules));
        self.span.fresh += vitals.fresh.get();
        self.span.samples += 1;
        let elapsed = now.since(from);
        if elapsed < SPAN {
            return;
        }
        let watts = (joules - energy) / elapsed.as_secs_f64();
        let fresh = self.span.fresh / f64::from(self.span.samples);
        let cost = self.prices.energy * watts - self.prices.freshness * fresh;
        let worse = self.before.is_some_and(|before| cost > before);
        self.step *= if worse { -0.5 } else { ON };
        self.step = self.step.signum() * self.step.abs().clamp(STEP_MIN, STEP_MAX);
        // At an end the next step goes back inside.
        let inside = (self.asked + self.step).clamp(least, 1.0);
        if inside == self.asked {
            self.step = -STEP_MIN * self.step.signum();
        }
        self.asked = (self.asked + self.step).clamp(least, 1.0);
        self.before = Some(cost);
        self.span = Span::starting(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_platform::{Measure, MeterId, Readings};

    use super::*;

    const LEAST: Share = Share::ZERO;

    fn vitals(at: Time, joules: f64, fresh: f64) -> Vitals {
        Vitals {
            machine: Readings {
                at,
                meters: vec![(MeterId::Energy, Ok(Measure::Joules(joules)))],
            },
            fresh: Share::clamped(fresh),
            updates_offered: 0,
            updates_admitted: 0,
            updates_for_minimum: 0,
            updates_least: LEAST,
        }
    }

    fn run(prices: Prices, watts: impl Fn(f64) -> f64, fresh: impl Fn(f64) -> f64, pressure: f64) -> f64 {
        let mut pricing = Pricing::new(prices, Time::ZERO);
        let (mut share, mut joules) = (0.25, 0.0);
        for decision in 1..4000u64 {
            let now = Time::ZERO + Nanos::from_millis(100) * decision;
            joules += 0.1 * watts(share);
            let seen = vitals(now, joules, fresh(share));
            share = pricing
                .step(Some(pressure), true, Share::clamped(0.25), &seen, now)
                .get();
        }
        share
    }

    proptest! {
        /// Power rises with the share, the faster the more are admitted; all shares are searched for the least cost.
        #[test]
        fn the_share_ends_at_the_least_cost(slope in 0.1..2.0f64, bend in 0.0..2.0f64, freshness in 0.05..4.0f64) {
            let watts = |share: f64| 0.3 + slope * share + bend * share * share;
            let fresh = |share: f64| (2.0 * share).min(1.0);
            let cost = |share: f64| watts(share) - freshness * fresh(share);
            let found = run(Prices { energy: 1.0, freshness }, watts, fresh, 0.5);
            let best = (25..=100).map(|share| cost(f64::from(share) / 100.0)).fold(f64::INFINITY, f64::min);
            let range = cost(0.25).max(cost(1.0)) - best;
            prop_assert!(cost(found) <= best + 0.03 + 0.1 * range, "{found}: {} of {best}", cost(found));
        }
    }

    #[test]
    fn the_minimum_comes_before_goals_and_goals_before_prices() {
        let run =
            |energy, freshness, pressure| run(Prices { energy, freshness }, |share| share, |share| share, pressure);
        assert_eq!(run(1.0, 0.0, 0.5), 0.25, "nothing more is worth its energy");
        assert_eq!(run(0.0, 1.0, 0.5), 1.0, "energy costs nothing");
        assert_eq!(run(0.0, 1.0, 1.5), 0.25, "jobs are late, and the minimum stays");
    }
}
