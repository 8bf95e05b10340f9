//! Which objects are fresh, and when they may be stale.
//!
//! An object is *fresh* while `now - timestamp <= avi`. Counting the objects that are fresh now comes too late for
//! admission: the update that is shed today is missed when the one before it expires. Therefore admission looks ahead.
//! With a sensor's last reading sampled at `s` and its last *admitted* one at `a`, let
//!
//! ```text
//!     e  =  a + avi                               the object expires
//!     r  =  max(s + period, now at s) + margin    the next reading is in the store, if in time and admitted
//! ```
//!
//! The object's **gap** is the span in which it may be stale *even if its next reading is admitted*:
//!
//! ```text
//!     none        if e >= r
//!     e .. r      if e < r
//!     e .. ever   if r has passed without a reading: the sensor is silent
//!     ever        if no reading was ever admitted, or avi < period + margin (no admission keeps this object fresh)
//! ```
//!
//! A gap that has begun stays until the update that ends it can be in the store: until `now + margin` at the latest
//! once an update is admitted. So an object that is stale lies within its gap (proof: `admission.rs`), and the depth of
//! the gaps (`gaps.rs`) at an instant bounds the number of objects that are stale then.
//!
//! A reading costs O(log N). Each reading makes its sensor silent once at most, so silence costs O(log N) per reading
//! too, amortised; one call after a long silence may pay for at most N sensors.

use punctual_units::{Nanos, SensorId, Time};

use super::SensorSpec;
use super::due::DueHeap;
use super::gaps::{Gap, Gaps};

/// The consequences of one reading for the freshness of its object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prospect {
    /// Number of the object's sensor.
    pub sensor: usize,
    /// Instant at which the reading was sampled.
    pub sampled_at: Time,
    /// Last instant at which the object is fresh if the reading is admitted.
    pub expires: Time,
    /// The instant by which the following reading is in the store if it is admitted.
    pub next_installed_by: Time,
}

impl Prospect {
    /// The prospect of a reading of `sensor`, sampled at `sampled_at` and offered `now`.
    pub fn of(sensor: SensorId, spec: &SensorSpec, margin: Nanos, sampled_at: Time, now: Time) -> Self {
        Prospect {
            sensor: sensor.index(),
            sampled_at,
            expires: sampled_at + spec.avi,
            // A following reading that is overdue cannot come earlier than now.
            next_installed_by: (sampled_at + spec.period).max(now) + margin,
        }
    }
}

/// Whether a sensor's object can be fresh throughout if every reading is admitted.
pub(super) fn within_reach(spec: &SensorSpec, margin: Nanos) -> bool {
    spec.avi >= spec.period + margin
}

/// The spans in which objects may be stale.
#[derive(Clone, Debug)]
pub(super) struct Staleness {
    gaps: Gaps,
    /// When each object's last admitted reading expires; `Time::ZERO` before the first.
    expires: Box<[Time]>,
    /// The instant by which the next reading of each sensor that is not silent is in the store.
    due: DueHeap,
    /// Whether admission can keep the object fresh.
    within_reach: Box<[bool]>,
}

impl Staleness {
    /// Every object is stale: nothing has been admitted yet.
    pub fn new(sensors: &[SensorSpec], margin: Nanos) -> Self {
        Staleness {
            gaps: Gaps::filled(sensors.len(), ALWAYS),
            expires: vec![Time::ZERO; sensors.len()].into(),
            due: DueHeap::new(sensors.len()),
            within_reach: sensors.iter().map(|spec| within_reach(spec, margin)).collect(),
        }
    }

    /// Whether the object may be stale now.
    pub fn may_be_stale(&self, sensor: usize, now: Time) -> bool {
        self.gaps.get(sensor).is_some_and(|gap| gap.from <= now && now < gap.to)
    }

    /// Extends the gaps of the sensors that have fallen silent by `now`.
    pub fn pass(&mut self, now: Time) {
        while let Some(sensor) = self.due.pop_before(now) {
            self.widen(sensor, Time::MAX, now);
        }
    }

    /// Whether the object stays fresh without this reading until the next one is in the store.
    pub fn survives_without(&self, reading: &Prospect) -> bool {
        self.expires[reading.sensor] >= reading.next_installed_by
    }

    /// Sheds the reading if its object stays fresh, or if at most `stale_max` objects, its own included, may then be
    /// stale at every instant of its gap. Returns whether it did.
    pub fn try_shed(&mut self, reading: &Prospect, stale_max: usize, now: Time) -> bool {
        if !self.survives_without(reading) && !self.try_widen(reading, stale_max, now) {
            return false;
        }
        self.due.set(reading.sensor, reading.next_installed_by);
        true
    }

    /// Sheds the reading of an object that it cannot keep fresh, however many others may be stale.
    pub fn shed(&mut self, reading: &Prospect, now: Time) {
        if !self.survives_without(reading) {
            self.widen(reading.sensor, reading.next_installed_by, now);
        }
        self.due.set(reading.sensor, reading.next_installed_by);
    }

    fn try_widen(&mut self, reading: &Prospect, stale_max: usize, now: Time) -> bool {
        let before = self.gaps.get(reading.sensor);
        self.widen(reading.sensor, reading.next_installed_by, now);
        let to_come = self.gaps.get(reading.sensor).map(|gap| Gap {
            from: gap.from.max(now),
            to: gap.to,
        });
        let to_come = to_come.filter(|gap| gap.from < gap.to);
        let allowed = to_come.is_none_or(|gap| self.gaps.deepest(gap) <= stale_max);
        if !allowed {
            self.gaps.set(reading.sensor, before);
        }
        allowed
    }

    /// Ends the object's gap when the admitted reading is in the store, and moves its expiry.
    pub fn admit(&mut self, reading: &Prospect, margin: Nanos, now: Time) {
        let sensor = reading.sensor;
        self.due.set(sensor, reading.next_installed_by);
        if !self.within_reach[sensor] {
            return;
        }
        let begun = self.gaps.get(sensor).map(|gap| Gap {
            from: gap.from,
            to: gap.to.min(now + margin),
        });
        self.gaps.set(sensor, begun);
        self.expires[sensor] = reading.expires;
        // Only a reading that comes more than a period late expires before the following one can be in the store.
        if reading.expires < reading.next_installed_by {
            self.widen(sensor, reading.next_installed_by, now);
        }
    }

    /// Extends the gap until `to`, from the object's expiry or from the start of the gap that is under way.
    fn widen(&mut self, sensor: usize, to: Time, now: Time) {
        if !self.within_reach[sensor] {
            return;
        }
        let under_way = self.gaps.get(sensor).filter(|gap| gap.to > now);
        let expires = self.expires[sensor];
        let from = under_way.map_or(expires, |gap| gap.from.min(expires));
        self.gaps.set(sensor, Some(Gap { from, to }));
    }

    /// The number of objects that may be stale at the worst instant from `now` on.
    #[cfg(test)]
    pub fn deepest(&mut self, now: Time) -> usize {
        self.pass(now);
        let to = Time::MAX;
        self.gaps.deepest(Gap { from: now, to })
    }
}

/// The gap of an object that admission cannot keep fresh, or whose first reading was not admitted yet.
const ALWAYS: Gap = Gap {
    from: Time::ZERO,
    to: Time::MAX,
};
