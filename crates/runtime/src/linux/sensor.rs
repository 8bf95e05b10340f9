//! Live sensors: readings from any thread, at any rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_os::LinuxOs;
use punctual_store::engine::Engine;
use punctual_store::updates::Receipt;
use punctual_store::{Store, StoreError};
use punctual_units::{SensorId, Time};

use super::shared::RunState;

/// Why a reading was refused.
#[derive(Debug, thiserror::Error)]
pub enum SensorError {
    /// The store has no temporal object with this key.
    #[error("the store has no temporal object {key:?}: name it in StoreOptions::objects when the store is opened")]
    Unknown {
        /// Key in the caller's request.
        key: String,
    },
    /// A recording feeds this store, and numbers its readings.
    #[error("a recording feeds this store: start a runtime without one to offer readings of live sensors")]
    Recorded,
    /// The runtime has ended, or the sensor was stopped.
    #[error(
        "the sensor has stopped: readings are taken while the runtime runs; ask it for the sensor again if it does"
    )]
    Stopped,
    /// The store refused the reading, for example because it is longer than agreed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A reading as bytes: a number, or the caller's own bytes.
pub trait Reading {
    /// Calls `take` with the reading's bytes.
    fn with_bytes<T>(&self, take: impl FnOnce(&[u8]) -> T) -> T;
}

/// Encoded as eight little-endian bytes.
impl Reading for f64 {
    fn with_bytes<T>(&self, take: impl FnOnce(&[u8]) -> T) -> T {
        take(&self.to_le_bytes())
    }
}

/// The bytes themselves, unchanged.
impl<B: AsRef<[u8]>> Reading for Bytes<B> {
    fn with_bytes<T>(&self, take: impl FnOnce(&[u8]) -> T) -> T {
        take(self.0.as_ref())
    }
}

/// A reading given as the caller's own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes<B>(pub B);

/// A live sensor of one temporal object. Clones report for the same sensor, from any thread.
///
/// The store numbers the readings. The loop's knob is the share of them that is admitted; each reading is installed,
/// shed, superseded by a newer one, or under way ([`Store::reconcile`] checks it). The handle does not keep the runtime
/// running.
pub struct Sensor<E: Engine> {
    store: Arc<Store<E, LinuxOs>>,
    shared: Arc<RunState>,
    id: SensorId,
    stopped: Arc<AtomicBool>,
}

impl<E: Engine> Clone for Sensor<E> {
    fn clone(&self) -> Self {
        Sensor {
            store: Arc::clone(&self.store),
            shared: Arc::clone(&self.shared),
            id: self.id,
            stopped: Arc::clone(&self.stopped),
        }
    }
}

impl<E: Engine> Sensor<E> {
    pub(super) fn new(store: Arc<Store<E, LinuxOs>>, shared: Arc<RunState>, id: SensorId) -> Self {
        Sensor {
            store,
            shared,
            id,
            stopped: Arc::default(),
        }
    }

    /// Offers a reading that was sampled now, and installs it where objects are memory-first. Never waits for a disk;
    /// waits at most for another thread that offers or installs.
    ///
    /// # Errors
    /// [`SensorError`]; then the reading does not count as offered.
    pub fn offer(&self, reading: impl Reading) -> Result<Receipt, SensorError> {
        self.take(None, &reading)
    }

    /// Offers a reading that was sampled at `sampled_at`, by the clock of the store ([`LinuxOs`]). An instant in the
    /// future is replaced by now. Offer readings in the order in which they were sampled.
    ///
    /// # Errors
    /// The errors of [`offer`](Sensor::offer).
    pub fn offer_sampled(&self, reading: impl Reading, sampled_at: Time) -> Result<Receipt, SensorError> {
        self.take(Some(sampled_at), &reading)
    }

    /// Refuses all further readings, from every clone. The object keeps its last value, which grows stale.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    fn take(&self, sampled_at: Option<Time>, reading: &impl Reading) -> Result<Receipt, SensorError> {
        if self.shared.stopping() || self.stopped.load(Ordering::Acquire) {
            return Err(SensorError::Stopped);
        }
        let verdict = reading.with_bytes(|bytes| self.store.offer_next(self.id, sampled_at, bytes))?;
        if verdict == Receipt::Admitted && self.store.pending() > 0 {
            self.shared.updates.unpark();
        }
        Ok(verdict)
    }
}
