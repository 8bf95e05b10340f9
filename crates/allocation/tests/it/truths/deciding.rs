//! The allocator, from event to event.

use proptest::prelude::*;
use punctual_allocation::{
    Allocator, AllocatorSettings, Objective, Phase, Policy, Profile, Programs, RateTable, Refill, RunningJob,
};
use punctual_units::{Nanos, Time};

use crate::truths::common::{GRID, POOL, cores, keeps_to_the_pool, programs};

fn settings(policy: Policy) -> AllocatorSettings {
    AllocatorSettings {
        pool: POOL,
        cores: 4,
        ..AllocatorSettings::paper(policy)
    }
}

proptest! {
    #[test]
    fn plans_keep_to_the_pool_and_masks_to_the_shares(
        programs in programs(),
        policy in proptest::sample::select(Policy::ALL.to_vec()),
        instants in proptest::collection::vec((cores(), 0_u64..3_000_000), 1..12),
    ) {
        let mut allocator = Allocator::new(&programs, &[], settings(policy)).expect("fine settings");
        let mut now = Time(0);
        for (mut cores, later) in instants {
            now = now + Nanos(later);
            cores.resize(4, None);
            let before = allocator.plan().clone();
            let changed = allocator.step(&programs, &cores, now).is_some();
            let plan = allocator.plan();
            prop_assert_eq!(changed, *plan != before);
            let busy: Vec<bool> = cores.iter().map(Option::is_some).collect();
            if changed {
                keeps_to_the_pool(POOL, &busy, &plan.shares)?;
            }
            for (share, mask) in plan.shares.iter().zip(&plan.masks) {
                prop_assert_eq!(share.ways, mask.count());
            }
            prop_assert!(plan.masks.windows(2).all(|pair| pair[0].bits() & pair[1].bits() == 0));
        }
    }

    #[test]
    fn a_core_that_runs_has_the_least_at_any_price(
        programs in programs(),
        policy in proptest::sample::select(Policy::ALL.to_vec()),
        instants in proptest::collection::vec(cores(), 1..12),
    ) {
        let dear = Refill { way_bytes: 1e12, partition_bytes_per_second: 1.0 };
        let settings = AllocatorSettings { refill: Some(dear), ..settings(policy) };
        let mut allocator = Allocator::new(&programs, &[], settings).expect("fine settings");
        for (second, mut cores) in instants.into_iter().enumerate() {
            cores.resize(4, None);
            allocator.step(&programs, &cores, Time(1_000_000_000 * second as u64));
            let busy: Vec<bool> = cores.iter().map(Option::is_some).collect();
            keeps_to_the_pool(POOL, &busy, &allocator.plan().shares)?;
        }
    }

    #[test]
    fn decisions_keep_their_distance(
        programs in programs(),
        instants in proptest::collection::vec((cores(), 0_u64..700_000), 1..20),
    ) {
        let mut allocator = Allocator::new(&programs, &[], settings(Policy::Exact)).expect("fine settings");
        let (mut now, mut last) = (Time(0), None);
        for (mut cores, later) in instants {
            now = now + Nanos(later);
            cores.resize(4, None);
            let changed = allocator.step(&programs, &cores, now).is_some();
            if changed {
                prop_assert!(last.is_none_or(|last: Time| now.since(last) >= Nanos::from_millis(1)));
                last = Some(now);
            }
            prop_assert!(allocator.due().is_none_or(|due| due > now && due.since(now) <= Nanos::from_millis(1)));
        }
    }
}

/// A core that gets a job like the one before has no news, but what happened elsewhere in the same instant has.
#[test]
fn a_phase_that_changed_is_noticed_on_any_core() {
    let rate = |wants_ways: bool| {
        RateTable::new(GRID, move |share| {
            1e6 * f32::from(if wants_ways { share.ways } else { share.partitions })
        })
    };
    let profile = |name: &str, phases: &[bool]| Profile {
        name: name.into(),
        grid: GRID,
        instructions: 1e8,
        phases: (1..)
            .zip(phases)
            .map(|(number, wants_ways)| Phase {
                ends: f64::from(number) / phases.len() as f64,
                rates: rate(*wants_ways),
            })
            .collect(),
    };
    let profiles = [profile("turns", &[true, false]), profile("steady", &[true])];
    let programs = Programs::new(&profiles, Objective::Speed).unwrap();
    let job = |program, progress| {
        Some(RunningJob {
            program,
            progress,
            deadline: Time(1_000_000_000),
            waiting: &[],
        })
    };
    let mut allocator = Allocator::new(&programs, &[], settings(Policy::Exact)).unwrap();
    allocator.step(&programs, &[job(0, 0.1), job(1, 0.9), None, None], Time(0));
    let cores = [job(0, 0.6), job(1, 0.0), None, None];
    assert!(allocator.step(&programs, &cores, Time(5_000_000)).is_some());
    assert_eq!(allocator.step(&programs, &cores, Time(10_000_000)), None, "no news");
}
