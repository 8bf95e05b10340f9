//! Release times of one task, and its waiting jobs: values in, values out.

use std::collections::VecDeque;

use punctual_units::{Nanos, Time};
use rand::Rng;

use crate::schedule::NextRelease;
use crate::under_way::BACKLOG_MAX;

/// A task that misses more than [`BACKLOG_MAX`] releases over at least this time has stood still: the process was
/// stopped, or the virtual machine paused. `CLOCK_MONOTONIC` does not count a suspend of the whole machine.
const STANDSTILL: Nanos = Nanos::from_secs(1);

/// Computes the releases of one task.
#[derive(Clone, Debug)]
pub(super) struct Releases {
    /// Releases that came while an earlier job ran.
    waiting: VecDeque<Time>,
    /// The next release that is not known to have come.
    coming: NextRelease,
}

impl Releases {
    /// Begins with the first release.
    pub(super) fn new(coming: NextRelease) -> Releases {
        Releases {
            waiting: VecDeque::with_capacity(BACKLOG_MAX),
            coming,
        }
    }

    /// Release of the job to run next.
    pub(super) fn next(&self) -> Time {
        self.waiting.front().copied().unwrap_or(self.coming.at)
    }

    /// Records that the job of [`next`](Releases::next) has `finished`. Releases in the meantime wait; returns the
    /// number of releases that found no room.
    pub(super) fn ended(&mut self, finished: Time, rng: &mut impl Rng) -> u64 {
        if self.coming.follows_a_job() {
            self.coming.follow(finished, rng);
            return 0;
        }
        let ran = self.next();
        if self.waiting.pop_front().is_none() {
            self.coming.advance(rng);
        }
        while self.waiting.len() < BACKLOG_MAX
            && let Some(release) = self.coming.take(finished, rng)
        {
            self.waiting.push_back(release);
        }
        let mut skipped = self.coming.skip_past(finished, rng);
        if skipped > BACKLOG_MAX as u64 && finished.since(ran) >= STANDSTILL {
            skipped += std::mem::take(&mut self.waiting).len() as u64;
        }
        skipped
    }

    /// Records that the thread, which waited for [`next`](Releases::next), woke up at `now`. After a standstill this
    /// skips all releases up to `now`, and the next one is in the future; returns the number skipped. A burst of jobs
    /// that are all equally late would only keep other tasks from their cores.
    pub(super) fn resumed<R: Rng + Clone>(&mut self, now: Time, rng: &mut R) -> u64 {
        let stood = !self.coming.follows_a_job() && now.since(self.next()) >= STANDSTILL;
        if !stood {
            return 0;
        }
        // The report draws the same releases: draws that are not used are not made.
        let (mut ahead, mut drawn) = (self.clone(), rng.clone());
        let waiting = std::mem::take(&mut ahead.waiting).len() as u64;
        let missed = waiting + ahead.coming.skip_past(now, &mut drawn);
        if missed <= BACKLOG_MAX as u64 {
            return 0;
        }
        (*self, *rng) = (ahead, drawn);
        missed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_workload::{Active, Arrival};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const GAP: Nanos = Nanos(10);

    fn releases(arrival: Arrival, rng: &mut impl Rng) -> Releases {
        Releases::new(NextRelease::new(arrival, Active::ALWAYS, Time(0), rng))
    }

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
        let mut releases = releases(Arrival::Periodic { period: GAP }, rng);
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
        let mut releases = releases(Arrival::Periodic { period: ms * 10 }, rng);
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
        let mut releases = releases(Arrival::Periodic { period: ms * 10 }, rng);
        let woke = Time(0) + ms * 5_005;
        let after = releases.ended(woke, rng) + releases.resumed(woke, rng);
        assert_eq!((after, releases.next()), (500, Time(0) + ms * 5_010));
    }

    #[test]
    fn a_rare_task_that_is_late_by_a_second_runs() {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let period = STANDSTILL * 10;
        let mut releases = releases(Arrival::Periodic { period }, rng);
        assert_eq!(releases.resumed(Time(0) + STANDSTILL * 2, rng), 0);
        assert_eq!(releases.next(), Time(0));
    }

    #[test]
    fn a_wake_up_that_skips_nothing_draws_nothing() {
        let arrival = Arrival::Sporadic {
            gap_min: STANDSTILL,
            gap_max: STANDSTILL * 2,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut releases = releases(arrival, &mut rng);
        let before = rng.clone();
        assert_eq!(releases.resumed(Time(0) + STANDSTILL * 5, &mut rng), 0);
        assert_eq!(rng, before);
    }

    /// The thread does not skip releases of a part of the run in which it has none.
    #[test]
    fn nothing_is_released_after_the_end_of_a_part() {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let active = Active {
            until: GAP * 15,
            ..Active::ALWAYS
        };
        let coming = NextRelease::new(Arrival::Periodic { period: GAP }, active, Time(0), rng);
        // Of the releases at 10, 20, .. 140, eight wait and six are skipped.
        assert_eq!(Releases::new(coming).ended(Time(0) + GAP * 100, rng), 6);
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
            let mut releases = releases(arrival, &mut rng);
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
            let mut releases = releases(arrivals()[2], rng);
            for took in took {
                let finished = releases.next() + Nanos(took);
                prop_assert_eq!(releases.ended(finished, rng), 0);
                prop_assert!(releases.next() >= finished + GAP && releases.next() <= finished + GAP * 3);
            }
        }
    }
}
