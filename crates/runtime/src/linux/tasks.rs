//! Task threads: release, run, report.

use punctual_platform::linux::clock::MonotonicClock;
use punctual_store::engine::Engine;
use punctual_store::{Store, StoreError};
use punctual_units::{Clock, Nanos, TaskId, Time};
use punctual_workload::{Active, Arrival};
use rand_chacha::ChaCha8Rng;

use super::job::Job;
use super::shared::{Shared, Starter, StopOnPanic};

/// Jobs of one task that may wait while an earlier one is late; further releases are dropped and counted.
pub(super) const BACKLOG_MAX: u64 = 8;

/// How long a thread sleeps before it looks whether the run is over.
const NAP: Nanos = Nanos::from_millis(50);

/// What a task does, once per job.
pub(super) type Body<'env, E> = Box<dyn FnMut(&mut Job<'_, E>) -> Result<(), StoreError> + Send + 'env>;

/// Jobs that ended with an error.
pub(super) struct Failed {
    pub(super) first: StoreError,
    pub(super) jobs: u64,
}

/// A task, ready to run.
pub(super) struct Running<'env, E: Engine> {
    pub(super) id: TaskId,
    pub(super) deadline: Option<Nanos>,
    pub(super) arrival: Arrival,
    pub(super) active: Active,
    pub(super) body: Body<'env, E>,
    pub(super) rng: ChaCha8Rng,
}

impl<E: Engine> Running<'_, E> {
    /// Runs the task until the run ends.
    pub(super) fn run(mut self, store: &Store<E, MonotonicClock>, shared: &Shared, starter: Starter) -> Option<Failed> {
        let _guard = StopOnPanic(shared);
        let start = starter.start()?;
        let mut failed: Option<Failed> = None;
        let mut release = start + self.active.from + self.arrival.first(&mut self.rng);
        let mut number = 0;
        while self.active.admit(start, release).is_some() && sleep_until(release, shared) {
            let mut job = Job::begin(store, number, release, self.deadline);
            let result = (self.body)(&mut job);
            let outcome = job.end(self.id);
            // A job that failed at once was not early: it has no response time.
            if let Err(error) = result {
                failed.get_or_insert(Failed { first: error, jobs: 0 }).jobs += 1;
            } else {
                shared.report(outcome);
            }
            number += 1;
            release = self.arrival.next(release, outcome.finished, &mut self.rng);
            release = self.drop_backlog(release, outcome.finished, shared);
        }
        failed
    }

    /// Drops releases beyond the bound of the backlog: a task that cannot keep up loses jobs, not ever more time.
    fn drop_backlog(&self, release: Time, now: Time, shared: &Shared) -> Time {
        let Arrival::Periodic { period } = self.arrival else {
            return release;
        };
        let waiting = now.since(release).0 / period.0;
        let dropped = waiting.saturating_sub(BACKLOG_MAX);
        if dropped > 0 {
            shared.skip(dropped);
        }
        release + period * dropped
    }
}

/// Sleeps until `wake`; false where the run ended before.
pub(super) fn sleep_until(wake: Time, shared: &Shared) -> bool {
    loop {
        if shared.stopping() {
            return false;
        }
        let now = MonotonicClock.now();
        if now >= wake {
            return true;
        }
        MonotonicClock.sleep_until(wake.min(now + NAP));
    }
}
