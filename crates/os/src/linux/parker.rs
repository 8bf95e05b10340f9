//! Parking place of a thread: waits until another thread wakes it.
//!
//! The model checker `loom` tries every order of its stores, with planted faults: alone (`tests/parker.rs`), and under
//! the queues that are built on it (`tests/permit.rs` of the store, `tests/mailbox.rs` of the runtime).

use punctual_units::Time;

use super::super::Wake;
use super::atomics::{AtomicU32, Ordering};
use super::futex;

/// Lets one thread wait until another wakes it, or until a deadline.
///
/// The parker has a single permit: an [`unpark`](Parker::unpark) before the [`park_until`](Parker::park_until) is not
/// lost, and several in a row count once. Writes before `unpark` are visible after the `park_until` that it ends.
///
/// ```
/// use punctual_os::LinuxOs;
/// use punctual_os::linux::sync::{Parker, Wake};
/// use punctual_units::{Clock, Nanos, Time};
/// let place = Parker::new();
/// place.unpark();
/// assert_eq!(place.park_until(Time::MAX), Wake::Woken);
/// assert_eq!(place.park_until(LinuxOs.now() + Nanos::from_millis(1)), Wake::TimedOut);
/// ```
#[derive(Debug, Default)]
pub struct Parker(AtomicU32);

const EMPTY: u32 = 0;
const PERMIT: u32 = 1;
const PARKED: u32 = 2;

impl Parker {
    /// Makes a parker without a permit.
    pub fn new() -> Self {
        Parker(AtomicU32::new(EMPTY))
    }

    /// Waits for the permit and takes it, at most until `deadline` on `CLOCK_MONOTONIC` ([`Time::MAX`]: without bound).
    /// A permit that arrives with the deadline is taken, so that no wake-up is ever lost.
    ///
    /// Only one thread may wait at a time; a second may sleep past a wake-up, until its deadline.
    pub fn park_until(&self, deadline: Time) -> Wake {
        if self.take_permit() {
            return Wake::Woken;
        }
        // A permit may arrive between the look above and this exchange; then the loop finds it.
        let _ = self
            .0
            .compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Relaxed);
        loop {
            let timed_out = futex::wait(&self.0, PARKED, deadline);
            if self.take_permit() {
                return Wake::Woken;
            }
            if timed_out {
                // Stop waiting, or take the permit that came after the look above.
                return match self.0.swap(EMPTY, Ordering::Acquire) {
                    PERMIT => Wake::Woken,
                    _ => Wake::TimedOut,
                };
            }
        }
    }

    /// Gives the permit and wakes the waiting thread, if any.
    pub fn unpark(&self) {
        if self.0.swap(PERMIT, Ordering::Release) == PARKED {
            futex::wake_one(&self.0);
        }
    }

    fn take_permit(&self) -> bool {
        self.0
            .compare_exchange(PERMIT, EMPTY, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }
}
