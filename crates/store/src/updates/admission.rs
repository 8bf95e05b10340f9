//! Which updates are admitted: as the knob says, but never so few that the fresh share falls under its minimum.
//!
//! **The knob.** Each sensor has a credit, which grows by the sensor's share q at each reading; when the credit reaches
//! 1, the reading is admitted and the credit falls by 1 (error diffusion). After n readings the number admitted differs
//! from n * q by less than 1, and at most `ceil(1/q)` readings lie from one admitted to the next. Credits start at
//! `frac(i / golden ratio)` for sensor i: of any run of successive sensors about the share q is admitted at a time, so
//! that the load is even in time too. With uniform shedding q is the knob, but at least the least share that keeps the
//! minimum fresh on average (`least.rs`): the same number of updates, spread evenly, keeps more objects fresh than
//! updates that are admitted one by one when the minimum is about to break.
//!
//! **The minimum.** With N objects and the minimum m, at most `stale_max = N - ceil(m N)` objects may be stale at a
//! time. An object that is shed may be stale between its expiry and its next admitted reading; the span in which it may
//! be stale even if that is its very next reading is its *gap* (`freshness.rs`). A reading is shed only if its object
//! has no gap then, or if at every instant of its gap at most `stale_max` gaps, its own included, lie over one another
//! (and, coldest-first, this object may be given up); otherwise it is admitted, whatever the knob says. So the minimum
//! only ever adds to the knob's admissions, and it counts fresh objects, not admitted updates: with data valid for two
//! periods, half of the objects are fresh with little more than a quarter of the updates.
//!
//! **Why the fresh share never falls under the minimum.** Suppose that sensors are on time and installation keeps up:
//!
//! 1. timestamps of a sensor do not run backwards, and the reading after one sampled at s is offered by s + period + J;
//! 2. an admitted update, or a newer one of its sensor, is in the store within L of being admitted (the queue lets a
//!    newer one take the older one's place, so this holds if every place in the queue is served within L);
//! 3. the margin is M >= J + L; at most `stale_max` sensors have avi < period + M.
//!
//! Write e and r for an object's expiry and the instant by which its next reading is in the store, as in
//! `freshness.rs`.
//!
//! *Step 1: an object that is stale at t lies in its gap as it is known at t.* Objects out of reach, and those without
//! an admitted reading, always do. Otherwise let b be the newest reading that was admitted by t - L. By (2) it or a
//! newer one is in the store, so the object is stale only if t > b + avi. If b is the last reading admitted by t, then
//! e = b + avi < t, and t <= r unless the sensor is silent, in which case the gap has no end: the gap contains t. If
//! another one was admitted at u, with t - L < u <= t, take the first such u. Just before it, e was b + avi, and by (1)
//! u <= r - M + J, so t < u + L <= r. Since e < t < r, the gap held t then. Admission cut it off no earlier than at u +
//! M > t, and as long as it is under way, later readings only widen it.
//!
//! *Step 2: only a shed reading brings an instant into a gap.* Time alone does so for silent sensors only, which (1)
//! rules out. An admitted reading makes a gap only if s + avi < r, that is if avi < period + M, or if it comes more
//! than a period late. Objects of the first kind have their gap from the start, the second is ruled out.
//!
//! *Step 3: when every sensor has reported, and M has passed, at most `stale_max` gaps contain the present instant t.*
//! Suppose that more do. At most `stale_max` of these belong to objects out of reach, so among them are objects within
//! reach. By step 2, the gap of such an object contains t because a reading was shed, or because none had been admitted
//! by t - M. In the latter case the sensor had reported by then, and what it reported was shed as well. Of all these
//! readings take the one that was shed last. When it was shed, every other one of these gaps contained t already: after
//! its own last shed reading a gap is only ever cut. So more than `stale_max` gaps contained t, an instant of this
//! reading's gap, and the rule would have admitted the reading.
//!
//! *Step 4.* By steps 1 and 3 at most `stale_max` objects are stale at t, so the fresh ones are at least m N. This
//! holds from M after the instant at which the last sensor has reported, that is from the longest period plus M after
//! the start.
//!
//! **When the suppositions fail.** A silent sensor's object counts as stale from its expiry on. Where that is one too
//! many, readings whose gaps meet it are no longer shed. The argument of step 3 holds again once each other sensor has
//! reported: within the longest period plus M, if the minimum can be met without the silent ones. Installation that
//! takes longer than the margin makes objects stale that admission takes for fresh. The store's fresh share shows both.
//! A reading that has expired, or would have by the soonest installation that is measured, cannot make its object
//! fresh: it is admitted in its sensor's turn only. Admitting all of these would keep the updater from the others.

