//! A temporal object that a task of the node's own process sets. The task leaves a number and never waits: the event
//! loop sets the object as if by `TSET` on this node, and a number that the loop has not taken yet is replaced by the
//! next one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use punctual_federation::message::Key;
use punctual_units::Time;

/// The hand-over point between a task and the event loop for one object.
#[derive(Debug)]
pub struct OwnReading {
    /// Key of the object.
    pub key: Key,
    /// The newest number that the loop has not taken, and when it was left.
    newest: Mutex<Option<(u64, Time)>>,
    /// Numbers that could not be left, because the event loop held the lock.
    missed: AtomicU64,
    refused: AtomicBool,
}

impl OwnReading {
    /// Makes the hand-over point for the object with this key.
    pub fn new(key: Key) -> OwnReading {
        OwnReading {
            key,
            newest: Mutex::default(),
            missed: AtomicU64::new(0),
            refused: AtomicBool::new(false),
        }
    }

    /// Leaves a number as of `now`, in place of one that was not taken. Never waits: while the event loop holds the
    /// lock, the number is dropped and counted as missed.
    pub fn leave(&self, number: u64, now: Time) {
        match self.newest.try_lock() {
            Ok(mut newest) => *newest = Some((number, now)),
            Err(_) => _ = self.missed.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Count of the numbers that were missed.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Takes the number left last, if the loop has not taken it.
    pub(crate) fn take(&self) -> Option<(u64, Time)> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns a number that could not be set yet, unless a newer one was left meanwhile.
    pub(crate) fn put_back(&self, number: u64, at: Time) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.get_or_insert((number, at));
    }

    /// Stops setting the object, because the federation does not make it. Returns false if it was refused before.
    pub(crate) fn refuse(&self) -> bool {
        !self.refused.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_number_stays_with_its_instant_until_it_is_taken() {
        let own = OwnReading::new(b"a".to_vec());
        assert_eq!(own.take(), None);
        own.leave(1, Time(10));
        own.leave(2, Time(20));
        let taken = own.take();
        assert_eq!((taken, own.take()), (Some((2, Time(20))), None));
        // One that could not be set does not take the place of a newer one.
        own.leave(3, Time(30));
        own.put_back(2, Time(20));
        assert_eq!(own.take(), Some((3, Time(30))));
        own.put_back(3, Time(30));
        assert_eq!((own.take(), own.missed()), (Some((3, Time(30))), 0));
        assert!(own.refuse() && !own.refuse() && own.is_refused());
    }
}
