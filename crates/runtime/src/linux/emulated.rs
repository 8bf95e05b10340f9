//! An engine whose calls take longer where the clock is emulated.
//!
//! A slower clock slows data accesses too, inside of the write lock as well as outside. So each engine call is
//! followed by real extra work in proportion to what the call itself took, before it returns: the lock is held for
//! longer, and whoever waits for it waits for longer, as on a slower core.

use std::path::Path;
use std::sync::Arc;

use punctual_platform::linux::clock::MonotonicClock;
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_store::engine::{Durability, Engine, EngineError, KeyRange, Read, Table, Write};
use punctual_units::{Clock, Nanos, Time};

/// A call that took longer than this was preempted in between; only so much of it is stretched. Ten times the cost
/// of the dearest call of the fire scenario, a volatile commit.
const STRETCHED_MAX: Nanos = Nanos::from_micros(100);

/// An engine at the emulated clock's speed.
#[derive(Debug)]
pub struct Emulated<E> {
    engine: E,
    pace: Pace,
}

#[derive(Clone, Debug)]
struct Pace {
    clock: MonotonicClock,
    emulated: Arc<EmulatedClock>,
}

impl Pace {
    fn stretch<T>(&self, call: impl FnOnce() -> T) -> T {
        if self.emulated.ratio() >= 1.0 {
            return call();
        }
        let begun: Time = self.clock.now();
        let result = call();
        self.emulated.stretch(self.clock.now().since(begun).min(STRETCHED_MAX));
        result
    }
}

impl<E> Emulated<E> {
    /// `engine` at the speed of `emulated`.
    pub fn new(engine: E, emulated: Arc<EmulatedClock>) -> Self {
        Emulated {
            engine,
            pace: Pace {
                clock: MonotonicClock,
                emulated,
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

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, EngineError> {
        let transaction = self.pace.stretch(|| self.engine.snapshot())?;
        Ok(Paced {
            transaction,
            pace: &self.pace,
        })
    }

    fn write(&self) -> Result<Self::Write<'_>, EngineError> {
        let transaction = self.pace.stretch(|| self.engine.write())?;
        Ok(Paced {
            transaction,
            pace: &self.pace,
        })
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
    pace: &'e Pace,
}

impl<T: Read> Read for Paced<'_, T> {
    type Scan<'t>
        = T::Scan<'t>
    where
        Self: 't;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        self.pace.stretch(|| self.transaction.get(table, key))
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<Self::Scan<'_>, EngineError> {
        self.pace.stretch(|| self.transaction.scan(table, range))
    }
}

impl<T: Write> Write for Paced<'_, T> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.pace.stretch(|| self.transaction.put(table, key, value))
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        self.pace.stretch(|| self.transaction.delete(table, key))
    }

    fn commit(self) -> Result<(), EngineError> {
        let Paced { transaction, pace } = self;
        pace.stretch(|| transaction.commit())
    }
}
