//! Release times of one task, and its waiting jobs: values in, values out.

use std::collections::VecDeque;

use punctual_units::{Nanos, Time};
use punctual_workload::Arrival;
use rand::Rng;

/// Greatest number of jobs that wait behind the running one. Further releases are skipped: a task that cannot keep up
/// loses jobs, but not ever more time. The simulated machine has the same bound.
pub(super) const BACKLOG_MAX: usize = 8;

/// A task that misses more than [`BACKLOG_MAX`] releases over at least this time has stood still: the process was
/// stopped, or the virtual machine paused. `CLOCK_MONOTONIC` does not count a suspend of the whole machine.
const STANDSTILL: Nanos = Nanos::from_secs(1);

/// Greatest number of releases of a sporadic task that are drawn one by one in order to skip them.
const SKIPS_MAX: u64 = 1_000_000;

/// Computes the releases of one task.
#[derive(Clone, Debug)]
pub(super) struct Releases {
    arrival: Arrival,
    /// Releases that came while an earlier job ran.
    waiting: VecDeque<Time>,
    /// The next release that is not known to have come.
    coming: Time,
}

impl Releases {
    /// Begins the releases of a run that starts at `start`.
    pub(super) fn new(arrival: Arrival, start: Time, rng: &mut impl Rng) -> Releases {
        Releases {
            arrival,
            waiting: VecDeque::with_capacity(BACKLOG_MAX),
            coming: start + arrival.first(rng),
        }
    }

    /// Release of the job to run next.
    pub(super) fn next(&self) -> Time {
        self.waiting.front().copied().unwrap_or(self.coming)
    }

    /// Records that the job of [`next`](Releases::next) has `finished`. Releases in the meantime wait; returns the
    /// number of releases that found no room.
    pub(super) fn ended(&mut self, finished: Time, rng: &mut impl Rng) -> u64 {
        if let Arrival::AfterCompletion { .. } = self.arrival {
            self.coming = self.arrival.next(self.coming, finished, rng);
            return 0;
        }
        let ran = self.next();
        if self.waiting.pop_front().is_none() {
            self.coming = self.after(self.coming, rng);
        }
        while self.coming <= finished && self.waiting.len() < BACKLOG_MAX {
            self.waiting.push_back(self.coming);
            self.coming = self.after(self.coming, rng);
        }
        let mut skipped = self.skip_past(finished, rng);
        if skipped > BACKLOG_MAX as u64 && finished.since(ran) >= STANDSTILL {
            skipped += std::mem::take(&mut self.waiting).len() as u64;
        }
        skipped
    }

    /// Advances `coming` past `now`; returns the number of releases that this skips.
    fn skip_past(&mut self, now: Time, rng: &mut impl Rng) -> u64 {
        let mut skipped = 0;
        if let (Arrival::Periodic { period }, true) = (self.arrival, self.coming <= now) {
            let period = period.max(Nanos(1));
            skipped = now.since(self.coming).0 / period.0 + 1;
            self.coming = self.coming + period * skipped;
        }
        while self.coming <= now {
            // Drawing gaps of nanoseconds over hours would take longer than the gaps.
            if skipped == SKIPS_MAX {
                self.coming = now + Nanos(1);
                break;
            }
            self.coming = self.after(self.coming, rng);
            skipped += 1;
        }
        skipped
    }

    /// Records that the thread, which waited for [`next`](Releases::next), woke up at `now`. After a standstill this
    /// skips all releases up to `now`, and the next one is in the future; returns the number skipped. A burst of jobs
    /// that are all equally late would only keep other tasks from their cores.
    pub(super) fn resumed(&mut self, now: Time, rng: &mut impl Rng) -> u64 {
        let stood = !matches!(self.arrival, Arrival::AfterCompletion { .. }) && now.since(self.next()) >= STANDSTILL;
        if !stood {
            return 0;
        }
        let mut ahead = self.clone();
        let waiting = std::mem::take(&mut ahead.waiting).len() as u64;
        let missed = waiting + ahead.skip_past(now, rng);
        if missed <= BACKLOG_MAX as u64 {
            return 0;
        }
        *self = ahead;
        missed
    }

