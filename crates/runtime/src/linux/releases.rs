//! When the jobs of one task are released, and which of them wait: values in, values out.

use std::collections::VecDeque;

use punctual_units::{Nanos, Time};
use punctual_workload::Arrival;
use rand::Rng;

/// Jobs that wait behind the running one. A release beyond that is skipped: a task that cannot keep up loses jobs, not ever
/// more time. The simulated machine has the same bound.
pub(super) const BACKLOG_MAX: usize = 8;

/// The releases of one task.
#[derive(Clone, Debug)]
pub(super) struct Releases {
    arrival: Arrival,
    /// Released while an earlier job ran.
    waiting: VecDeque<Time>,
    /// The first one that is not known to have come.
    coming: Time,
}

impl Releases {
    /// The releases of a run that begins at `start`.
    pub(super) fn new(arrival: Arrival, start: Time, rng: &mut impl Rng) -> Releases {
        Releases {
            arrival,
            waiting: VecDeque::with_capacity(BACKLOG_MAX),
            coming: start + arrival.first(rng),
        }
    }

    /// The release of the job to run next.
    pub(super) fn next(&self) -> Time {
        self.waiting.front().copied().unwrap_or(self.coming)
    }

    /// The job of [`next`](Releases::next) has `finished`. What was released meanwhile waits; how many releases found no room.
    pub(super) fn ended(&mut self, finished: Time, rng: &mut impl Rng) -> u64 {
        if let Arrival::AfterCompletion { .. } = self.arrival {
            self.coming = self.arrival.next(self.coming, finished, rng);
            return 0;
        }
        if self.waiting.pop_front().is_none() {
            self.coming = self.after(self.coming, rng);
        }
        let mut skipped = 0;
        while self.coming <= finished {
            if self.waiting.len() < BACKLOG_MAX {
                self.waiting.push_back(self.coming);
            } else {
                skipped += 1;
            }
            self.coming = self.after(self.coming, rng);
        }
        skipped
    }

    /// At least a nanosecond on, so that releases come to an end.
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

    proptest! {
        /// No release is lost or made up, whatever the jobs take: the same draws give the same releases, of which each
        /// runs or is skipped, and at most the bound waits.
        #[test]
        fn every_release_runs_or_is_skipped(seed: u64, kind in 0usize..2, took in prop::collection::vec(0u64..300, 1..60)) {
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
