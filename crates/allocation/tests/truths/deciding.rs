//! The allocator, from event to event.

use proptest::prelude::*;
use punctual_allocation::{Allocator, Event, Policy, Refill, Settings};
use punctual_units::{Nanos, Time};

use crate::common::{POOL, cores, keeps_to_the_pool, programs};

fn settings(policy: Policy) -> Settings {
    Settings {
        pool: POOL,
        cores: 4,
        ..Settings::paper(policy)
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
            let changed = allocator.step(&programs, Event::PhaseChange(0), &cores, now).is_some();
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
    fn who_runs_has_the_least_at_any_price(
        programs in programs(),
        policy in proptest::sample::select(Policy::ALL.to_vec()),
        instants in proptest::collection::vec(cores(), 1..12),
    ) {
        let dear = Refill { way_bytes: 1e12, partition_bytes_per_second: 1.0 };
        let settings = Settings { refill: Some(dear), ..settings(policy) };
        let mut allocator = Allocator::new(&programs, &[], settings).expect("fine settings");
        for (second, mut cores) in instants.into_iter().enumerate() {
            cores.resize(4, None);
            allocator.step(&programs, Event::PhaseChange(0), &cores, Time(1_000_000_000 * second as u64));
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
            let changed = allocator.step(&programs, Event::Released(0), &cores, now).is_some();
            if changed {
                prop_assert!(last.is_none_or(|last: Time| now.since(last) >= Nanos::from_millis(1)));
                last = Some(now);
            }
            prop_assert!(allocator.due().is_none_or(|due| due > now && due.since(now) <= Nanos::from_millis(1)));
        }
    }
}
