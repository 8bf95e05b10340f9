//! Times at which the jobs of one task are released, as values: the task's thread and the report count by the same
//! schedule, so the report knows of a release even if the thread never ran.

use punctual_units::{Nanos, Time};
use punctual_workload::{Active, Arrival};
use rand::Rng;

/// Greatest number of releases of a sporadic task that are drawn one by one in order to skip them.
const SKIPS_MAX: u64 = 1_000_000;

/// The next release of a task. The same draws give the same releases.
#[derive(Clone, Debug)]
pub struct NextRelease {
    arrival: Arrival,
    /// The next release, whether or not it has come.
    pub(crate) at: Time,
    /// No job is released from here on.
    until: Time,
}

impl NextRelease {
    /// Begins the releases of a task that is `active` in a run that starts at `start`.
    pub fn new(arrival: Arrival, active: Active, start: Time, rng: &mut impl Rng) -> NextRelease {
        NextRelease {
            arrival,
            at: start + active.from + arrival.first(rng),
            until: start + active.until,
        }
    }

    /// Whether the release falls into the task's part of the run.
    pub fn is_active(&self) -> bool {
        self.at < self.until
    }

    /// Whether a release waits for the end of the job before.
    pub(crate) fn follows_a_job(&self) -> bool {
        matches!(self.arrival, Arrival::AfterCompletion { .. })
    }

    /// Advances after a job that ended at `finished`, for a task whose releases follow its jobs.
    pub(crate) fn follow(&mut self, finished: Time, rng: &mut impl Rng) {
        self.at = self.arrival.next(self.at, finished, rng);
    }

    /// Advances by one release, at least a nanosecond, so that loops over releases end. For a task whose releases do
    /// not follow its jobs.
    pub(crate) fn advance(&mut self, rng: &mut impl Rng) {
        self.at = self.arrival.next(self.at, self.at, rng).max(self.at + Nanos(1));
    }

    /// Removes the next release if it has come by `now`.
    pub(crate) fn take(&mut self, now: Time, rng: &mut impl Rng) -> Option<Time> {
        let release = Some(self.at).filter(|at| *at <= now && self.is_active())?;
        self.advance(rng);
        Some(release)
    }

    /// Advances past `now`; returns the number of releases that this skips.
    pub(crate) fn skip_past(&mut self, now: Time, rng: &mut impl Rng) -> u64 {
        let mut skipped = 0;
        if let (Arrival::Periodic { period }, true) = (self.arrival, self.at <= now && self.is_active()) {
            let period = period.max(Nanos(1));
            let last = now.min(Time(self.until.0 - 1));
            skipped = last.since(self.at).0 / period.0 + 1;
            self.at = self.at + period * skipped;
        }
        while self.at <= now && self.is_active() {
            // Drawing gaps of nanoseconds over hours would take longer than the gaps.
            if skipped == SKIPS_MAX {
                self.at = now + Nanos(1);
                break;
            }
            self.advance(rng);
            skipped += 1;
        }
        skipped
    }
}
