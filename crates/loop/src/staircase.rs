//! A knob that moves in steps, by the sign of its effect alone.
//!
//! **Problem.** A law turns the clock and the admitted share by a model that knows nothing of best-effort work. Where
//! that work slows jobs down (through the shared cache, the memory, a common core), both knobs can stand at their safe
//! end and a task is still beyond its goal. And where no model was learnt, no gain of any knob is known. The signs are
//! known: less of a share, and a higher clock, never make jobs later.
//!
//! **Method.** The share is cut while a task is beyond its goal and the knobs that are turned first have no more to
//! give. It is given back in small steps once these knobs have left their safe end, or jobs are well within their goal,
//! for a while. After each return that failed the staircase waits twice as long, so that it does not try every few
//! windows what just failed; a share that is given back in full resets that. Multiplicative cuts and additive
//! returns are those of congestion control (D. Chiu and R. Jain, "Analysis of the Increase and Decrease Algorithms for
//! Congestion Avoidance", Computer Networks and ISDN Systems 1989).
//!
//! Pure: windows in, a share out. The constants are chosen by hand. Used for the share of best-effort work, below any
//! law, and for the knobs of a law without a model (`stepwise.rs`).

use punctual_units::Share;
use serde::{Deserialize, Serialize};

/// Windows in a row beyond the goal, the other knobs at their safe end, before a cut: one may be chance.
const PRESSED: u32 = 2;
/// Factor by which a cut lowers the share.
const CUT: f64 = 0.7;
/// Windows with slack before a step back, at first.
const CALM: u32 = 10;
/// Windows with slack that one beyond the goal cancels.
const SETBACK: u32 = 5;
/// Most windows with slack before a step back, however many returns failed.
const CALM_MAX: u32 = 320;
/// Share that a step gives back.
const GIVE: f64 = 0.05;
/// Below this part of the goal there is slack whatever the other knobs do.
const SLACK: f64 = 0.8;
/// Pressure up to which the clock is raised by two steps only. The change of the clock itself widens the spread of the
/// jobs for a while, and with it the distance from the deadline that a goal of late jobs asks for.
const NEAR: f64 = 1.5;

/// Range of the share of best-effort work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestEffortRange {
    /// Share at first, and while tasks meet their goals.
    pub most: Share,
    /// The share is never less than this.
    pub least: Share,
}

/// One knob, as a share that costs jobs time, with its state.
#[derive(Clone, Debug)]
pub(crate) struct Staircase {
    range: BestEffortRange,
    /// Whether the share is what the clock leaves of its top.
    is_of_clock: bool,
    /// Part of the goal below which there is slack.
    slack: f64,
    share: Share,
    /// Windows in a row beyond the goal.
    pressed: u32,
    /// Windows with slack since the last step back, less some for each beyond the goal.
    calm: u32,
    /// The largest pressure of these windows.
    highest: f64,
    /// Whether the share was given back since the last cut.
    returned: bool,
    /// Windows with slack before the next step back.
    patience: u32,
    /// The share before a fallback, until a return to it fails: up to it returns do not wait for long.
    before: Share,
}

impl Staircase {
    pub fn new(range: BestEffortRange) -> Staircase {
        let least = Share::clamped(range.least.get().min(range.most.get()));
        Staircase {
            range: BestEffortRange { least, ..range },
            is_of_clock: false,
            slack: SLACK,
            share: range.most,
            pressed: 0,
            calm: 0,
            highest: 0.0,
            returned: true,
            patience: CALM,
            before: Share::ZERO,
        }
    }

    /// The same for what the clock leaves of its top. A cut goes to the top, or by two steps where jobs are near their
    /// goal. A step back goes a third as far as it may: a clock that is lower by a factor makes no job longer by more.
    pub fn of_clock(self) -> Staircase {
        Staircase {
            is_of_clock: true,
            ..self
        }
    }

    /// The same, but with slack below this part of the goal.
    pub fn with_slack(self, slack: f64) -> Staircase {
        Staircase { slack, ..self }
    }

    /// The share in force.
    pub fn share(&self) -> Share {
        self.share
    }

    /// The share that leaves jobs most: the safe one.
    pub fn least(&self) -> Share {
        self.range.least
    }

    /// Moves the least share, and the share with it where it is less.
    pub fn set_least(&mut self, least: Share) {
        self.range.least = Share::clamped(least.get().min(self.range.most.get()));
        self.resume(self.share.get());
    }

    /// Moves both ends of the range, and the share into it; the least share comes first.
    pub fn set_range(&mut self, least: Share, most: Share) {
        self.range.most = Share::clamped(most.get().max(least.get()));
        self.set_least(least);
    }

    /// Whether nothing is left to give back.
    pub fn is_full(&self) -> bool {
        self.share >= self.range.most
    }

    /// Goes on from this share, within the range.
    pub fn resume(&mut self, share: f64) {
        self.share = Share::clamped(share.max(self.range.least.get()).min(self.range.most.get()));
    }

    /// Goes on after a fallback from this share, which is not above the one `before` it.
    pub fn go_on(&mut self, share: f64, before: Share) {
        // A fallback soon after another one does not forget the share before that.
        self.before = if self.before > before { self.before } else { before };
        (self.pressed, self.calm, self.highest) = (0, 0, 0.0);
        self.resume(share);
    }

