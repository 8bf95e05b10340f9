//! Readings that wait to be written: the newest of each object, and the outcomes of all puts.
//!
//! Zenoh's threads must not wait for the server, and the server may be slower than the puts. So a newer reading
//! replaces the waiting one of its object, and memory is bounded by the number of objects, however many puts come.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// Most objects with a waiting reading: as many as a federation has.
const OBJECTS_MAX: usize = 1024;

/// A value, and its age when it came.
#[derive(Clone, Debug)]
pub struct Reading {
    pub value: Vec<u8>,
    pub age: Duration,
    pub came: Instant,
}

impl Reading {
    /// Age at `now`.
    pub fn age_at(&self, now: Instant) -> Duration {
        self.age + now.saturating_duration_since(self.came)
    }
}

/// Outcomes of puts since the start: each put has one, or its reading waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub puts: u64,
    pub written: u64,
    /// Not written, because the object has a younger value.
    pub older: u64,
    /// Answered by `LATE` or `UNKNOWN`.
    pub late: u64,
    /// Refused by the server, without a name of an object, or with too long a value.
    pub refused: u64,
    /// Replaced by a newer reading before they were written, or of one object too many.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<String, Reading>,
    counts: Counts,
}

/// The readings between Zenoh's threads and the one that writes.
#[derive(Debug, Default)]
pub struct Readings {
    state: Mutex<State>,
    came: Condvar,
}

impl Readings {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the counts.
    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.state().counts);
    }

    /// Counts a refusal; reports the first.
    pub fn refuse(&self, why: impl fmt::Display) {
        static NOTED: Once = Once::new();
        self.count(|counts| counts.refused += 1);
        NOTED.call_once(|| eprintln!("refused: {why}; further refusals are counted only"));
    }

    /// Has a reading wait, unless a newer one of its object does. Also takes back a reading that was not answered.
    pub fn offer(&self, object: String, reading: Reading) {
        let state = &mut *self.state();
        let is_full = state.waiting.len() >= OBJECTS_MAX;
        match state.waiting.get_mut(&object) {
            None if !is_full => _ = state.waiting.insert(object, reading),
            None => state.counts.dropped += 1,
            Some(other) => {
                // Of two readings, the one with the lesser age at the same instant is the newer one.
                let at = other.came.max(reading.came);
                if reading.age_at(at) <= other.age_at(at) {
                    *other = reading;
                }
                state.counts.dropped += 1;
            }
        }
        self.came.notify_one();
    }

    /// Takes all readings; waits until there is one.
    pub fn take(&self) -> BTreeMap<String, Reading> {
        let state = self.came.wait_while(self.state(), |state| state.waiting.is_empty());
        std::mem::take(&mut state.unwrap_or_else(PoisonError::into_inner).waiting)
    }
}

impl fmt::Display for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { waiting, counts } = &*self.state();
        write!(
            f,
            "puts {}, written {}, older {}, late {}, refused {}, dropped {}, waiting {}",
            counts.puts,
            counts.written,
            counts.older,
            counts.late,
            counts.refused,
            counts.dropped,
            waiting.len()
        )
    }
}

#[cfg(test)]
impl Readings {
    pub fn counts(&self) -> Counts {
        self.state().counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_reading_of_each_object_waits() {
        let (readings, start) = (Readings::default(), Instant::now());
        let reading = |value: &str, age, came| Reading {
            value: value.into(),
            age: Duration::from_millis(age),
            came: start + Duration::from_millis(came),
        };
        readings.offer("a".into(), reading("second", 5, 10));
        readings.offer("a".into(), reading("third", 5, 11));
        // Came last, but was sampled first.
        readings.offer("a".into(), reading("first", 90, 12));
        (1..=OBJECTS_MAX).for_each(|object| readings.offer(object.to_string(), reading("x", 0, 12)));
        assert_eq!(readings.counts().dropped, 3);
        let taken = readings.take();
        assert_eq!((taken.len(), taken["a"].value.as_slice()), (OBJECTS_MAX, &b"third"[..]));
        assert_eq!(
            taken["a"].age_at(start + Duration::from_millis(31)),
            Duration::from_millis(25)
        );
    }
}
