//! An engine whose calls take longer where the clock is emulated.
//!
//! A slower clock slows data accesses too, inside of the write lock as well as outside. So engine calls are followed by
//! real extra work in proportion to what the calls took: the lock is held for longer, and threads that wait for it wait
//! for longer, as on a slower core.
//!
//! **Terms.** A transaction *owes* the extra work for the calls that it has made. It pays in portions of at least
//! [`PORTION`] of calls, and pays the rest at a commit, before the lock is released.
//!
//! **Timing must not be the slowdown.** Reading the clock around each get would cost about what a clock one step below
//! the top is to cost. So one get in [`TIMED_GET`] is timed, and the others are taken to be like those. All other calls
//! are microseconds long and timed each.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_os::LinuxOs;
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_store::engine::{
    Durability, EndedBecause, Engine, EngineError, KeyRange, OpenSnapshot, Read, Reader, SnapshotId, Space, Table,
    Write,
};
use punctual_units::{Clock, Nanos};

/// A call that took longer than this was preempted in between; only this much of it is stretched. Ten times the cost of
/// the dearest call of the fire scenario, a volatile commit.
const STRETCHED_MAX: Nanos = Nanos::from_micros(100);
/// Least work that is stretched at once: some calls' worth, so that the arithmetic vanishes beside it.
const PORTION: Nanos = Nanos::from_micros(4);
/// Gets for each timed get.
const TIMED_GET: u32 = 16;

/// An engine at the emulated clock's speed.
#[derive(Debug)]
pub struct Emulated<E> {
    engine: E,
    pace: Pace,
}

#[derive(Debug)]
struct Pace {
    emulated: Arc<EmulatedClock>,
    /// Nanoseconds of a get: a moving mean of the timed ones.
    get_ns: AtomicU64,
}

impl Pace {
    fn slowed(&self) -> bool {
        self.emulated.ratio() < 1.0
    }

    /// Runs a call, and says how long it took; at the top clock, where nothing is owed, it does not look.
    fn time<T>(&self, call: impl FnOnce() -> T) -> (T, Nanos) {
        if !self.slowed() {
            return (call(), Nanos::ZERO);
        }
        let begun = LinuxOs.stamp();
        let result = call();
        (result, LinuxOs.stamp().since(begun).min(STRETCHED_MAX))
    }

    fn learn_get(&self, took: Nanos) {
        let mean = self.get_ns.load(Ordering::Relaxed);
        let next = if mean == 0 { took.0 } else { (7 * mean + took.0) / 8 };
        self.get_ns.store(next, Ordering::Relaxed);
    }
}

impl<E> Emulated<E> {
    /// `engine` at the speed of `emulated`.
    pub fn new(engine: E, emulated: Arc<EmulatedClock>) -> Self {
        Emulated {
            engine,
            pace: Pace {
                emulated,
                get_ns: AtomicU64::new(0),
            },
        }
    }
}

impl<E: Engine> Engine for Emulated<E> {
    type Snapshot<'e>
        = Paced<'e, E::Snapshot<'e>>
    where
        Self: 'e;
    type Write<'e>
        = Paced<'e, E::Write<'e>>
    where
        Self: 'e;

    fn snapshot_for(&self, reader: Reader) -> Result<Self::Snapshot<'_>, EngineError> {
        let (transaction, took) = self.pace.time(|| self.engine.snapshot_for(reader));
        Ok(Paced::new(transaction?, &self.pace, took))
    }

    fn snapshots(&self) -> Vec<OpenSnapshot> {
        self.engine.snapshots()
    }

    fn end(&self, snapshot: SnapshotId, age: Nanos, why: EndedBecause) -> bool {
        self.engine.end(snapshot, age, why)
    }

    fn is_tight(&self) -> bool {
        self.engine.is_tight()
    }

    fn space(&self) -> Result<Space, EngineError> {
        self.engine.space()
    }

    fn write(&self) -> Result<Self::Write<'_>, EngineError> {
        let (transaction, took) = self.pace.time(|| self.engine.write());
        Ok(Paced::new(transaction?, &self.pace, took))
    }

    fn sync(&self) -> Result<(), EngineError> {
        // The medium does not slow down with the core.
        self.engine.sync()
    }

    fn durability(&self) -> Durability {
        self.engine.durability()
    }

    fn path(&self) -> &Path {
        self.engine.path()
    }
}

/// A transaction at the emulated clock's speed.
#[derive(Debug)]
pub struct Paced<'e, T> {
    transaction: T,
    account: OwedWork<'e>,
}