    /// Takes a window in which the task furthest from its goal was at `pressure` (1: at its goal, `None`: no task was
    /// measured), and the other knobs were at their safe end or not. Answers the share for the next one.
    pub fn step(&mut self, pressure: Option<f64>, others_safe: bool) -> Share {
        let Some(pressure) = pressure else { return self.share };
        let beyond = pressure > 1.0 && others_safe;
        let slack = pressure < self.slack || (pressure <= 1.0 && !others_safe);
        self.pressed = if beyond { self.pressed + 1 } else { 0 };
        // Between slack and the goal nothing is learnt: where jobs vary, such windows come again and again.
        if slack {
            self.calm += 1;
            self.highest = self.highest.max(pressure);
        } else if pressure > 1.0 {
            self.calm = self.calm.saturating_sub(SETBACK);
        }
        let patience = if self.share < self.before { CALM } else { self.patience };
        if self.pressed >= PRESSED {
            self.cut(pressure);
        } else if self.calm >= patience {
            self.give();
        }
        self.share
    }

    fn cut(&mut self, pressure: f64) {
        self.pressed = 0;
        if self.share > self.range.least {
            self.before = Share::ZERO;
            let (least, lower) = (self.range.least.get(), self.share.get());
            let lower = match self.is_of_clock {
                true if pressure <= NEAR => lower - 2.0 * GIVE,
                true => 0.0,
                false => lower * CUT,
            };
            // Within a step of the least share, its last fractions are not worth a cut each.
            self.share = Share::clamped(if lower < least + GIVE { least } else { lower });
            // Several cuts in a row are one failed return.
            if std::mem::take(&mut self.returned) {
                self.patience = (self.patience * 2).min(CALM_MAX);
            }
            (self.calm, self.highest) = (0, 0.0);
        }
    }

    fn give(&mut self) {
        let clock = 1.0 - self.share.get();
        let step = match self.is_of_clock {
            true => (clock * (1.0 - self.highest / self.slack) / 3.0).max(GIVE),
            false => GIVE,
        };
        (self.calm, self.highest, self.returned) = (0, 0.0, true);
        self.share = Share::clamped((self.share.get() + step).min(self.range.most.get()));
        if self.share == self.range.most {
            self.patience = CALM;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn law(most: f64, least: f64) -> Staircase {
        Staircase::new(BestEffortRange {
            most: Share::clamped(most),
            least: Share::clamped(least),
        })
    }

    proptest! {
        /// The share stays within its range, falls only where a task is beyond its goal and the other knobs have no
        /// more to give, and rises only where there is slack.
        #[test]
        fn every_move_has_its_reason(
            most in 0.0f64..=1.0,
            least in 0.0f64..=1.0,
            windows in prop::collection::vec((prop::option::weighted(0.9, 0.0f64..3.0), any::<bool>()), 0..400),
        ) {
            let mut law = law(most, least);
            let low = least.min(most);
            for (pressure, others_safe) in windows {
                let before = law.share().get();
                let after = law.step(pressure, others_safe).get();
                prop_assert!((low..=most).contains(&after), "{after} of {low} to {most}");
                prop_assert!(after >= before || (others_safe && pressure.is_some_and(|pressure| pressure > 1.0)));
                let slack = pressure.is_some_and(|pressure| pressure < SLACK || (pressure <= 1.0 && !others_safe));
                prop_assert!(after <= before || slack);
            }
        }

        /// Whatever was before: pressure without end leads to the least share, slack without end back to the most.
        #[test]
        fn both_ends_are_reached(
            least in 0.0f64..0.5,
            windows in prop::collection::vec((0.0f64..3.0, any::<bool>()), 0..200),
        ) {
            let mut law = law(1.0, least);
            for (pressure, others_safe) in windows {
                law.step(Some(pressure), others_safe);
            }
            // 0.7^40 is below a millionth.
            for _ in 0..40 * PRESSED {
                law.step(Some(1.5), true);
            }
            prop_assert!(law.share().get() <= least + 1e-5);
            for _ in 0..CALM_MAX * 21 {
                law.step(Some(0.9), false);
            }
            prop_assert_eq!(law.share(), Share::ONE);
        }
    }

    #[test]
    fn a_band_between_goal_and_slack_moves_nothing() {
        let mut law = law(1.0, 0.1);
        law.step(Some(1.5), true);
        law.step(Some(1.5), true);
        assert_eq!(law.share(), Share::clamped(0.7));
        for _ in 0..1000 {
            assert_eq!(law.step(Some(0.95), true), Share::clamped(0.7));
        }
    }

    #[test]
    fn after_each_cut_it_waits_longer_before_it_gives_back() {
        let mut law = law(1.0, 0.1);
        let mut waited = Vec::new();
        for _ in 0..4 {
            law.step(Some(1.5), true);
            law.step(Some(1.5), true);
            let cut = law.share();
            let windows = (1..).find(|_| law.step(Some(0.9), false) > cut).unwrap_or(0);
            waited.push(windows);
        }
        assert_eq!(waited, [20, 40, 80, 160]);
    }
}
