use std::sync::LazyLock;

use punctual_allocation::RunningJob;

use punctual_evaluation::claims::Verdict;

use super::runs::step;
use super::*;

/// Reading it takes seconds.
static SCALED: LazyLock<(ProfileSet, Programs)> = LazyLock::new(|| {
    let sets = shipped().unwrap();
    let scaled = sets.into_iter().find(|set| set.name == "scaled").unwrap();
    let programs = Programs::new(&scaled.profiles, Objective::Speed).unwrap();
    (scaled, programs)
});

#[test]
fn random_instants_are_of_all_kinds_and_no_policy_is_above_exact() {
    let programs = &SCALED.1;
    let instants = Instants::draw(programs, Pool::PAPER, 4, 2.6, 1);
    let all: Vec<_> = instants.iter().collect();
    let busy = all.iter().flatten().flatten().count();
    assert!(
        busy > all.len() * 2 && busy < all.len() * 4,
        "{busy} jobs at {} instants",
        all.len()
    );
    assert!(all.iter().flatten().flatten().any(|job| !job.waiting.is_empty()));
    assert!(all.iter().flatten().flatten().any(|job| job.deadline < instants.now()));
    let progress = |job: &RunningJob<'_>| (0.0..=1.0).contains(&job.progress);
    assert!(all.iter().flatten().flatten().all(progress));

    for of in nearness(programs, Pool::PAPER, Exact::new(programs, Pool::PAPER, 4), &instants) {
        let Nearness {
            name,
            of_exact,
            of_exact_least,
        } = of;
        match name {
            policies::EXACT => assert_eq!((of_exact, of_exact_least), (1.0, 1.0)),
            _ => assert!(
                of_exact < 1.0 && of_exact_least <= of_exact && of_exact_least > 0.0,
                "{of:?}"
            ),
        }
    }
}

#[test]
fn a_run_decided_again_ends_with_the_same_split_and_one_of_other_instants_does_not() {
    let (set, programs) = &*SCALED;
    let bench = Bench::new(set, programs, (4, Pool::PAPER), 2.6, 1).unwrap();
    for decider in DECIDERS {
        let RecordedRun {
            allocator,
            instants,
            changes,
            last,
        } = bench.run_set(decider, &bench.sets[0]).unwrap();
        let again = |instants: &mut dyn Iterator<Item = &punctual_sim::split::Instant>| {
            let mut allocator = allocator.clone();
            let mut changed = 0;
            for instant in instants {
                changed += u64::from(step(&mut allocator, programs, &instant.cores(), instant.now));
            }
            (changed, allocator.plan().clone())
        };
        assert!(instants.len() > 100, "{}: {} instants", decider.name, instants.len());
        assert!(
            instants
                .iter()
                .flat_map(|instant| instant.cores())
                .flatten()
                .any(|job| !job.waiting.is_empty())
        );
        assert_eq!(again(&mut instants.iter()), (changes, last.clone()), "{}", decider.name);
        if decider.name == CONTROL {
            assert_eq!(changes, 0);
        } else {
            // Half of the instants: another run.
            assert_ne!(
                again(&mut instants.iter().step_by(2)).0,
                changes,
                "{}: {changes}",
                decider.name
            );
        }
    }
}

#[test]
fn goals_are_on_medians_tails_tables_and_nearness() {
    let cost = |median_ns, p99_ns| {
        vec![CostOf {
            name: JUDGED[0],
            is_control: false,
            decisions: 1,
            changes: 0,
            cost: Cost {
                median_ns,
                p99_ns,
                max_ns: 1e9,
                swept_median_ns: 1e9,
                swept_p99_ns: 1e9,
            },
        }]
    };
    let near = |of_exact| {
        vec![Nearness {
            name: "dna",
            of_exact,
            of_exact_least: 0.0,
        }]
    };
    let kept = |setting: &Setting, costs: &[CostOf], nearness: &[Nearness], bytes| -> Vec<bool> {
        goals(setting, costs, nearness, bytes)
            .iter()
            .map(|goal| goal.outcome == Verdict::Holds)
            .collect()
    };
    let [four, eight] = &SETTINGS;
    let full = TABLE_BYTES_MAX;
    assert_eq!(kept(four, &cost(2000.0, 5000.0), &near(0.97), full), [true; 4]);
    assert_eq!(kept(four, &cost(2001.0, 5001.0), &near(0.969), full + 1), [false; 4]);
    assert_eq!(kept(eight, &cost(20_000.0, 1e9), &near(0.97), full), [true; 3]);
    assert_eq!(
        kept(eight, &cost(20_001.0, 1.0), &near(0.97), full),
        [false, true, true]
    );
}
