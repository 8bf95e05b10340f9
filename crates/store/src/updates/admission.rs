//! Which updates are admitted: as the knob says, but never so few that the fresh share falls under its minimum.
//!
//! **The knob.** Each sensor has a credit, which grows by the sensor's share q at each reading; the reading is admitted
//! when the credit reaches 1, which it then costs (error diffusion). After n readings the number admitted differs from
//! n * q by less than 1, and at most `ceil(1/q)` readings lie from one admitted to the next. Credits start at
//! `frac(i / golden ratio)` for sensor i: of any run of successive sensors about the share q is admitted at a time, so
//! that the load is even in time too.
//!
//! **The minimum.** With N objects and the minimum m, at most `condemnable = N - ceil(m N)` objects may be condemned
//! (see `freshness.rs`). A reading is shed only if its object is safe without it, or if at most `condemnable`
//! objects are condemned afterwards (and, coldest-first, this one may be given up); otherwise it is admitted, whatever
//! the knob says. So the minimum only ever adds to what the knob admits.
//!
//! **Why the fresh share never falls under the minimum.** Suppose that sensors are on time and installation keeps up:
//!
//! 1. timestamps of a sensor do not run backwards, and the reading after one sampled at s is offered by s + period + J;
//! 2. an admitted update, or a newer one of its sensor, is in the store within L of being admitted (the queue lets a
//!    newer one take the older one's place, so this holds if every place in the queue is served within L);
//! 3. the margin is M >= J + L; at most `condemnable` sensors have avi < period + M.
//!
//! Write C(u) for the number of condemned objects at the instant u.
//!
//! *An object that is stale at t was condemned at t - L.* Suppose that it was safe at u = t - L, its last reading by
//! then sampled at s, its last admitted one at a. The next reading comes after u, so u <= s + period + J. Safe means
//! a + avi >= s + period + M >= s + period + J + L >= u + L = t. By (2) a or a newer update is installed by u + L = t.
//! So the object is fresh at t.
//!
//! *Once C <= condemnable, it stays so.* Shedding keeps it so by the rule. Time condemns nothing: a safe object lasts
//! until a + avi >= s + period + M, and its next reading is offered before. Admission condemns no safe object:
//! it would need avi < period + M, and such an object is never safe, or a reading more than a period late.
//!
//! *It becomes so.* At first all N objects are condemned. While C > `condemnable` every reading is admitted, which
//! makes its object safe if its avi >= period + M; so C is at most `condemnable` once each sensor has reported,
//! that is after the longest period.
//!
//! Together: from L after that instant on, stale objects are at most `condemnable`, fresh ones at least m N.
//!
//! **When the suppositions fail.** A silent sensor's object is condemned when it expires; if that is one too many, others
//! are no longer shed, and the share is back within the longest period plus L, if the minimum can be met without
//! the silent ones. Installation that takes longer than the margin makes objects stale that admission takes for safe; no
//! admission could help there. The store's fresh share shows both.

use punctual_units::{Nanos, Share, Time};
use serde::{Deserialize, Serialize};

use super::SensorSpec;
use super::freshness::{Outlook, Prospect};
use super::shedding::{Shares, Shedding};

/// What binds the admission of sensor updates, whatever the knob says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionOptions {
    /// The least share of objects that must be fresh at any time; 0.5 by default, as in the QeDB paper.
    pub minimum_fresh: Share,
    /// Which updates are shed; uniform by default.
    pub shedding: Shedding,
    /// How late the next reading may be in the store, counted from one period after the last was sampled: jitter,
    /// transport, waiting and installation together. [`MARGIN_DEFAULT`] by default.
    ///
    /// The longer it is, the sooner updates are admitted against the knob. An object whose avi is shorter than its
    /// sensor's period plus the margin cannot be promised fresh, and counts as stale.
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

/// What became of a reading, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Admitted: it was the sensor's turn.
    ByKnob,
    /// Admitted out of turn: the freshness minimum asked for it.
    ForMinimum,
    /// Not admitted.
    Shed,
}

/// The admission of updates, one decision per reading.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    condemnable: usize,
    credits: Vec<f64>,
    shares: Shares,
    outlook: Outlook,
}

impl Admission {
    /// Everything admitted, nothing seen.
    pub fn new(sensors: &[SensorSpec], options: &AdmissionOptions) -> Self {
        let condemnable = condemnable(options.minimum_fresh, sensors.len());
        Admission {
            condemnable,
            credits: (0..sensors.len()).map(first_credit).collect(),
            shares: Shares::new(options.shedding, sensors, condemnable),
            outlook: Outlook::new(sensors.len()),
        }
    }

    /// The admitted share: the knob.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The admitted share, to be set.
    pub fn shares_mut(&mut self) -> &mut Shares {
        &mut self.shares
    }

    /// Decides on one reading. O(log N), amortised.
    pub fn decide(&mut self, reading: &Prospect, now: Time) -> Decision {
        self.outlook.pass(now);
        let credit = &mut self.credits[reading.sensor];
        *credit += self.shares.of(reading.sensor);
        if *credit >= 1.0 {
            *credit -= 1.0;
            self.outlook.admit(reading);
            Decision::ByKnob
        } else if self.may_shed(reading) {
            self.outlook.shed(reading);
            Decision::Shed
        } else {
            self.admit_out_of_turn(reading);
            Decision::ForMinimum
        }
    }

    fn may_shed(&self, reading: &Prospect) -> bool {
        if self.outlook.survives_without(reading) {
            return true;
        }
        let newly = usize::from(!self.outlook.is_condemned(reading.sensor));
        let condemned_afterwards = self.outlook.condemned() + newly;
        condemned_afterwards <= self.condemnable && self.shares.may_be_given_up(reading.sensor)
    }

    /// A safe object that is kept safe has had its turn early: its credit starts again, or it would be admitted again
    /// soon after, for nothing. A condemned one that is rescued keeps its credit: rescues come in crowds (at the start,
    /// after an outage), and the same credit for all would make them take turns in step from then on.
    fn admit_out_of_turn(&mut self, reading: &Prospect) {
        if !self.outlook.is_condemned(reading.sensor) {
            self.credits[reading.sensor] = 0.0;
        }
        self.outlook.admit(reading);
    }

    #[cfg(test)]
    pub fn condemned(&mut self, now: Time) -> usize {
        self.outlook.pass(now);
        self.outlook.condemned()
    }
}

/// How many of `objects` may be stale with the fresh share still at its minimum.
pub(super) fn condemnable(minimum_fresh: Share, objects: usize) -> usize {
    let about = (minimum_fresh.get() * objects as f64) as usize;
    // Compared as the meter compares, so that rounding never asks for one object more, nor for one less.
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
            let stale = condemnable(minimum, objects);
            prop_assert!(Share::of(objects - stale, objects) >= minimum);
            prop_assert!(stale == objects || Share::of(objects - stale - 1, objects) < minimum);
        }

        #[test]
        fn round_minimums_are_met_exactly(percent in 0..=100usize) {
            prop_assert_eq!(condemnable(Share::of(percent, 100), 100), 100 - percent);
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
