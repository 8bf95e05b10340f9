//! The job that runs on a core, and the jobs that wait for it.

use punctual_units::{Nanos, Time};
use serde::{Deserialize, Serialize};

use crate::grid::Share;
use crate::programs::Programs;

/// The job that a core runs.
#[derive(Clone, Copy, Debug)]
pub struct RunningJob<'a> {
    /// Which program, by its place in [`Programs`].
    pub program: usize,
    /// How much of it is done, 0..=1.
    pub progress: f64,
    /// When it should be done.
    pub deadline: Time,
    /// Jobs that wait for this core, in any order.
    pub waiting: &'a [WaitingJob],
}

/// A job that waits for a core: released, or pushed aside by one with an earlier deadline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitingJob {
    /// Which program, by its place in [`Programs`].
    pub program: usize,
    /// How much of it is done, 0..=1.
    pub progress: f64,
    /// When it should be done.
    pub deadline: Time,
}

/// Jobs of one core, as an allocator receives them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreJobs {
    /// The job that runs; `None` where the core rests, or works for a task without a program.
    pub runs: Option<WaitingJob>,
    /// Jobs that wait for the core, in any order.
    pub waits: Vec<WaitingJob>,
}

impl CoreJobs {
    /// The job that runs, with those that wait for it.
    pub fn running(&self) -> Option<RunningJob<'_>> {
        self.runs.map(|job| RunningJob {
            program: job.program,
            progress: job.progress,
            deadline: job.deadline,
            waiting: &self.waits,
        })
    }
}

/// Most jobs that wait for one core and are looked at for its virtual deadline; those with the latest deadlines beyond
/// it are left out.
pub const WAITING_MAX: usize = 64;

/// The virtual deadline of a running job (fifth paper, section VI-B): the latest instant at which it can end without
/// making a waiting one late, if those then have `share` (in the paper: the whole machine):
///
/// ```text
/// start(n) = D_n - WCET_n
/// start(i) = min(start(i + 1), D_i) - WCET_i
/// virtual deadline = min(start(1), D_0)
/// ```
///
/// with the waiting jobs 1..n in the order of their deadlines. WCET_i is what is left of a job that was pushed aside.
pub fn virtual_deadline_with(running: &RunningJob<'_>, programs: &Programs, share: Share) -> Time {
    let mut earliest = [0_usize; WAITING_MAX];
    let mut start = Time(u64::MAX);
    for &job in earliest_first(running.waiting, &mut earliest).iter().rev() {
        let job = &running.waiting[job];
        let wcet = Nanos::from_secs_f64(programs.time_left(job.program, job.progress, share));
        let end = start.min(job.deadline);
        start = Time(end.0.saturating_sub(wcet.0));
    }
    start.min(running.deadline)
}

/// Writes the indices of the [`WAITING_MAX`] jobs with the earliest deadlines to `places`, earliest first, and returns
/// them; of equal deadlines, those earlier in `waiting`.
fn earliest_first<'p>(waiting: &[WaitingJob], places: &'p mut [usize; WAITING_MAX]) -> &'p [usize] {
    let mut count = 0;
    for (place, job) in waiting.iter().enumerate() {
        // Lists come sorted as a rule: then each job is put last, or left out, at once.
        let after = places[..count]
            .iter()
            .rev()
            .take_while(|&&other| waiting[other].deadline > job.deadline)
            .count();
        let at = count - after;
        if at < WAITING_MAX {
            count = (count + 1).min(WAITING_MAX);
            places.copy_within(at..count - 1, at + 1);
            places[at] = place;
        }
    }
    &places[..count]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::grid::Grid;
    use crate::profile::{Phase, Profile};
    use crate::programs::Objective;
    use crate::table::RateTable;

    /// A program of one second whatever it has.
    fn second() -> Programs {
        let profile = Profile {
            name: "second".into(),
            grid: Grid::PAPER,
            instructions: 1e9,
            phases: vec![Phase {
                ends: 1.0,
                rates: RateTable::new(Grid::PAPER, |_| 1e9),
            }],
        };
        Programs::new(&[profile], Objective::Speed).unwrap()
    }

    fn waits(deadline: u64) -> WaitingJob {
        WaitingJob {
            program: 0,
            progress: 0.0,
            deadline: Time(deadline),
        }
    }

    fn virtual_deadline_of(waiting: &[WaitingJob]) -> Time {
        let running = RunningJob {
            program: 0,
            progress: 0.0,
            deadline: Time(u64::MAX),
            waiting,
        };
        let programs = second();
        virtual_deadline_with(&running, &programs, programs.grid().all())
    }

    #[test]
    fn beyond_64_the_latest_are_left_out_wherever_they_stand() {
        // 64 jobs of a second due at 100 s, and one due at 101 s whose own second would fit.
        let mut waiting = vec![waits(101_000_000_000)];
        waiting.extend([waits(100_000_000_000); WAITING_MAX]);
        assert_eq!(virtual_deadline_of(&waiting), Time(36_000_000_000));
        // One that is due first counts, though it stands last.
        waiting.push(waits(2_000_000_000));
        assert_eq!(virtual_deadline_of(&waiting), Time(1_000_000_000));
    }

    proptest! {
        #[test]
        fn the_order_of_the_list_makes_no_difference(
            deadlines in prop::collection::vec(60_000_000_000u64..200_000_000_000, 0..150),
        ) {
            let waiting: Vec<WaitingJob> = deadlines.iter().map(|deadline| waits(*deadline)).collect();
            let mut sorted = waiting.clone();
            sorted.sort_by_key(|job| job.deadline);
            let mut places = [0; WAITING_MAX];
            let found: Vec<Time> =
                earliest_first(&waiting, &mut places).iter().map(|&job| waiting[job].deadline).collect();
            let expected: Vec<Time> = sorted.iter().take(WAITING_MAX).map(|job| job.deadline).collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(virtual_deadline_of(&waiting), virtual_deadline_of(&sorted));
        }
    }
}
