//! Which objects are fresh, and which of them will not stay so.
//!
//! An object is *fresh* while `now - timestamp <= avi`. Counting the objects that are fresh now comes too late for
//! admission: the update that is shed today is missed when the one before it expires. Therefore admission counts the
//! objects that are **condemned**: stale already, or, as things stood at their last reading, bound to expire before the
//! reading after it can be in the store. With the last reading sampled at `s` and the last *admitted* one at `a`,
//!
//! ```text
//!     condemned  =  never admitted,  or  a + avi < max(s + period, now at that reading) + margin,  or  a + avi < now
//! ```
//!
//! The last part is for sensors that fall silent: nobody offers their next reading, so time itself condemns them.
//!
//! Objects that are not condemned are kept in a heap by `a + avi`; the rest are condemned, so their number is one
//! subtraction. A reading costs O(log N). The passing of time removes each object at most once per admitted update, so
//! it too costs O(log N) per update, amortised, whatever number of sensors falls silent; one call after a long
//! silence may pay for at most N objects.

use punctual_units::{Nanos, SensorId, Time};

use super::SensorSpec;
use super::expiry::ExpiryHeap;

/// Whether a value sampled at `sampled_at` is fresh `now`: `now - sampled_at <= avi`.
///
/// ```
/// use punctual_store::updates::is_fresh;
/// use punctual_units::{Nanos, Time};
/// assert!(is_fresh(Time(30), Time(10), Nanos(20)));
/// assert!(!is_fresh(Time(31), Time(10), Nanos(20)));
/// ```
pub fn is_fresh(now: Time, sampled_at: Time, avi: Nanos) -> bool {
    now.since(sampled_at) <= avi
}

/// What one reading means for the freshness of its object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prospect {
    /// The object's sensor.
    pub sensor: usize,
    /// Until when the object is fresh if the reading is admitted.
    pub expires: Time,
    /// By when the reading after this one is in the store if that one is admitted.
    pub next_installed_by: Time,
}

impl Prospect {
    /// The prospect of the reading of `sensor` that was sampled at `sampled_at` and is offered `now`.
    pub fn of(sensor: SensorId, spec: &SensorSpec, margin: Nanos, sampled_at: Time, now: Time) -> Self {
        Prospect {
            sensor: sensor.index(),
            expires: sampled_at + spec.avi,
            // What should have come before now has not: it cannot come earlier than now.
            next_installed_by: (sampled_at + spec.period).max(now) + margin,
        }
    }
}

/// Whether a sensor's object can be fresh throughout if every reading is admitted.
pub(super) fn within_reach(spec: &SensorSpec, margin: Nanos) -> bool {
    spec.avi >= spec.period + margin
}

/// Which objects are condemned.
#[derive(Clone, Debug)]
pub(super) struct Outlook {
    /// The objects that are not condemned, by the expiry of their last admitted update.
    safe: ExpiryHeap,
    sensors: usize,
}

impl Outlook {
    /// All objects condemned: nothing has been admitted yet.
    pub fn new(sensors: usize) -> Self {
        Outlook {
            safe: ExpiryHeap::new(sensors),
            sensors,
        }
    }

    /// How many objects are condemned.
    pub fn condemned(&self) -> usize {
        self.sensors - self.safe.len()
    }

    /// Whether the object is condemned.
    pub fn is_condemned(&self, sensor: usize) -> bool {
        self.safe.get(sensor).is_none()
    }

    /// Condemns the objects that have expired by `now`.
    pub fn pass(&mut self, now: Time) {
        while self.safe.pop_before(now).is_some() {}
    }

    /// Whether the object is safe and stays so if the reading is shed.
    pub fn survives_without(&self, reading: &Prospect) -> bool {
        let expires = self.safe.get(reading.sensor);
        expires.is_some_and(|expires| expires >= reading.next_installed_by)
    }

    /// The reading is shed.
    pub fn shed(&mut self, reading: &Prospect) {
        if !self.survives_without(reading) {
            self.safe.remove(reading.sensor);
        }
    }

    /// The reading is admitted.
    pub fn admit(&mut self, reading: &Prospect) {
        if reading.expires >= reading.next_installed_by {
            self.safe.set(reading.sensor, reading.expires);
        } else {
            self.safe.remove(reading.sensor);
        }
    }
}
