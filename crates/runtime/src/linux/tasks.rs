//! Task threads: release, run, report.

use punctual_platform::linux::clock::MonotonicClock;
use punctual_store::engine::Engine;
use punctual_store::{Store, StoreError};
use punctual_units::{Clock, Nanos, TaskId, Time};
use punctual_workload::{Active, Arrival};
use rand::rngs::Xoshiro256PlusPlus;

use super::job::Job;
use super::releases::Releases;
use super::shared::{Shared, Starter, StopOnPanic, Tidings};
use super::tenancy::Tenancy;

/// How long a thread sleeps before it looks whether the run is over.
const NAP: Nanos = Nanos::from_millis(50);

/// What a task does, once per job.
pub type Body<'env, E> = Box<dyn FnMut(&mut Job<'_, E>) -> Result<(), StoreError> + Send + 'env>;

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
    pub(super) rng: Xoshiro256PlusPlus,
    /// Of the only task on an exclusive core: lends it between jobs.
    pub(super) tenancy: Option<Tenancy>,
}

impl<E: Engine> Running<'_, E> {
    /// Runs the task until the run ends.
    pub(super) fn run(mut self, store: &Store<E, MonotonicClock>, shared: &Shared, starter: Starter) -> Option<Failed> {
        let _guard = StopOnPanic(shared);
        let start = starter.start()?;
        let mut failed: Option<Failed> = None;
        let mut releases = Releases::new(self.arrival, start + self.active.from, &mut self.rng);
        let mut number = 0;
        let mut tenancy = self.tenancy.take();
        let mut wait = |release| match &mut tenancy {
            Some(tenancy) => tenancy.wait(release, |until| sleep_until(until, shared)),
            None => sleep_until(release, shared),
        };
        while self.active.admit(start, releases.next()).is_some() && wait(releases.next()) {
            let job = Job::begin(store, number, releases.next(), self.deadline);
            let mut job = job.telling(shared, self.id, start);
            let result = (self.body)(&mut job);
            let outcome = job.end(self.id);
            let (task, at) = (self.id, outcome.finished);
            // A job that failed at once was not early: it has no response time.
            if let Err(error) = result {
                failed.get_or_insert(Failed { first: error, jobs: 0 }).jobs += 1;
                shared.report(Tidings::Failed { task, at });
            } else {
                shared.report(Tidings::Outcome(outcome));
            }
            number += 1;
            let releases = releases.ended(at, &mut self.rng);
            if releases > 0 {
                shared.report(Tidings::Skipped { task, releases, at });
            }
        }
        failed
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
