//! The optimum is equal to brute force, and nothing is above it.

use proptest::prelude::*;
use punctual_allocation::policy::{Exact, dadna, dna, summed};
use punctual_allocation::{RunningJob, Share};
use punctual_units::Time;

use crate::truths::common::{POOL, cores, every_split, keeps_to_the_pool, programs};

fn busy(cores: &[Option<RunningJob<'_>>]) -> Vec<bool> {
    cores.iter().map(Option::is_some).collect()
}

fn best(cores: &[Option<RunningJob<'_>>], mut value: impl FnMut(&[Share]) -> i64) -> i64 {
    let mut best = i64::MIN;
    every_split(&busy(cores), &mut |shares| best = best.max(value(shares)));
    best
}

proptest! {
    #[test]
    fn exact_is_brute_force(programs in programs(), instants in proptest::collection::vec(cores(), 1..4)) {
        for cores in &instants {
            let mut exact = Exact::new(&programs, POOL, cores.len());
            let shares = exact.decide(&programs, cores);
            keeps_to_the_pool(POOL, &busy(cores), &shares)?;
            prop_assert_eq!(summed(&programs, cores, &shares), best(cores, |shares| summed(&programs, cores, shares)));
        }
    }

    #[test]
    fn tables_that_are_kept_decide_as_new_ones(
        programs in programs(),
        instants in proptest::collection::vec(proptest::collection::vec(proptest::option::of((0_usize..3, 0.0..1.0)), 4), 1..6),
    ) {
        let mut kept = Exact::new(&programs, POOL, 4);
        kept.fill(&programs);
        for instant in instants {
            let job = |(program, progress)| RunningJob { program, progress, deadline: Time(0), waiting: &[] };
            let cores: Vec<_> = instant.into_iter().map(|job_at| job_at.map(job)).collect();
            let fresh = Exact::new(&programs, POOL, 4).decide(&programs, &cores);
            prop_assert_eq!(kept.decide(&programs, &cores), fresh);
        }
    }

    /// With room for as many pairs as one decision needs and a few more, so that most decisions put some out.
    #[test]
    fn full_tables_decide_as_new_ones(
        programs in programs(),
        instants in proptest::collection::vec(proptest::collection::vec((0_usize..3, 0.0..1.0), 4), 1..20),
        bytes in 0_usize..2000,
    ) {
        let mut full = Exact::within(&programs, POOL, 4, bytes);
        full.fill(&programs);
        for instant in instants {
            let job = |(program, progress)| Some(RunningJob { program, progress, deadline: Time(0), waiting: &[] });
            let cores: Vec<_> = instant.into_iter().map(job).collect();
            let shares = full.decide(&programs, &cores);
            prop_assert_eq!(
                summed(&programs, &cores, &shares),
                best(&cores, |shares| summed(&programs, &cores, shares))
            );
        }
    }

    #[test]
    fn no_policy_is_better_than_exact_and_all_keep_to_the_pool(
        programs in programs(),
        cores in cores(),
        now in 0_u64..1_000_000_000,
    ) {
        let exact = Exact::new(&programs, POOL, cores.len()).decide(&programs, &cores);
        let bound = summed(&programs, &cores, &exact);
        for shares in [dna(&programs, POOL, &cores), dadna(&programs, POOL, &cores, Time(now))] {
            keeps_to_the_pool(POOL, &busy(&cores), &shares)?;
            prop_assert!(summed(&programs, &cores, &shares) <= bound);
        }
    }
}
