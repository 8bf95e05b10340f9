//! The feeder offers sensor updates as they arrive; the updater installs what was admitted.
//!
//! The feeder stands in for the network: it runs on the housekeeping core, wakes every [`FEED_PERIOD`] and offers all
//! that has arrived by then. It alone talks to admission, so the order of its decisions is their log. The updater
//! runs on the real-time core in the slack of the jobs, as in the first paper; a job that begins a transaction
//! helps it (see `punctual_store`).

use punctual_loop::AdmissionEvent;
use punctual_platform::linux::clock::MonotonicClock;
use punctual_store::engine::Engine;
use punctual_store::sensors::TOGETHER;
use punctual_store::updates::Verdict;
use punctual_store::{Store, StoreError};
use punctual_units::{Clock, Nanos, Share, Time};
use punctual_workload::SensorUpdate;

use super::shared::{Shared, Starter, StopOnPanic};
use super::tasks::sleep_until;

/// How often arrivals are looked at: coarse enough to cost nothing, fine against validity intervals of 100 ms and
/// more.
const FEED_PERIOD: Nanos = Nanos::from_millis(1);

/// Updates installed between two looks at whether the run is over.
const INSTALL_BATCH: usize = 64;

/// Where updates come from.
pub(super) struct Feed<'env> {
    /// In time order, relative to the start of the run.
    pub(super) stream: Box<dyn Iterator<Item = SensorUpdate> + Send + 'env>,
    /// Bytes of a value; the reading comes first.
    pub(super) value_bytes: usize,
    /// Whether to keep a log of admission.
    pub(super) record: bool,
}

/// What the feeder has to say at the end.
#[derive(Default)]
pub(super) struct Fed {
    pub(super) log: Vec<AdmissionEvent>,
    pub(super) error: Option<StoreError>,
}

/// Lets the updater end when the feeder has, however that came about: it would wait for ever for a feeder that panicked.
struct FeedOver<'s>(&'s Shared);

impl Drop for FeedOver<'_> {
    fn drop(&mut self) {
        self.0.feed_over.store(true, std::sync::atomic::Ordering::Release);
        self.0.updates.unpark();
    }
}

impl Feed<'_> {
    pub(super) fn run<E: Engine>(self, store: &Store<E, MonotonicClock>, shared: &Shared, starter: Starter) -> Fed {
        let _guard = StopOnPanic(shared);
        let _over = FeedOver(shared);
        let mut fed = Fed::default();
        if let Some(start) = starter.start()
            && let Err(error) = self.feed(store, shared, start, &mut fed.log)
        {
            fed.error = Some(error);
            shared.stop();
        }
        fed
    }

    fn feed<E: Engine>(
        self,
        store: &Store<E, MonotonicClock>,
        shared: &Shared,
        start: Time,
        log: &mut Vec<AdmissionEvent>,
    ) -> Result<(), StoreError> {
        let mut stream = self.stream.peekable();
        let mut value = vec![0; self.value_bytes.max(8)];
        let mut share: Option<Share> = None;
        let mut wake = start;
        while sleep_until(wake, shared) {
            let asked = shared.admitted();
            if share.replace(asked) != Some(asked) {
                store.set_admitted_share(asked);
                note(log, self.record, || AdmissionEvent::Share(asked));
            }
            if shared.rebalance_due() {
                rebalance(store, log, self.record);
            }
            let now = MonotonicClock.now();
            // Whoever cannot keep up still hears that the run is over.
            while !shared.stopping() {
                let group: Vec<SensorUpdate> = std::iter::from_fn(|| stream.next_if(|update| start + update.at <= now))
                    .take(TOGETHER)
                    .collect();
                if group.is_empty() {
                    break;
                }
                let any = store.offer_together(|offer| -> Result<bool, StoreError> {
                    let mut any = false;
                    for update in &group {
                        value[..8].copy_from_slice(&update.value.to_le_bytes());
                        let SensorUpdate { sensor, seq, .. } = *update;
                        let sampled_at = start + update.at;
                        let admitted = offer(sensor, seq, sampled_at, &value, now)? == Verdict::Admitted;
                        any |= admitted;
                        note(log, self.record, || AdmissionEvent::Offered {
                            sensor,
                            seq,
                            sampled_at,
                            now,
                            admitted,
                        });
                    }
                    Ok(any)
                })?;
                if any {
                    shared.updates.unpark();
                }
            }
            wake = (wake + FEED_PERIOD).max(now);
        }
        Ok(())
    }
}

fn rebalance<E: Engine>(store: &Store<E, MonotonicClock>, log: &mut Vec<AdmissionEvent>, record: bool) {
    let reads = store.rebalance();
    note(log, record, || AdmissionEvent::Rebalanced(reads));
}

fn note(log: &mut Vec<AdmissionEvent>, record: bool, event: impl FnOnce() -> AdmissionEvent) {
    if record {
        log.push(event());
    }
}

/// Installs admitted updates until the feed is over and nothing is pending. Returns the first error.
pub(super) fn install<E: Engine>(
    store: &Store<E, MonotonicClock>,
    shared: &Shared,
    starter: Starter,
) -> Option<StoreError> {
    let _guard = StopOnPanic(shared);
    starter.start()?;
    loop {
        match store.install_pending(INSTALL_BATCH) {
            Ok(0) if shared.feed_over.load(std::sync::atomic::Ordering::Acquire) => return None,
            Ok(0) => {
                shared
                    .updates
                    .park_until(MonotonicClock.now() + Nanos::from_millis(100));
            }
            // The lock was busy for long; the update in hand is kept, and tried again.
            Ok(_) | Err(StoreError::LockTimeout { .. } | StoreError::TooManyWaiters) => {}
            Err(error) => {
                shared.stop();
                return Some(error);
            }
        }
    }
}
