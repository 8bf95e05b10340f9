//! Temporal objects that belong together, read and written all at once; and their histories.
//!
//! **Problem.** A pose and its covariance, or the four wheels of a vehicle: a reader that sees one of them as it was
//! before an update and the others as they are after it computes with a state that never existed.
//!
//! **Method.** In memory-first mode, all reads of one [`Store::read_together`] are of one cut, see
//! [`temporal`](crate::temporal), and were the latest at one instant: it compares the numbers of all values with those
//! that it has read, and reads again what has changed, until a pass finds nothing changed. After [`PASSES_MAX`] passes
//! it holds the locks under which updates of these objects are installed, whose holders inherit the priority of their
//! waiters, and reads without a writer beside it. In transaction mode it reads one snapshot of the engine.
//!
//! ```
//! use punctual_store::temporal::{ObjectSpec, ReadingBuffer};
//! use punctual_store::{Store, Together};
//! use punctual_units::{Clock, Nanos};
//! # use {punctual_engines::Memory, punctual_testing::VirtualOs};
//!
//! let every = Nanos::from_millis(10);
//! let specs = [ObjectSpec::number("pose").period(every).keeping(100), ObjectSpec::number("covariance").period(every)];
//! let os = VirtualOs::new(1); // on Linux: `LinuxOs`
//! let store = Store::open(Memory::default(), os.clone(), specs.into())?;
//! let both = [store.object(b"pose").unwrap(), store.object(b"covariance").unwrap()];
//!
//! for step in 1..=3u8 {
//!     let value = [step];
//!     store.install_together(&both.map(|object| Together { object, sampled_at: None, value: &value }))?;
//! }
//! let mut readings = ReadingBuffer::default();
//! store.read_together(&both, &mut readings)?;
//! assert_eq!(readings.get(0).unwrap().1, readings.get(1).unwrap().1); // whatever other threads install
//!
//! store.history(both[0], &mut readings)?;
//! let poses: Vec<u8> = readings.iter().map(|(_, value)| value[0]).collect();
//! assert_eq!(poses, [1, 2, 3]);
//! let now = store.value_at(both[0], os.since_boot())?;
//! assert_eq!(now.value(), Some(&vec![3]));
//! # Ok::<(), punctual_store::StoreError>(())
//! ```

use punctual_os::Os;
use punctual_units::{ObjectId, Time};

use crate::engine::Engine;
use crate::lanes::{LANES, LaneGuard, LaneSet, lane_of, lanes_of};
use crate::sensors::{Direct, State, TOGETHER, in_memory};
use crate::store::Store;
use crate::temporal::{Overwritten, ReadingBuffer};
use crate::watch::WakeMask;
use crate::{Deadline, Freshness, StoreError, UpdateMode};

/// Passes over the numbers of several objects' values before their read holds the locks of their installs.
pub const PASSES_MAX: usize = 32;

/// Cuts that a read tries before it holds the locks of the installs.
pub const CUT_TRIES_MAX: usize = 8;

/// Most objects that can be installed together: they hold the mutex for some microseconds.
pub const INSTALLED_TOGETHER_MAX: usize = TOGETHER;

