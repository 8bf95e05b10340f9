//! The model in which an allocator looks ahead, against the simulated machine: the same jobs are late.

use proptest::prelude::*;
use punctual_allocation::ahead::{Ahead, Foresight};
use punctual_allocation::{Allocator, AllocatorSettings, Base, PeriodicTask, Policy, Programs};
use punctual_machine::split::{SplitAnswer, SplitResult, run};
use punctual_sim::split::{Instant, Refill, slices};
use punctual_units::{Nanos, Time};

use crate::kept::{Case, case, compiled, cost};

fn settings(case: &Case, base: Base) -> AllocatorSettings {
    AllocatorSettings {
        pool: case.pool,
        cores: case.machine.cores,
        policy: Policy::Dna,
        base,
        refill: Some(cost(&case.machine)),
        gap: case.machine.decision_gap,
    }
}

/// Looks ahead for the tasks of `case`, in pieces of `work`.
fn foreseen(case: &Case, programs: &Programs, work: u64, work_max: u64) -> Foresight {
    let settings = settings(case, Base::Ahead);
    let none: Vec<_> = (0..case.machine.cores).map(|_| None).collect();
    let refill = settings.refill.unwrap();
    let mut ahead = Ahead::new(programs, &case.tasks, (&settings, refill), None, &none, Time::ZERO).within(work_max);
    loop {
        if let Some(forecast) = ahead.advance(programs, work) {
            return forecast;
        }
    }
}

/// Runs `case` on the simulated machine for `seconds`, from what was foreseen.
fn carried_out(case: &Case, programs: &Programs, forecast: &Foresight, seconds: Nanos) -> SplitResult {
    let mut machine = case.machine;
    if !forecast.lends {
        machine.refill = Refill::Free;
        return run(&machine, &case.programs, &case.tasks, seconds, |_: &Instant| {
            Some(slices(&forecast.plan))
        })
        .unwrap();
    }
    machine.decision_gap = Nanos::ZERO;
    let mut allocator = Allocator::new(programs, &case.tasks, settings(case, forecast.base)).unwrap();
    run(&machine, &case.programs, &case.tasks, seconds, |instant: &Instant| {
        allocator.step(programs, &instant.cores(), instant.now);
        SplitAnswer {
            slices: Some(slices(allocator.plan())),
            due: allocator.due(),
            put_off: false,
        }
    })
    .unwrap()
}

/// Late jobs of each core among those due by `end`: foreseen, and on the simulated machine.
fn late(case: &Case) -> Vec<(u64, u64)> {
    let programs = compiled(&case.programs);
    let forecast = foreseen(case, &programs, u64::MAX, u64::MAX);
    let end = Time::ZERO + forecast.seen;
    let jobs = carried_out(case, &programs, &forecast, forecast.seen).jobs;
    let on = |core: usize| {
        let is_late = |job: &&punctual_workload::JobOutcome| {
            let due = job.released + job.deadline.unwrap();
            case.tasks[job.task.index()].core == core && job.finished > due && due < end
        };
        jobs.iter().filter(is_late).count() as u64
    };
    forecast
        .cores
        .iter()
        .enumerate()
        .map(|(core, counts)| (counts.late, on(core)))
        .collect()
}

/// A candidate that never changes is foreseen job by job; one that lends as far as rounding to nanoseconds does not
/// change a decision.
#[test]
fn what_is_foreseen_happens() {
    let (mut foreseen, mut apart, mut jobs) = (0, 0, 0);
    for seed in 0..40 {
        for (ahead, real) in late(&case(seed)) {
            foreseen += ahead;
            apart += ahead.abs_diff(real);
            jobs += 1;
        }
    }
    assert!(foreseen > 500 && jobs > 80, "{foreseen} late jobs on {jobs} cores");
    assert!(
        apart * 100 <= foreseen,
        "{apart} of {foreseen} late jobs were foreseen elsewhere"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Pieces of any size end in the same place, and so does work that is bounded.
    #[test]
    fn pieces_of_any_size_find_the_same(seed in 0_u64..1000, work in 1_u64..500, bound in 1_000_u64..20_000) {
        let case = case(seed);
        let programs = compiled(&case.programs);
        let whole = foreseen(&case, &programs, u64::MAX, bound);
        prop_assert_eq!(&foreseen(&case, &programs, work, bound), &whole);
        let most = bound + 64 + case.tasks.len() as u64 * 4096;
        prop_assert!(whole.work <= most, "{} units, of {bound}", whole.work);
    }
}

/// A task that comes later is looked ahead for when it comes, in pieces between decisions, and the split follows.
#[test]
fn a_task_that_comes_changes_the_base() {
    let (mut looked, mut split_again) = (0, 0);
    for seed in 0..20 {
        let mut case = case(seed);
        let last = case.tasks.len() - 1;
        case.tasks[last] = PeriodicTask {
            from: Time::ZERO + case.tasks[last].period * 2,
            ..case.tasks[last]
        };
        let programs = compiled(&case.programs);
        let mut allocator = Allocator::new(&programs, &case.tasks, settings(&case, Base::Ahead)).unwrap();
        let first = allocator.forecast().cloned();
        let mut machine = case.machine;
        machine.decision_gap = Nanos::ZERO;
        let longest = case.tasks.iter().map(|task| task.period).max().unwrap();
        let ran = run(
            &machine,
            &case.programs,
            &case.tasks,
            longest * 12,
            |instant: &Instant| {
                allocator.look(&programs, instant.now);
                allocator.step(&programs, &instant.cores(), instant.now);
                SplitAnswer {
                    slices: Some(slices(allocator.plan())),
                    due: allocator.due(),
                    put_off: false,
                }
            },
        );
        ran.unwrap();
        let second = allocator.forecast().cloned();
        looked += usize::from(first != second);
        split_again += usize::from(first.map(|first| first.plan) != second.map(|second| second.plan));
    }
    assert!(
        looked >= 5 && split_again >= 1,
        "{looked} looked ahead again, {split_again} found another split"
    );
}