use punctual_units::{Nanos, Share, Time};
use serde::{Deserialize, Serialize};

use super::SensorSpec;
use super::freshness::{Prospect, Staleness};
use super::least::{InstallDelays, LeastShare};
use super::shedding::{Lot, Shares, Shedding};

/// Bounds on the admission of sensor updates, which hold whatever the knob says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionOptions {
    /// The least share of objects that must be fresh at any time; 0.5 by default, as in the QeDB paper.
    pub minimum_fresh: Share,
    /// The order in which sensors lose updates; uniform by default.
    pub shedding: Shedding,
    /// Longest delay until the next reading is in the store, counted from one period after the last was sampled:
    /// jitter, transport, waiting and installation together. [`MARGIN_DEFAULT`] by default.
    ///
    /// The longer it is, the more updates are admitted against the knob. An object whose avi is shorter than its
    /// sensor's period plus the margin cannot be guaranteed fresh, and counts as stale.
    pub margin: Nanos,
}

/// The default margin, 10 ms, chosen by hand: well above a scheduling delay plus one durable commit, well below
/// the periods of most sensors.
pub const MARGIN_DEFAULT: Nanos = Nanos::from_millis(10);

impl Default for AdmissionOptions {
    fn default() -> Self {
        AdmissionOptions {
            minimum_fresh: Share::clamped(0.5),
            shedding: Shedding::default(),
            margin: MARGIN_DEFAULT,
        }
    }
}

/// The decision on a reading, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdmissionDecision {
    /// Admitted in the sensor's turn, on the knob's account.
    ByKnob,
    /// Admitted because the freshness minimum asked for it.
    ForMinimum,
    Shed,
}

/// The admission of updates, one decision per reading.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    stale_max: usize,
    margin: Nanos,
    least: LeastShare,
    /// Time that an installation takes at least, counted from the sampling of its reading.
    soonest: Nanos,
    credits: Vec<f64>,
    shares: Shares,
    staleness: Staleness,
    /// Credit of the knob, below 1: of the updates admitted where the minimum raises a sensor's share, those that the
    /// knob asked for, less those booked as `AdmissionDecision::ByKnob`.
    asked_by_knob: f64,
}

impl Admission {
    /// Admits everything until the knob is set; no reading has been seen.
    pub fn new(sensors: &[SensorSpec], options: &AdmissionOptions) -> Self {
        let stale_max = stale_max(options.minimum_fresh, sensors.len());
        let mut least = LeastShare::new(sensors, options.margin, options.minimum_fresh);
        Admission {
            stale_max,
            margin: options.margin,
            credits: (0..sensors.len()).map(first_credit).collect(),
            shares: Shares::new(options.shedding, sensors, stale_max, least.with_delay(Nanos::ZERO)),
            least,
            soonest: Nanos::ZERO,
            staleness: Staleness::new(sensors, options.margin),
            asked_by_knob: 0.0,
        }
    }

    /// Installations take this long: sets the least share anew. O(K) for K kinds of sensors.
    pub fn set_delays(&mut self, delays: InstallDelays) {
        self.shares.set_least(self.least.with_delay(delays.longest));
        self.soonest = delays.shortest;
    }

    /// The share of each sensor, and the knob that sets it.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// As `shares`, to set the knob.
    pub fn shares_mut(&mut self) -> &mut Shares {
        &mut self.shares
    }

    /// Decides on one reading. O(log N), amortised.
    pub fn decide(&mut self, reading: &Prospect, now: Time) -> AdmissionDecision {
        self.staleness.pass(now);
        let lot = self.shares.of(reading.sensor);
        let credit = &mut self.credits[reading.sensor];
        *credit += lot.share;
        if *credit >= 1.0 {
            *credit -= 1.0;
            self.staleness.admit(reading, self.margin, now);
            self.in_turn(lot)
        } else if reading.expires < now.max(reading.sampled_at + self.soonest) {
            self.staleness.shed(reading, now);
            AdmissionDecision::Shed
        } else if self.try_shed(reading, lot, now) {
            AdmissionDecision::Shed
        } else {
            self.admit_out_of_turn(reading, now);
            AdmissionDecision::ForMinimum
        }
    }