    /// The release after `release`, at least a nanosecond later, so that loops over releases end.
    fn after(&self, release: Time, rng: &mut impl Rng) -> Time {
        self.arrival.next(release, release, rng).max(release + Nanos(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const GAP: Nanos = Nanos(10);

    fn arrivals() -> [Arrival; 3] {
        [
            Arrival::Periodic { period: GAP },
            Arrival::Sporadic {
                gap_min: GAP,
                gap_max: GAP * 3,
            },
            Arrival::AfterCompletion {
                pause_min: GAP,
                pause_max: GAP * 3,
            },
        ]
    }

    #[test]
    fn a_periodic_task_that_stalls_runs_what_waits_in_order_and_skips_the_rest() {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let mut releases = Releases::new(Arrival::Periodic { period: GAP }, Time(0), rng);
        assert_eq!(releases.next(), Time(0));
        // Releases at 10, 20, .. 120 came meanwhile: eight wait, four are skipped.
        assert_eq!(releases.ended(Time(125), rng), 4);
        let mut ran = Vec::new();
        for _ in 0..9 {
            ran.push(releases.next().0);
            assert_eq!(releases.ended(Time(125), rng), 0);
        }
        assert_eq!(ran, [10, 20, 30, 40, 50, 60, 70, 80, 130]);
    }

    #[test]
    fn after_a_standstill_no_burst_of_jobs_is_released() {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let ms = Nanos::from_millis(1);
        let mut releases = Releases::new(Arrival::Periodic { period: ms * 10 }, Time(0), rng);
        assert_eq!(releases.resumed(Time(0) + ms, rng), 0);
        assert_eq!(releases.ended(Time(0) + ms * 2, rng), 0);
        // The machine stood still from 2 ms to a minute: 10 ms to 60 s are skipped.
        assert_eq!(releases.resumed(Time(0) + ms * 60_005, rng), 6_000);
        assert_eq!(releases.next(), Time(0) + ms * 60_010);
        assert_eq!(releases.resumed(Time(0) + ms * 60_010, rng), 0);
        // A job that is longer than its period leaves a backlog, as ever.
        assert_eq!(releases.ended(Time(0) + ms * 60_045, rng), 0);
        assert_eq!(releases.next(), Time(0) + ms * 60_020);
        assert_eq!(releases.resumed(Time(0) + ms * 60_045, rng), 0);
    }

    #[test]
    fn a_standstill_within_a_job_is_one_as_well() {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let ms = Nanos::from_millis(1);
        let mut releases = Releases::new(Arrival::Periodic { period: ms * 10 }, Time(0), rng);
        let woke = Time(0) + ms * 5_005;
        let after = releases.ended(woke, rng) + releases.resumed(woke, rng);
        assert_eq!((after, releases.next()), (500, Time(0) + ms * 5_010));
    }

    #[test]
    fn a_rare_task_that_is_late_by_a_second_runs() {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let mut releases = Releases::new(
            Arrival::Periodic {
                period: STANDSTILL * 10,
            },
            Time(0),
            rng,
        );
        assert_eq!(releases.resumed(Time(0) + STANDSTILL * 2, rng), 0);
        assert_eq!(releases.next(), Time(0));
    }

    proptest! {
        /// No release is lost or made up, whatever the jobs take: the same draws give the same releases, of which each
        /// runs or is skipped, and at most the bound waits.
        #[test]
        fn every_release_runs_or_is_skipped(
            seed: u64,
            kind in 0usize..2,
            took in prop::collection::vec(0u64..300, 1..60),
        ) {
            let arrival = arrivals()[kind];
            let (mut rng, mut twin) = (ChaCha8Rng::seed_from_u64(seed), ChaCha8Rng::seed_from_u64(seed));
            let mut releases = Releases::new(arrival, Time(0), &mut rng);
            let mut all = vec![Time(0) + arrival.first(&mut twin)];
            let (mut now, mut ran, mut skipped) = (Time(0), Vec::new(), 0);
            for took in took {
                let release = releases.next();
                now = now.max(release) + Nanos(took);
                ran.push(release);
                skipped += releases.ended(now, &mut rng);
                prop_assert!(releases.waiting.len() <= BACKLOG_MAX);
            }
            while all.last().is_some_and(|last| *last <= now) {
                let last = all[all.len() - 1];
                all.push(arrival.next(last, last, &mut twin));
            }
            let come = all.iter().filter(|release| **release <= now).count().max(ran.len());
            prop_assert_eq!(ran.len() as u64 + releases.waiting.len() as u64 + skipped, come as u64);
            prop_assert!(ran.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(ran.iter().all(|release| all.contains(release)));
        }

        #[test]
        fn a_task_that_pauses_never_has_a_backlog(seed: u64, took in prop::collection::vec(0u64..300, 1..60)) {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed);
            let mut releases = Releases::new(arrivals()[2], Time(0), rng);
            for took in took {
                let finished = releases.next() + Nanos(took);
                prop_assert_eq!(releases.ended(finished, rng), 0);
                prop_assert!(releases.next() >= finished + GAP && releases.next() <= finished + GAP * 3);
            }
        }
    }
}