/// Work that a transaction owes.
#[derive(Debug)]
struct OwedWork<'e> {
    pace: &'e Pace,
    /// Work that is not stretched yet.
    owed: Cell<Nanos>,
    gets: Cell<u32>,
}

impl<'e, T> Paced<'e, T> {
    fn new(transaction: T, pace: &'e Pace, begun_in: Nanos) -> Self {
        Paced {
            transaction,
            account: OwedWork {
                pace,
                owed: Cell::new(begun_in),
                gets: Cell::new(0),
            },
        }
    }
}

impl OwedWork<'_> {
    fn owe(&self, work: Nanos) {
        self.owed.set(self.owed.get() + work);
        if self.owed.get() >= PORTION {
            self.pay();
        }
    }

    fn pay(&self) {
        self.pace.emulated.stretch(self.owed.replace(Nanos::ZERO));
    }

    fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        let (result, took) = self.pace.time(call);
        self.owe(took);
        result
    }

    fn get<T>(&self, get: impl FnOnce() -> T) -> T {
        if !self.pace.slowed() {
            return get();
        }
        let number = self.gets.replace(self.gets.get().wrapping_add(1));
        if !number.is_multiple_of(TIMED_GET) {
            let result = get();
            self.owe(Nanos(self.pace.get_ns.load(Ordering::Relaxed)));
            return result;
        }
        let (result, took) = self.pace.time(get);
        self.pace.learn_get(took);
        self.owe(took);
        result
    }
}

impl<T: Read> Read for Paced<'_, T> {
    type Cursor<'t>
        = T::Cursor<'t>
    where
        Self: 't;

    fn get_with<V>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> V) -> Result<Option<V>, EngineError> {
        self.account.get(|| self.transaction.get_with(table, key, look))
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<Self::Cursor<'_>, EngineError> {
        self.account.call(|| self.transaction.cursor(table, range, back))
    }
}

impl<T: Write> Write for Paced<'_, T> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let Paced { transaction, account } = self;
        account.call(|| transaction.put(table, key, value))
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        let Paced { transaction, account } = self;
        account.call(|| transaction.delete(table, key))
    }

    fn commit(self) -> Result<(), EngineError> {
        let Paced { transaction, account } = self;
        let committed = account.call(|| transaction.commit());
        account.pay();
        committed
    }
}

#[cfg(test)]
mod tests {
    use punctual_engines::Memory;
    use punctual_platform::linux::emulated::Calibration;
    use punctual_testing::conformance::engine as conformance;
    use punctual_units::Hertz;

    use super::*;

    fn at(share: f64) -> Emulated<Memory> {
        let top = Hertz::from_mhz(2000);
        let emulated = Arc::new(EmulatedClock::new(top, Calibration::given(0.001)));
        emulated.set(top.scaled(share));
        Emulated::new(Memory::default(), emulated)
    }

    #[test]
    fn a_slowed_engine_is_still_an_engine() {
        for share in [1.0, 0.5] {
            let checked = conformance::check_limits(&at(share));
            assert!(checked.is_ok(), "at {share} of the top clock: {checked:?}");
        }
    }

    #[test]
    fn nothing_is_owed_at_the_top_clock_and_every_get_below_it() {
        let owed_after = |share: f64, gets: u32| {
            let engine = at(share);
            engine.pace.get_ns.store(100, Ordering::Relaxed);
            let snapshot = engine.snapshot().unwrap();
            snapshot.account.owed.set(Nanos::ZERO);
            snapshot.account.gets.set(1); // the next ones are not timed
            for _ in 0..gets {
                snapshot.get(Table::Data, b"key").unwrap();
            }
            snapshot.account.owed.get()
        };
        assert_eq!(owed_after(1.0, 10), Nanos::ZERO);
        assert_eq!(owed_after(0.5, 10), Nanos(1000));
    }

    #[test]
    fn debts_are_paid_in_portions_and_before_the_lock_is_given_away() {
        let engine = at(0.5);
        let account = OwedWork {
            pace: &engine.pace,
            owed: Cell::new(Nanos::ZERO),
            gets: Cell::new(0),
        };
        account.owe(Nanos(PORTION.0 - 1));
        assert_eq!(account.owed.get(), Nanos(PORTION.0 - 1));
        account.owe(Nanos(1));
        assert_eq!(account.owed.get(), Nanos::ZERO);
    }
}
