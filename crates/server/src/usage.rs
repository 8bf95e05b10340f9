//! Figures of the store that take a look at all of it: keys, room, requests per second. The keeper renews them, some
//! keys at a time: counting takes longer than the event loop, which answers INFO, may, and the keeper has more to do.

use std::ops::{Bound, ControlFlow};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_store::{Deadline, StoreError};
use punctual_units::{Nanos, Time};

use crate::commands::Look;
use crate::pool::PoolState;

/// Keys counted in one turn of the keeper: about a millisecond.
const COUNTED_TURN: usize = 4096;
/// Pause after a count, in times of what the count took: while anything writes, at most a fifth of the turns count.
const PAUSES: u64 = 4;
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
    /// Remaining lives of these in total, in milliseconds.
    pub lives_ms: u64,
    /// Bytes of the records, and their limit; 0 without.
    pub bytes: [u64; 2],
    /// Commands that the pool has answered in the last second.
    pub per_second: u64,
}

/// A count of the keys.
#[derive(Default)]
pub(crate) struct KeyCount {
    /// The last key that was counted, and the figures up to it; `None` between two counts.
    behind: Option<(Vec<u8>, StoreFigures)>,
    began: Time,
    ended: Time,
    /// Commits and removed records when the count began.
    state: Option<(u64, u64)>,
    rate_since: Time,
    answered: u64,
}

impl KeyCount {
    /// Counts some keys, if they may have changed since the last count. An error leaves the former figures.
    pub fn renew<E: Engine + 'static, O: Os>(&mut self, shared: &PoolState<E, O>) {
        let now = shared.os.now();
        self.rate(shared, now);
        let state = (shared.counts.commits.load(Ordering::Relaxed), shared.store.expired());
        if self.behind.is_none() && self.is_due(now, state) {
            (self.began, self.state) = (now, Some(state));
            self.behind = Some(Default::default());
        }
        if let Some((behind, figures)) = self.behind.take()
            && let Ok(counted) = self.count(shared, behind, figures)
        {
            let mut known = shared.usage.lock().unwrap_or_else(PoisonError::into_inner);
            let per_second = known.per_second;
            self.ended = now;
            *known = counted.map_or(*known, |counted| StoreFigures { per_second, ..counted });
        }
    }

    /// Whether the next count begins, at this state of the store.
    fn is_due(&self, now: Time, state: (u64, u64)) -> bool {
        let pause = Nanos(PAUSES * self.ended.since(self.began).0);
        let is_over = now.since(self.began) > COUNT_MAX;
        is_over || self.state != Some(state) && now.since(self.ended) >= pause
    }

    /// Counts the keys behind one; returns the figures once all are counted.
    fn count<E: Engine + 'static, O: Os>(
        &mut self,
        shared: &PoolState<E, O>,
        mut behind: Vec<u8>,
        mut figures: StoreFigures,
    ) -> Result<Option<StoreFigures>, StoreError> {
        let (mut count, mut failed, from) = (0, None, behind.clone());
        let transaction = shared.store.read_transaction(Deadline::NONE)?;
        transaction.keys(Bound::Excluded(&from), |key| match transaction.found(key) {
            Ok(info) => {
                figures.keys += u64::from(info.is_there);
                figures.expiring += u64::from(info.life.is_some());
                let life_ms = info.life.unwrap_or_default().0 / 1_000_000;
                figures.lives_ms = figures.lives_ms.saturating_add(life_ms);
                behind.clear();
                behind.extend_from_slice(key);
                count += 1;
                if count < COUNTED_TURN {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            }
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if count == COUNTED_TURN {
            self.behind = Some((behind, figures));
            return Ok(None);
        }
        let space = shared.store.engine().space()?;
        figures.bytes = [space.data, space.quota.unwrap_or(0)];
        Ok(Some(figures))
    }

    /// Renews the number of commands per second, once `RATE_SPAN` has passed.
    fn rate<E: Engine + 'static, O: Os>(&mut self, shared: &PoolState<E, O>, now: Time) {
        let passed = now.since(self.rate_since);
        if passed >= RATE_SPAN {
            let answered = shared.counts.carried_out.load(Ordering::Relaxed);
            let rate = u128::from(answered - self.answered) * 1_000_000_000 / u128::from(passed.0);
            shared.usage.lock().unwrap_or_else(PoisonError::into_inner).per_second = rate as u64;
            (self.rate_since, self.answered) = (now, answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_followed_by_a_pause() {
        let at = |ms: u64| Time(Nanos::from_millis(ms).0);
        let mut keys = KeyCount {
            state: Some((1, 0)),
            ..KeyCount::default()
        };
        (keys.began, keys.ended) = (at(1000), at(3000));
        assert!(!keys.is_due(at(10_999), (2, 0)) && keys.is_due(at(11_000), (2, 0)));
        assert!(!keys.is_due(at(60_000), (1, 0)) && keys.is_due(at(61_001), (1, 0)));
        // A count of one turn has none.
        keys.began = keys.ended;
        assert!(keys.is_due(at(3000), (2, 0)));
    }
}