/// A value to be installed together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together<'v> {
    /// The object that gets the value.
    pub object: ObjectId,
    /// Sampling instant, on the clock of deadlines ([`Clock::now`](punctual_units::Clock::now)); `None`: now.
    pub sampled_at: Option<Time>,
    /// Bytes of the new value.
    pub value: &'v [u8],
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Copies the latest values of `objects` into `readings`, in that order, as they were at one instant: values that
    /// were [installed together](Store::install_together) are seen together or not at all. In memory-first mode it
    /// waits for no writer (see the [module](crate::together)), and allocates no memory if `readings` has room for
    /// all values and one more.
    ///
    /// # Errors
    /// [`StoreError::UnknownObject`]; in transaction mode also those of [`get`](Store::get).
    pub fn read_together(&self, objects: &[ObjectId], readings: &mut ReadingBuffer) -> Result<(), StoreError> {
        for object in objects {
            self.slot(*object)?.count_read();
        }
        match self.update_mode {
            UpdateMode::MemoryFirst => {
                let slots = || objects.iter().filter_map(|object| self.objects.slot(*object));
                if !self.objects.installs().read_latest(slots, readings, PASSES_MAX) {
                    self.alone(lanes_of(objects), |cut| self.read_all_at(cut, objects, readings));
                }
                Ok(())
            }
            UpdateMode::Transaction => {
                readings.clear();
                let snapshot = self.snapshot(Deadline::NONE)?;
                objects.iter().try_for_each(|object| {
                    let reading = self.temporal(&snapshot, *object)?;
                    readings.append(|bytes| {
                        Ok(reading.map(|(sample, value)| {
                            bytes.extend_from_slice(&value);
                            sample
                        }))
                    })
                })
            }
        }
    }

    /// Installs several values at once: no [`read_together`](Store::read_together) sees one without the others, and no
    /// thread that has read one of them reads an older value of another afterwards. Nothing is shed: they count as
    /// offered, admitted and installed. An update of one of the objects that waits to be installed is superseded. In
    /// transaction mode they are one write transaction, without a deadline.
    ///
    /// # Errors
    /// [`StoreError::UnknownObject`], [`StoreError::ValueTooLong`], [`StoreError::DuplicateObject`],
    /// [`StoreError::TooManyTogether`]: nothing has changed. In transaction mode those of a
    /// [write transaction](Store::write_transaction): nothing was installed, and the values count as superseded.
    pub fn install_together(&self, values: &[Together<'_>]) -> Result<(), StoreError> {
        self.check_together(values)?;
        match self.update_mode {
            UpdateMode::MemoryFirst => {
                let mut updates = Vec::with_capacity(values.len());
                let woken = self.sensors.with(|state| {
                    self.sensors.notice_suspension(state, &self.os);
                    let mut lanes = self
                        .sensors
                        .lanes
                        .lock_all(lanes_of(values.iter().map(|value| &value.object)));
                    self.number(state, values, &mut lanes, &mut updates);
                    let woken = self.install_all(values, &updates);
                    updates.iter().for_each(|update| state.settle_directly(update, true));
                    woken
                });
                self.watches.wake(woken);
                Ok(())
            }
            UpdateMode::Transaction => {
                let now = self.os.now();
                let (permit, _) = self.permit(Deadline::NONE, now)?;
                let mut updates = Vec::with_capacity(values.len());
                self.sensors.with(|state| {
                    self.sensors.notice_suspension(state, &self.os);
                    self.number(state, values, &mut self.sensors.lanes.lock_all(0), &mut updates);
                });
                let records = values.iter().zip(&updates);
                let written = self.write_records(
                    records.map(|(value, update)| (value.object, update.sample, value.value)),
                    &permit,
                );
                let woken = self.sensors.with(|state| {
                    let woken = match written {
                        Ok(()) => self.install_all(values, &updates),
                        Err(_) => WakeMask::default(),
                    };
                    for update in &updates {
                        state.settle_directly(update, written.is_ok());
                    }
                    woken
                });
                drop(permit);
                self.watches.wake(woken);
                written
            }
        }
    }

    /// Numbers `values` as the next updates of their objects, within the mutex and with their lanes locked.
    fn number(
        &self,
        state: &mut State,
        values: &[Together<'_>],
        lanes: &mut [Option<LaneGuard<'_, O>>; LANES],
        updates: &mut Vec<Direct>,
    ) {
        let now = self.os.now();
        for Together { object, sampled_at, .. } in values {
            let sampled_at = sampled_at.unwrap_or(now).min(now);
            let last = self.objects.slot(*object).and_then(|slot| self.objects.sample(slot));
            let lane = lanes[lane_of(object.0)].as_deref_mut();
            updates.push(state.number_directly(*object, lane, last, sampled_at, now));
        }
    }

    /// Installs in memory all values that `updates` numbers. Called with the sensors' mutex held.
    fn install_all(&self, values: &[Together<'_>], updates: &[Direct]) -> WakeMask {
        if let Some(mapped) = &self.mapped {
            let updates = values.iter().zip(updates);
            mapped.write_together(updates.map(|(value, update)| (value.object, update.sample, value.value)));
        }
        let slots = values.iter().zip(updates).filter_map(|(value, update)| {
            let slot = self.objects.slot(value.object)?;
            Some(match self.update_mode {
                UpdateMode::MemoryFirst => (slot, update.sample, value.value),
                UpdateMode::Transaction => in_memory(slot, update.sample, value.value),
            })
        });
        let installation = self.objects.installs().install(slots);
        let notes = values.iter().zip(updates);
        let notes = notes.map(|(value, update)| self.note_installed(value.object, update.sample, installation));
        notes.fold(WakeMask::default(), WakeMask::and)
    }

    /// The last values of `object`, the oldest first, at most as many as its
    /// [`history`](crate::temporal::ObjectSpec::history) says: a slice without gaps, as it was at one instant. Of
    /// earlier runs only the one kept value can be part of it.
    ///
    /// # Errors
    /// [`StoreError::UnknownObject`]; those of [`read_together`](Store::read_together).
    pub fn history(&self, object: ObjectId, readings: &mut ReadingBuffer) -> Result<(), StoreError> {
        let slot = self.slot(object)?;
        if slot.kept() == 1 {
            return self.read_together(&[object], readings);
        }
        slot.count_read();
        self.at_one_cut(lanes_of([&object]), |cut| {
            readings.clear();
            slot.history_at(cut, readings)
        });
        Ok(())
    }

    /// The value of `object` that was valid at `instant`, on the clock of ages
    /// ([`Clock::since_boot`](punctual_units::Clock::since_boot)): the last one of its history that was sampled at that
    /// instant or before. `Stale` if it had expired by then; `NotFound` if `instant` lies before the whole history.
    /// Nothing is interpolated.
    ///
    /// # Errors
    /// Those of [`history`](Store::history).
    pub fn value_at(&self, object: ObjectId, instant: Time) -> Result<Freshness<Vec<u8>>, StoreError> {
        let mut readings = ReadingBuffer::default();
        self.history(object, &mut readings)?;
        let avi = self.objects.avi(object).ok_or(StoreError::UnknownObject(object))?;
        Ok(match readings.at(instant) {
            None => Freshness::NotFound,
            Some((sample, value)) => match sample.age(instant) {
                age if age <= avi => Freshness::Fresh {
                    value: value.to_vec(),
                    age,
                },
                age => Freshness::Stale {
                    age,
                    sampled_at: sample.sampled_at,
                },
            },
        })
    }

    /// Reads at one cut: tries the latest one several times, and then reads while no thread installs into objects of
    /// `lanes`.
    pub(crate) fn at_one_cut<T>(&self, lanes: LaneSet, mut read: impl FnMut(u64) -> Result<T, Overwritten>) -> T {
        let installs = self.objects.installs();
        for _ in 0..CUT_TRIES_MAX {
            if let Ok(found) = read(installs.cut()) {
                return found;
            }
        }
        self.alone(lanes, read)
    }

    /// Reads at the latest cut while no thread installs into objects of `lanes`.
    fn alone<T>(&self, lanes: LaneSet, mut read: impl FnMut(u64) -> Result<T, Overwritten>) -> T {
        self.sensors.with(|_| {
            let _lanes = self.sensors.lanes.lock_all(lanes);
            match read(self.objects.installs().cut()) {
                Ok(found) => found,
                Err(Overwritten) => unreachable!("mutex and lanes keep installs out"),
            }
        })
    }

    pub(crate) fn read_all_at(
        &self,
        cut: u64,
        objects: &[ObjectId],
        readings: &mut ReadingBuffer,
    ) -> Result<(), Overwritten> {
        readings.clear();
        let slots = objects.iter().filter_map(|object| self.objects.slot(*object));
        slots
            .into_iter()
            .try_for_each(|slot| readings.append(|bytes| slot.append_at(cut, bytes)))
    }

    fn check_together(&self, values: &[Together<'_>]) -> Result<(), StoreError> {
        let max = INSTALLED_TOGETHER_MAX;
        if values.len() > max {
            return Err(StoreError::TooManyTogether { max });
        }
        for (at, Together { object, value, .. }) in values.iter().enumerate() {
            let max_len = self
                .objects
                .value_max(*object)
                .ok_or(StoreError::UnknownObject(*object))?;
            let key = || self.objects.key(*object).to_vec();
            if value.len() > max_len {
                let (key, len) = (key(), value.len());
                return Err(StoreError::ValueTooLong { key, len, max_len });
            }
            if values[..at].iter().any(|other| other.object == *object) {
                return Err(StoreError::DuplicateObject { key: key() });
            }
        }
        Ok(())
    }
}
