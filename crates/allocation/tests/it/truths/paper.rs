//! DNA and DADNA against a plain reading of the fifth paper's algorithms, step by step, without tables of sums.

use proptest::prelude::*;
use punctual_allocation::policy::{dadna, dna, summed};
use punctual_allocation::{Programs, RunningJob, Share, WaitingJob, virtual_deadline_with};
use punctual_units::Time;

use crate::truths::common::{POOL, cores, programs};

/// rho, in levels.
fn rho(programs: &Programs, job: &RunningJob<'_>, ways: u8, partitions: u8) -> i64 {
    summed(programs, &[Some(*job)], &[Share { ways, partitions }])
}

/// The double sum of theta, term by term.
fn sum(programs: &Programs, job: &RunningJob<'_>, has: Share, ways: u8, partitions: u8) -> i64 {
    let now = rho(programs, job, has.ways, has.partitions);
    let terms = (0..=ways).flat_map(|j| (0..=partitions).map(move |k| (j, k)));
    terms
        .map(|(j, k)| rho(programs, job, has.ways + j, has.partitions + k) - now)
        .sum()
}

/// Algorithm 1, a zero delta left out of the divisor, nothing used up handed out, until no core gains.
fn algorithm_1(programs: &Programs, jobs: &[RunningJob<'_>], mut ways: u8, mut partitions: u8) -> Vec<Share> {
    let mut shares = vec![POOL.least; jobs.len()];
    while ways > 0 || partitions > 0 {
        let divisor = f64::from(ways.max(1)) * f64::from(partitions.max(1));
        let theta = |at: usize| sum(programs, &jobs[at], shares[at], ways, partitions) as f64 / divisor;
        let mut best = 0;
        for at in 1..jobs.len() {
            if theta(at) > theta(best) {
                best = at;
            }
        }
        if theta(best) <= 0.0 {
            break;
        }
        let of_ways = sum(programs, &jobs[best], shares[best], ways, 0) as f64 / f64::from(ways.max(1));
        let of_partitions =
            sum(programs, &jobs[best], shares[best], 0, partitions) as f64 / f64::from(partitions.max(1));
        if partitions == 0 || (ways > 0 && of_partitions < of_ways) {
            (shares[best].ways, ways) = (shares[best].ways + 1, ways - 1);
        } else {
            (shares[best].partitions, partitions) = (shares[best].partitions + 1, partitions - 1);
        }
    }
    shares
}

/// A busy core for each job; deadlines far away.
fn busy(jobs: Vec<Option<RunningJob<'static>>>) -> Vec<RunningJob<'static>> {
    jobs.into_iter()
        .flatten()
        .map(|job| RunningJob {
            deadline: Time::MAX,
            ..job
        })
        .collect()
}

fn on_cores<'a>(jobs: &[RunningJob<'a>]) -> Vec<Option<RunningJob<'a>>> {
    jobs.iter().copied().map(Some).collect()
}

proptest! {
    #[test]
    fn dna_is_algorithm_1(programs in programs(), jobs in cores()) {
        let jobs = busy(jobs);
        prop_assume!(!jobs.is_empty());
        let count = jobs.len() as u8;
        let (ways, partitions) =
            (POOL.grid.ways - count * POOL.least.ways, POOL.grid.partitions - count * POOL.least.partitions);
        let ours = dna(&programs, POOL, &on_cores(&jobs));
        prop_assert_eq!(ours.into_vec(), algorithm_1(&programs, &jobs, ways, partitions));
    }

    #[test]
    fn without_haste_dadna_is_dna(programs in programs(), jobs in cores(), now in 0_u64..1_000_000_000) {
        let jobs = busy(jobs);
        let cores = on_cores(&jobs);
        prop_assert_eq!(dadna(&programs, POOL, &cores, Time(now)), dna(&programs, POOL, &cores));
    }

    #[test]
    fn a_virtual_deadline_leaves_time_for_those_behind(
        programs in programs(),
        waiting in proptest::collection::vec((0_usize..3, 0.0..1.0, 0_u64..3_000_000_000), 0..6),
        deadline in 0_u64..3_000_000_000,
    ) {
        let mut waiting: Vec<WaitingJob> = waiting
            .into_iter()
            .map(|(program, progress, deadline)| WaitingJob { program, progress, deadline: Time(deadline) })
            .collect();
        let job = RunningJob { program: 0, progress: 0.0, deadline: Time(deadline), waiting: &waiting };
        let told = virtual_deadline_with(&job, &programs, programs.grid().all());
        // Forwards: from the virtual deadline on, with everything, each is in time; a moment later, one of them is not.
        waiting.sort_by_key(|job| job.deadline);
        let ends_in_time = |from: f64| {
            let mut now = from;
            waiting.iter().all(|job| {
                now += programs.time_left(job.program, job.progress, programs.grid().all());
                now <= job.deadline.as_secs_f64() + 1e-7
            })
        };
        prop_assert!(told <= Time(deadline));
        if told > Time::ZERO {
            prop_assert!(ends_in_time(told.as_secs_f64()), "{told:?}");
        }
        if told < Time(deadline) {
            prop_assert!(!ends_in_time(told.as_secs_f64() + 1e-6), "{told:?} is too early");
        }
    }
}