    /// Admits one reading out of turn, whatever the knob says.
    pub fn admit(&mut self, reading: &Prospect, now: Time) {
        self.staleness.pass(now);
        self.staleness.admit(reading, self.margin, now);
    }

    /// As [`admit`](Self::admit), of a reading that may be older than others that are known: the next decision looks at
    /// silence.
    pub fn enter(&mut self, reading: &Prospect, then: Time) {
        self.staleness.admit(reading, self.margin, then);
    }

    /// Books an update that was admitted in its sensor's turn as the knob's or the minimum's, in the proportion in
    /// which they asked for it.
    fn in_turn(&mut self, lot: Lot) -> AdmissionDecision {
        self.asked_by_knob += lot.by_knob / lot.share;
        if self.asked_by_knob < 1.0 {
            return AdmissionDecision::ForMinimum;
        }
        self.asked_by_knob -= 1.0;
        AdmissionDecision::ByKnob
    }

    fn try_shed(&mut self, reading: &Prospect, lot: Lot, now: Time) -> bool {
        let may_shed = lot.may_be_given_up || self.staleness.survives_without(reading);
        may_shed && self.staleness.try_shed(reading, self.stale_max, now)
    }

    /// Admits a reading before its sensor's turn. A fresh object's credit starts again at 0, or it would be admitted
    /// again soon after, needlessly. A stale object keeps its credit: many are rescued at once (at the start, after an
    /// outage), and the same credit for all would make them take turns in step from then on.
    fn admit_out_of_turn(&mut self, reading: &Prospect, now: Time) {
        if !self.staleness.may_be_stale(reading.sensor, now) {
            self.credits[reading.sensor] = 0.0;
        }
        self.staleness.admit(reading, self.margin, now);
    }

    #[cfg(test)]
    pub fn stale_at_worst(&mut self, now: Time) -> usize {
        self.staleness.deepest(now)
    }
}

/// The number of `objects` that may be stale with the fresh share still at its minimum.
pub(super) fn stale_max(minimum_fresh: Share, objects: usize) -> usize {
    let about = (minimum_fresh.get() * objects as f64) as usize;
    // Compares as the meter does, so that rounding never asks for one object more, nor for one less.
    let fresh = (about..=objects).find(|&fresh| Share::of(fresh, objects) >= minimum_fresh);
    objects - fresh.unwrap_or(objects)
}

/// `frac(sensor / golden ratio)`, the additive recurrence of least discrepancy (Knuth, The Art of Computer
/// Programming, vol. 3, section 6.4, theorem S), in 64-bit fixed point, of which a float keeps the upper 53 bits.
pub(super) fn first_credit(sensor: usize) -> f64 {
    /// 2^64 / golden ratio.
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    const BITS: u32 = f64::MANTISSA_DIGITS;
    ((sensor as u64).wrapping_mul(STEP) >> (u64::BITS - BITS)) as f64 / (1u64 << BITS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_many_objects_may_be_stale_as_the_meter_tolerates(minimum in 0.0..=1.0f64, objects in 1..3000usize) {
            let minimum = Share::clamped(minimum);
            let stale = stale_max(minimum, objects);
            prop_assert!(Share::of(objects - stale, objects) >= minimum);
            prop_assert!(stale == objects || Share::of(objects - stale - 1, objects) < minimum);
        }

        #[test]
        fn round_minimums_are_met_exactly(percent in 0..=100usize) {
            prop_assert_eq!(stale_max(Share::of(percent, 100), 100), 100 - percent);
        }

        #[test]
        fn first_credits_leave_no_gap(sensors in 1..2000usize) {
            let mut credits: Vec<f64> = (0..sensors).map(first_credit).collect();
            credits.push(1.0);
            credits.sort_by(f64::total_cmp);
            // Three-distance theorem: at most golden ratio^3 / sqrt(5) = 1.89... times the mean gap.
            let longest = credits.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
            prop_assert!(longest * (sensors as f64) < 2.0, "gap {} of {} sensors", longest, sensors);
        }
    }
}
