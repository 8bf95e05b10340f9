//! What the rule lends, moves and takes back.

use proptest::prelude::*;
use punctual_units::Nanos;

use super::*;
use crate::masks::side_by_side;
use crate::programs::Objective;
use crate::{Grid, Phase, Profile, RateTable, WaitingJob};

const POOL: Pool = Pool {
    grid: Grid { ways: 8, partitions: 8 },
    least: Share { ways: 1, partitions: 1 },
    idle: Share { ways: 1, partitions: 1 },
};

/// Decisions come so much after events.
const GAP: Nanos = Nanos::from_millis(1);

/// Filling a way with four partitions takes 0.2 ms.
const CHEAP: Refill = Refill {
    way_bytes: 8e4,
    partition_bytes_per_second: 1e8,
};

fn profile(name: &str, phases: &[fn(Share) -> f32]) -> Profile {
    let phase = |(number, rate): (usize, &fn(Share) -> f32)| Phase {
        ends: (number + 1) as f64 / phases.len() as f64,
        rates: RateTable::new(POOL.grid, rate),
    };
    Profile {
        name: name.into(),
        grid: POOL.grid,
        instructions: 1e9,
        phases: phases.iter().enumerate().map(phase).collect(),
    }
}

/// One that gains by nothing, by bandwidth alone, by ways alone.
fn programs() -> Programs {
    let profiles = [
        profile("content", &[|_| 1e9]),
        profile("bandwidth", &[|share| 1e8 * f32::from(share.partitions)]),
        profile("ways", &[|share| 1e8 * f32::from(share.ways)]),
    ];
    Programs::new(&profiles, Objective::Speed).unwrap()
}

fn base() -> CoreShares {
    let half = Share { ways: 4, partitions: 4 };
    CoreShares::side_by_side(PerCore::from_elem(half, 2))
}

fn keeper(refill: Refill) -> Keeper {
    Keeper::new(base(), POOL, refill, Aim::Speed, GAP)
}

fn job(program: usize, progress: f64, deadline: f64) -> Option<RunningJob<'static>> {
    Some(RunningJob {
        program,
        progress,
        deadline: seconds(deadline),
        waiting: &[],
    })
}

fn seconds(at: f64) -> Time {
    Time::ZERO + Nanos::from_secs_f64(at)
}

#[test]
fn bandwidth_is_lent_to_the_core_that_gains_and_ways_stay() {
    let mut keeper = keeper(CHEAP);
    let plan = keeper
        .decide(&programs(), &[job(0, 0.0, 9.0), job(1, 0.0, 9.0)], Time::ZERO)
        .unwrap();
    assert_eq!(plan.shares[1].partitions, 7);
    assert_eq!(plan.masks, base().masks);
}

#[test]
fn a_core_that_gains_keeps_its_own_pace_first() {
    // Both gain by bandwidth: none is made slower than under the base.
    let mut keeper = keeper(CHEAP);
    assert_eq!(
        keeper.decide(&programs(), &[job(1, 0.0, 9.0), job(1, 0.0, 9.0)], Time::ZERO),
        None
    );
}

#[test]
fn ways_move_only_when_their_owner_is_ahead_and_it_pays() {
    let programs = programs();
    let mut keeper = keeper(CHEAP);
    let early = [job(1, 0.0, 9.0), job(2, 0.0, 9.0)];
    keeper.decide(&programs, &early, Time::ZERO);
    assert_eq!(keeper.plan().masks, base().masks, "no core is ahead yet");
    // Half a second later the first has done twice, the second three times what it would have under the base.
    let later = [job(1, 0.4, 9.0), job(2, 0.6, 9.0)];
    let plan = keeper.decide(&programs, &later, seconds(0.5)).unwrap();
    assert!(plan.shares[1].ways > 4, "{plan:?}");
    // Where filling takes longer than the rest of the job, they stay.
    let dear = Refill {
        way_bytes: 4e9,
        ..CHEAP
    };
    let mut keeper = self::keeper(dear);
    keeper.decide(&programs, &early, Time::ZERO);
    keeper.decide(&programs, &later, seconds(0.5));
    assert_eq!(keeper.plan().masks, base().masks);
}

#[test]
fn no_more_is_owed_than_the_gap_allows() {
    let programs = programs();
    let lent = |refill| {
        let mut keeper = keeper(refill);
        keeper.decide(&programs, &[job(1, 0.0, 9.0), job(2, 0.0, 9.0)], Time::ZERO);
        keeper.decide(&programs, &[job(1, 0.4, 9.0), job(2, 0.6, 9.0)], seconds(0.5));
        4 - keeper.plan().shares[0].ways
    };
    // 0.4 ms and 0.6 ms a way, of 1 ms.
    let way = |way_bytes| Refill { way_bytes, ..CHEAP };
    assert_eq!((lent(way(1.6e5)), lent(way(2.4e5))), (2, 1));
}

#[test]
fn a_core_that_is_no_longer_ahead_gets_its_ways_and_bandwidth_back() {
    let programs = programs();
    let mut keeper = keeper(CHEAP);
    keeper.decide(&programs, &[job(1, 0.0, 9.0), job(2, 0.0, 9.0)], Time::ZERO);
    keeper.decide(&programs, &[job(1, 0.4, 9.0), job(2, 0.6, 9.0)], seconds(0.5));
    assert!(keeper.plan().shares[0].ways < 4);
    // A job that gains by ways begins there, much later: nothing is left of being ahead.
    keeper.decide(&programs, &[job(2, 0.0, 19.0), job(2, 0.9, 9.0)], seconds(8.0));
    assert_eq!(keeper.plan(), &base());
}

