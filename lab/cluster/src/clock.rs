//! A node's own clock, and the few operating system calls that its store makes.
//!
//! A node's clock counts from its own origin, runs too fast or too slow, and jumps forward, like a clock that goes on
//! while a machine is suspended. No [`Clock`] runs backwards, so this one does not either.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_os::{Lock, Os, Park, Refusal, Scheduling, Thread, Tid, Wake};
use punctual_units::{Clock, Nanos, Time};

/// Conversion between the simulation's time and a node's.
#[derive(Clone, Copy, Debug)]
pub struct NodeClock {
    /// Time shown at the beginning of the simulation, plus all jumps since.
    offset: Nanos,
    /// Rate error in parts per million; negative: slower.
    drift_ppm: i64,
}

impl NodeClock {
    /// Makes a clock that shows `offset` at the beginning.
    pub fn new(offset: Nanos, drift_ppm: i64) -> NodeClock {
        NodeClock { offset, drift_ppm }
    }

    /// Time shown at an instant of the simulation.
    pub fn local(self, at: Time) -> Time {
        let drift = i128::from(at.0) * i128::from(self.drift_ppm) / 1_000_000;
        let shown = i128::from(at.0) + drift + i128::from(self.offset.0);
        Time(u64::try_from(shown).unwrap_or(u64::MAX))
    }

    /// The earliest instant of the simulation, from `from` on, at which the clock shows `local` or more.
    pub fn when(self, local: Time, from: Time) -> Time {
        let ahead = local.since(self.local(from));
        let rate = 1_000_000 + i128::from(self.drift_ppm);
        let span = i128::from(ahead.0) * 1_000_000 / rate + 1;
        from + Nanos(u64::try_from(span).unwrap_or(u64::MAX))
    }

    /// Moves the clock forward by `span`.
    pub fn jump(&mut self, span: Nanos) {
        self.offset += span;
    }
}

/// Operating system of one simulated node: one thread, and a clock that the simulation sets.
#[derive(Clone, Debug, Default)]
pub struct NodeOs {
    now: Arc<AtomicU64>,
}

impl NodeOs {
    /// Sets the time that the node's clock shows.
    pub fn set(&self, now: Time) {
        self.now.store(now.0, Ordering::Relaxed);
    }
}

impl Clock for NodeOs {
    fn now(&self) -> Time {
        Time(self.now.load(Ordering::Relaxed))
    }
}

/// A lock for a single thread, which is always free.
#[derive(Debug, Default)]
pub struct NodeLock<T>(Mutex<T>);

impl<T: Send> Lock<T> for NodeLock<T> {
    type Guard<'l>
        = MutexGuard<'l, T>
    where
        Self: 'l;

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// A parker that never waits: no other thread could wake the only one.
#[derive(Debug)]
pub struct NodeParker;

impl Park for NodeParker {
    fn park_until(&self, _: Time) -> Wake {
        Wake::TimedOut
    }

    fn unpark(&self) {}
}

impl Os for NodeOs {
    type Lock<T: Send> = NodeLock<T>;
    type Parker = NodeParker;

    fn new_lock<T: Send>(&self, data: T) -> NodeLock<T> {
        NodeLock(Mutex::new(data))
    }

    fn new_parker(&self) -> NodeParker {
        NodeParker
    }

    /// Returns at once: time passes between events only.
    fn sleep_until(&self, _: Time) {}

    fn this_thread(&self) -> Tid {
        Tid(1)
    }

    fn scheduling(&self, _: Tid) -> Result<Scheduling, Refusal> {
        Ok(Scheduling::Other { nice: 0 })
    }

    fn set_scheduling(&self, _: Tid, _: Scheduling) -> Result<(), Refusal> {
        Ok(())
    }

    fn together(&self, threads: Vec<Thread<'_>>) {
        threads.into_iter().for_each(|thread| (thread.body)());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_node_wakes_when_its_clock_shows_the_instant(
            offset in 0..1_u64 << 40, drift in -50_000..50_000_i64, from in 0..1_u64 << 40, ahead in 0..1_u64 << 40,
        ) {
            let clock = NodeClock::new(Nanos(offset), drift);
            let wanted = clock.local(Time(from)) + Nanos(ahead);
            let when = clock.when(wanted, Time(from));
            prop_assert!(clock.local(when) >= wanted);
            prop_assert!(clock.local(when).since(wanted) < Nanos(1000));
        }
    }
}
