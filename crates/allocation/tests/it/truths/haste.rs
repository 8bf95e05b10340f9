//! Which jobs DADNA helps, and at the cost of which.

use proptest::prelude::*;
use punctual_allocation::policy::{dadna, dna};
use punctual_allocation::{
    Objective, PerCore, Phase, Profile, Programs, RateTable, RunningJob, Share, WaitingJob, virtual_deadline_with,
};
use punctual_units::Time;

use crate::truths::common::{GRID, POOL, cores, keeps_to_the_pool, programs};

/// Where all deadlines are around now, so that some have passed, some can be kept and some cannot.
const NOW: Time = Time(1_000_000_000);

/// Up to three jobs that wait for each core.
fn queues() -> impl Strategy<Value = Vec<Vec<WaitingJob>>> {
    let job = (0_usize..3, 0.0..1.0, 0_u64..3_000_000_000).prop_map(|(program, progress, deadline)| WaitingJob {
        program,
        progress,
        deadline: Time(deadline),
    });
    proptest::collection::vec(proptest::collection::vec(job, 0..4), 4)
}

fn with_queues<'q>(cores: &[Option<RunningJob<'_>>], queues: &'q [Vec<WaitingJob>]) -> Vec<Option<RunningJob<'q>>> {
    let with = |(job, waiting): (&Option<RunningJob<'_>>, &'q Vec<WaitingJob>)| {
        job.map(|job| RunningJob {
            program: job.program,
            progress: job.progress,
            deadline: job.deadline,
            waiting,
        })
    };
    cores.iter().zip(queues).map(with).collect()
}

/// Whether the job of each core, whose deadline has not passed, ends after its virtual deadline if it keeps its share.
fn late(programs: &Programs, cores: &[Option<RunningJob<'_>>], shares: &[Share]) -> Vec<bool> {
    let even = Share {
        ways: POOL.grid.ways / cores.len() as u8,
        partitions: POOL.grid.partitions / cores.len() as u8,
    };
    let late = |(job, share): (&Option<RunningJob<'_>>, &Share)| {
        job.as_ref().is_some_and(|job| {
            let due = virtual_deadline_with(job, programs, even).as_secs_f64();
            let ends = NOW.as_secs_f64() + programs.time_left(job.program, job.progress, *share);
            // Within the resolution of the clock neither is wrong.
            job.deadline >= NOW && ends > due + 1e-8
        })
    };
    cores.iter().zip(shares).map(late).collect()
}

fn count(late: &[bool]) -> usize {
    late.iter().filter(|late| **late).count()
}

proptest! {
    #[test]
    fn no_job_is_made_late_and_what_changes_helps(programs in programs(), cores in cores(), queues in queues()) {
        let cores = with_queues(&cores, &queues);
        let (before, after) = (dna(&programs, POOL, &cores), dadna(&programs, POOL, &cores, NOW));
        let busy: Vec<bool> = cores.iter().map(Option::is_some).collect();
        keeps_to_the_pool(POOL, &busy, &after)?;
        let (was, is) = (late(&programs, &cores, &before), late(&programs, &cores, &after));
        prop_assert!(was.iter().zip(&is).all(|(was, is)| *was || !is), "{:?} became {:?}", was, is);
        prop_assert!(after == before || count(&is) < count(&was), "{:?} for {:?}", after, before);
    }

    #[test]
    fn a_job_in_time_with_others_behind_never_pays(programs in programs(), cores in cores(), queues in queues()) {
        // No job's deadline has passed, and a job waits for every core: no donors.
        let queues: Vec<Vec<WaitingJob>> = queues
            .into_iter()
            .map(|queue| queue.into_iter().chain([WaitingJob { program: 0, progress: 0.0, deadline: Time::MAX }]).collect())
            .collect();
        let cores: Vec<Option<RunningJob>> = with_queues(&cores, &queues)
            .into_iter()
            .map(|job| job.map(|job| RunningJob { deadline: job.deadline.max(NOW), ..job }))
            .collect();
        prop_assert_eq!(dadna(&programs, POOL, &cores, NOW), dna(&programs, POOL, &cores));
    }
}

/// The partitions that DNA and DADNA give the second of two jobs that gain by bandwidth alone, and alike. It takes 8 s
/// over its partitions and is due in 1.5 s; the first is due at `first` ns, with `waiting` behind it.
fn second_gets(first: u64, waiting: &[WaitingJob]) -> (u8, u8) {
    let phase = Phase {
        ends: 1.0,
        rates: RateTable::new(GRID, |share| 1e8 * f32::from(share.partitions)),
    };
    let profile = Profile {
        name: "bandwidth".into(),
        grid: GRID,
        instructions: 8e8,
        phases: vec![phase],
    };
    let programs = Programs::new(&[profile], Objective::Speed).expect("a fine profile");
    let job = |deadline, waiting| {
        Some(RunningJob {
            program: 0,
            progress: 0.0,
            deadline: Time(deadline),
            waiting,
        })
    };
    let cores = [job(first, waiting), job(2_500_000_000, &[])];
    let of = |shares: PerCore<Share>| shares[1].partitions;
    (
        of(dna(&programs, POOL, &cores)),
        of(dadna(&programs, POOL, &cores, NOW)),
    )
}

#[test]
fn a_job_that_is_late_already_pays() {
    assert_eq!(second_gets(0, &[]), (4, 7));
    let behind = [WaitingJob {
        program: 0,
        progress: 0.0,
        deadline: Time(0),
    }];
    assert_eq!(second_gets(0, &behind), (4, 7));
}

#[test]
fn a_job_in_time_pays_if_none_waits_behind_it() {
    let behind = [WaitingJob {
        program: 0,
        progress: 0.0,
        deadline: Time::MAX,
    }];
    let far = 60_000_000_000;
    assert_eq!(second_gets(far, &[]), (4, 7));
    assert_eq!(second_gets(far, &behind), (4, 4));
}

#[test]
fn a_job_in_time_does_not_pay_with_its_deadline() {
    // In time with four partitions, late with what the second leaves.
    assert_eq!(second_gets(4_000_000_000, &[]), (4, 4));
}