#[test]
fn a_job_that_the_base_has_done_already_keeps_the_bases_share() {
    let programs = programs();
    let mut keeper = keeper(CHEAP);
    // The first gains by nothing and lends all its bandwidth as long as the base, too, has it.
    let lends = |keeper: &mut Keeper, now| {
        keeper.decide(&programs, &[job(0, 0.5, 9.0), job(1, 0.5, 9.0)], seconds(now));
        keeper.plan().shares[0].partitions < 4
    };
    assert!(lends(&mut keeper, 0.0));
    assert!(lends(&mut keeper, 0.5));
    // The base was done with it after a second.
    assert!(!lends(&mut keeper, 1.5));
}

/// At half the clock the base needs two seconds for a second of computing, and a core that does as much is not behind.
#[test]
fn the_base_is_replayed_at_the_clock_in_force() {
    let lends = |slowdown: f64, changed: f64| {
        let mut programs = programs();
        let mut keeper = keeper(CHEAP);
        let mut progress = 0.0;
        let mut lends = true;
        for step in 0..15 {
            let now = f64::from(step) * 0.1;
            if now >= changed {
                programs.slow_down(slowdown);
            }
            keeper.decide(&programs, &[job(0, progress, 9.0), job(1, 0.0, 9.0)], seconds(now));
            lends &= keeper.plan().shares[0].partitions < 4;
            progress += 0.1 * programs.progress_rate(0, progress, keeper.plan().shares[0]);
        }
        lends
    };
    assert!(lends(2.0, 0.0), "slow all along");
    assert!(lends(3.0, 0.45), "slow from some time on");
}

#[test]
fn no_core_gets_less_than_the_pools_least() {
    let pool = Pool {
        least: Share { ways: 3, partitions: 3 },
        idle: Share { ways: 1, partitions: 2 },
        ..POOL
    };
    let given = |job: Option<RunningJob<'static>>| {
        let mut keeper = Keeper::new(base(), pool, CHEAP, Aim::Speed, GAP);
        keeper.decide(&programs(), &[job, self::job(1, 0.0, 9.0)], Time::ZERO);
        keeper.plan().shares[0].partitions
    };
    assert_eq!((given(job(0, 0.0, 9.0)), given(None)), (3, 2));
}

#[test]
fn late_jobs_come_first_where_the_aim_is_deadlines() {
    // A core at rest has four partitions to lend; the first core gains as much as the second, but the second would be
    // late.
    let thirds = |partitions| Share { ways: 2, partitions };
    let base = CoreShares::side_by_side(PerCore::from_slice(&[
        thirds(2),
        thirds(2),
        Share { ways: 4, partitions: 4 },
    ]));
    let cores = [job(1, 0.0, 90.0), job(1, 0.0, 2.1), None];
    let given = |aim| {
        let mut keeper = Keeper::new(base.clone(), POOL, CHEAP, aim, GAP);
        keeper.decide(&programs(), &cores, Time::ZERO);
        keeper.plan().shares[1].partitions
    };
    assert_eq!((given(Aim::Deadlines), given(Aim::Gradient)), (5, 2));
}

proptest! {
    /// Whatever happens: nothing is handed out twice, no core is without, and a core that has nothing to lose keeps the
    /// pace of its base.
    #[test]
    fn plans_are_whole_and_keep_the_pace(
        events in prop::collection::vec(
            (prop::collection::vec(prop::option::of((0usize..3, 0.0f64..0.99, 0u32..40)), 3), 0.001f64..0.3),
            1..40,
        ),
        aim in prop::sample::select(vec![Aim::Gradient, Aim::Deadlines, Aim::Speed]),
    ) {
        let programs = programs();
        let shares =
            vec![Share { ways: 2, partitions: 3 }, Share { ways: 3, partitions: 2 }, Share { ways: 3, partitions: 3 }];
        let base = CoreShares::side_by_side(shares.into());
        let mut keeper = Keeper::new(base.clone(), POOL, CHEAP, aim, GAP);
        let mut now = 0.0;
        for (jobs, passes) in events {
            now += passes;
            let waiting = [WaitingJob { program: 2, progress: 0.0, deadline: seconds(50.0) }];
            let cores: Vec<Option<RunningJob>> = jobs.iter()
                .map(|job| job.map(|(program, progress, due)| RunningJob {
                    program, progress, deadline: seconds(f64::from(due)), waiting: &waiting,
                }))
                .collect();
            keeper.decide(&programs, &cores, seconds(now));
            let plan = keeper.plan();
            let partitions: u32 = plan.shares.iter().map(|share| u32::from(share.partitions)).sum();
            prop_assert!(partitions <= 8, "{:?}", plan);
            prop_assert!(plan.shares.iter().all(|share| share.partitions > 0));
            let ways: Vec<u8> = plan.shares.iter().map(|share| share.ways).collect();
            prop_assert_eq!(&plan.masks, &side_by_side(&ways));
            prop_assert_eq!(ways.iter().sum::<u8>(), 8);
            for (core, job) in cores.iter().enumerate() {
                let Some(job) = job else { continue };
                let limits = keeper.accounts[core].limits();
                let (share, own) = (plan.shares[core], base.shares[core]);
                let rate = |share| programs.rate(job.program, job.progress, share);
                if limits.lead < limits.debt && limits.debt == 0.0 {
                    prop_assert!(rate(share) >= rate(own), "core {} of {:?}", core, plan);
                }
                if limits.lead < limits.debt - 0.0011 {
                    prop_assert!(
                        share.ways >= own.ways && share.partitions >= own.partitions,
                        "core {} of {:?}",
                        core,
                        plan
                    );
                }
            }
        }
    }
}
