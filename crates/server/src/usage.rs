//! Figures of the store that take a look into it: keys, room, requests per second. The keeper renews them, because the
//! event loop, which answers INFO, calls no store.

use std::ops::{Bound, ControlFlow};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_store::{Deadline, StoreError};
use punctual_units::{Nanos, Time};

use crate::commands::Look;
use crate::pool::PoolState;

/// Keys are counted again after this many times the time that it took: at most a hundredth of a core.
const REST: u64 = 100;
/// Longest time between two counts, because commits of tasks and programs are not counted here.
const COUNT_MAX: Nanos = Nanos::from_secs(60);
/// Time over which requests per second are averaged.
const RATE_SPAN: Nanos = Nanos::from_secs(1);

/// Figures of the store.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreFigures {
    /// Keys that clients see, when they were last counted.
    pub keys: u64,
    /// The part of the keys that expire.
    pub expiring: u64,
    /// Mean remaining life of these.
    pub life: Nanos,
    /// Bytes of the records, and their limit; 0 without.
    pub bytes: [u64; 2],
    /// Commands that the pool has answered in the last second.
    pub per_second: u64,
}

/// When keys were counted.
#[derive(Default)]
pub(crate) struct KeyCount {
    next: Time,
    latest: Time,
    /// Commits and removed records by then.
    state: Option<(u64, u64)>,
}

impl KeyCount {
    /// Counts the keys anew if they may have changed, and not too often. An error leaves the former figures.
    pub fn renew<E: Engine + 'static, O: Os>(&mut self, shared: &PoolState<E, O>, now: Time) {
        let state = (shared.counts.commits.load(Ordering::Relaxed), shared.store.expired());
        let is_old = now.since(self.latest) > COUNT_MAX || self.state.is_none();
        if now < self.next || self.state == Some(state) && !is_old {
            return;
        }
        if let Ok(found) = count(shared) {
            let mut usage = shared.usage.lock().unwrap_or_else(PoisonError::into_inner);
            let per_second = usage.per_second;
            *usage = StoreFigures { per_second, ..found };
        }
        let ended = shared.os.now();
        *self = KeyCount {
            next: ended + ended.since(now) * REST,
            latest: now,
            state: Some(state),
        };
    }
}

fn count<E: Engine + 'static, O: Os>(shared: &PoolState<E, O>) -> Result<StoreFigures, StoreError> {
    let (mut found, mut lives, mut failed) = (StoreFigures::default(), 0, None);
    let transaction = shared.store.read_transaction(Deadline::NONE)?;
    transaction.keys(Bound::Unbounded, |key| match transaction.found(key) {
        Ok(info) => {
            found.keys += u64::from(info.is_there);
            found.expiring += u64::from(info.life.is_some());
            lives += u128::from(info.life.unwrap_or_default().0);
            ControlFlow::Continue(())
        }
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    let space = shared.store.engine().space()?;
    found.bytes = [space.data, space.quota.unwrap_or(0)];
    found.life = Nanos((lives / u128::from(found.expiring.max(1))) as u64);
    failed.map_or(Ok(found), Err)
}

/// The commands that had been answered at an instant.
#[derive(Default)]
pub(crate) struct Rate {
    since: Time,
    answered: u64,
}

impl Rate {
    /// Renews the number of commands per second, once `RATE_SPAN` has passed.
    pub fn take<E: Engine + 'static, O: Os>(&mut self, shared: &PoolState<E, O>, now: Time) {
        let passed = now.since(self.since);
        if passed < RATE_SPAN {
            return;
        }
        let answered = shared.counts.carried_out.load(Ordering::Relaxed);
        let more = u128::from(answered - self.answered) * 1_000_000_000 / u128::from(passed.0);
        let is_first = self.since == Time::ZERO;
        shared.usage.lock().unwrap_or_else(PoisonError::into_inner).per_second = if is_first { 0 } else { more as u64 };
        *self = Rate { since: now, answered };
    }
}
