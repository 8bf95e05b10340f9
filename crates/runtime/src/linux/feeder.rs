//! The feeder offers recorded sensor updates when they are due. In transaction mode the updater installs the admitted
//! ones, those of the feeder and of live sensors (`sensor.rs`); memory-first objects have them when they are offered.
//!
//! The feeder stands in for the network: it runs on the housekeeping core, wakes every [`FEED_PERIOD`] and offers all
//! updates that have arrived by then. The control thread sets the admitted share in the store. The store keeps the
//! admission log, in the order of its decisions, whichever threads asked for them. The updater runs on the real-time
//! core in the slack of the jobs, as in the first paper; a job that begins a transaction helps it (see
//! `punctual_store`).

use punctual_os::LinuxOs;
use punctual_store::engine::Engine;
use punctual_store::sensors::{Offer, TOGETHER};
use punctual_store::{Store, StoreError};
use punctual_units::{Clock, Nanos, Time};
use punctual_workload::SensorUpdate;

use super::shared::{RunState, StopOnPanic, ThreadStart};
use super::tasks::sleep_until;

/// Period of the feeder: long enough to cost nothing, short against validity intervals of 100 ms and more.
const FEED_PERIOD: Nanos = Nanos::from_millis(1);

/// Updates installed between two checks whether the run is over.
const INSTALL_BATCH: usize = 64;

/// Source of recorded updates.
pub(super) struct Feed {
    /// Ordered by time, relative to the start of the run.
    pub(super) stream: Box<dyn Iterator<Item = SensorUpdate> + Send>,
    /// Length of a value in bytes; the reading comes first.
    pub(super) value_bytes: usize,
}

/// Sets `feed_over` when the feeder ends, also by a panic: otherwise the updater would wait for it without limit.
struct FeedOver<'s>(&'s RunState);

impl Drop for FeedOver<'_> {
    fn drop(&mut self) {
        self.0.feed_over.store(true, std::sync::atomic::Ordering::Release);
        self.0.updates.unpark();
    }
}

impl Feed {
    /// Feeds until the run ends. Returns the first error.
    pub(super) fn run<E: Engine>(
        self,
        store: &Store<E, LinuxOs>,
        shared: &RunState,
        thread: ThreadStart,
    ) -> Option<StoreError> {
        let _guard = StopOnPanic(shared);
        let _over = FeedOver(shared);
        let start = thread.start()?.at;
        let failed = self.feed(store, shared, start).err();
        if failed.is_some() {
            shared.stop();
        }
        failed
    }

    fn feed<E: Engine>(self, store: &Store<E, LinuxOs>, shared: &RunState, start: Time) -> Result<(), StoreError> {
        let mut stream = self.stream.peekable();
        let value_bytes = self.value_bytes.max(8);
        let mut values = vec![0; value_bytes * TOGETHER];
        let mut wake = start;
        while sleep_until(wake, || !shared.stopping()) {
            let now = LinuxOs.now();
            // A feeder that cannot keep up still checks whether the run is over.
            while !shared.stopping() {
                let group: Vec<SensorUpdate> = std::iter::from_fn(|| stream.next_if(|update| start + update.at <= now))
                    .take(TOGETHER)
                    .collect();
                if group.is_empty() {
                    break;
                }
                for (update, value) in group.iter().zip(values.chunks_exact_mut(value_bytes)) {
                    value[..8].copy_from_slice(&update.value.to_le_bytes());
                }
                let offers = group.iter().zip(values.chunks_exact(value_bytes));
                let offers: Vec<Offer<'_>> = offers
                    .map(|(update, value)| Offer {
                        sensor: update.sensor,
                        seq: update.seq,
                        sampled_at: start + update.at,
                        value,
                    })
                    .collect();
                if store.offer_together(&offers, now)? > 0 && store.pending() > 0 {
                    shared.updates.unpark();
                }
            }
            wake = (wake + FEED_PERIOD).max(now);
        }
        Ok(())
    }
}

/// Installs admitted updates until the run and its feed are over and nothing is pending. Returns the first error.
pub(super) fn install<E: Engine>(
    store: &Store<E, LinuxOs>,
    shared: &RunState,
    thread: ThreadStart,
) -> Option<StoreError> {
    let _guard = StopOnPanic(shared);
    thread.start()?;
    let over = || shared.stopping() && shared.feed_over.load(std::sync::atomic::Ordering::Acquire);
    loop {
        match store.install_pending(INSTALL_BATCH) {
            Ok(0) if over() => return None,
            Ok(0) => {
                shared.updates.park_until(LinuxOs.now() + Nanos::from_millis(100));
            }
            // The lock was busy for long; the current update is kept, and tried again.
            Ok(_) | Err(StoreError::LockTimeout { .. } | StoreError::TooManyWaiters) => {}
            Err(error) => {
                shared.stop();
                return Some(error);
            }
        }
    }
}
