//! Splits that never change.

use proptest::prelude::*;
use punctual_allocation::policy::equal;
use punctual_allocation::{Base, Loads, PeriodicTask, Pool, Share};
use punctual_units::Nanos;

use crate::truths::common::{POOL, every_split, keeps_to_the_pool, programs};

fn tasks() -> impl Strategy<Value = Vec<PeriodicTask>> {
    let task = (0_usize..3, 1_u64..5_000, 0_usize..3)
        .prop_map(|(program, millis, core)| PeriodicTask::new(program, Nanos::from_millis(millis), core));
    proptest::collection::vec(task, 0..8)
}

proptest! {
    #[test]
    fn static_best_is_brute_force(programs in programs(), tasks in tasks()) {
        let loads = Loads::new(&programs, &tasks, 3);
        let shares = Base::StaticBest.split(&loads, POOL).shares;
        keeps_to_the_pool(POOL, &[true; 3], &shares)?;
        let mut best = (f64::INFINITY, f64::INFINITY);
        every_split(&[true; 3], &mut |shares| {
            let value = (loads.largest(shares), loads.each(shares).sum::<f64>());
            if value < best {
                best = value;
            }
        });
        prop_assert_eq!(loads.largest(&shares), best.0);
        prop_assert!((loads.each(&shares).sum::<f64>() - best.1).abs() <= 1e-9 * best.1.max(1.0));
    }

    #[test]
    fn static_fewest_is_brute_force(programs in programs(), tasks in tasks()) {
        let loads = Loads::new(&programs, &tasks, 3);
        let shares = Base::StaticFewest.split(&loads, POOL).shares;
        keeps_to_the_pool(POOL, &[true; 3], &shares)?;
        let value = |shares: &[Share]| {
            let overloaded = loads.each(shares).filter(|load| *load > 1.0).count();
            (overloaded, loads.each(shares).sum::<f64>())
        };
        let mut best = (usize::MAX, f64::INFINITY);
        every_split(&[true; 3], &mut |shares| {
            if value(shares) < best {
                best = value(shares);
            }
        });
        let found = value(&shares);
        prop_assert_eq!(found.0, best.0);
        // The sum is found beside a million for each overloaded core.
        prop_assert!((found.1 - best.1).abs() <= 1e-9 * (1e6 * (1.0 + best.0 as f64)).max(best.1));
        let least_largest = loads.each(&Base::StaticBest.split(&loads, POOL).shares).filter(|load| *load > 1.0).count();
        prop_assert!(found.0 <= least_largest);
    }

    #[test]
    fn equal_hands_out_everything_and_differs_by_at_most_one(cores in 1_usize..=6) {
        let shares = equal(Pool::PAPER, cores);
        keeps_to_the_pool(Pool::PAPER, &vec![true; cores], &shares)?;
        for of in [|share: &Share| share.ways, |share: &Share| share.partitions] {
            let each: Vec<u8> = shares.iter().map(of).collect();
            prop_assert_eq!(each.iter().map(|part| u32::from(*part)).sum::<u32>(), 20);
            prop_assert!(each.iter().max().unwrap() - each.iter().min().unwrap() <= 1);
        }
    }
}
