//! A step of the loop allocates nothing, with eight tasks under goals of their own and jobs paced from within: a
//! decision must not wait for the allocator.

use crate::common;

use common::{regulator, round};
use punctual_testing::{CountingAllocator, allocations_of};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn a_step_of_the_loop_allocates_nothing() {
    let mut regulator = regulator();
    // A task's pacer is made at its first checkpoint.
    (0..2).for_each(|number| round(&mut regulator, number));
    let steps = allocations_of(|| (2..200).for_each(|number| round(&mut regulator, number)));
    assert_eq!(steps, 0);
    assert_eq!(regulator.task_windows().len(), 1);
}

/// Programs change phase at every question, so that each policy decides, under both rules.
#[cfg(feature = "allocation")]
#[test]
fn a_split_allocates_nothing() {
    use punctual_allocation::{Policy, Refill};
    use punctual_loop::{Answer, Regulator, RegulatorOptions};
    use punctual_units::Time;

    for policy in [Policy::Dna, Policy::Dadna, Policy::Exact] {
        for refill in [None, Some(Refill::PAPER)] {
            let options = RegulatorOptions {
                split: Some(common::split(policy, refill)),
                ..common::options()
            };
            let mut regulator = Regulator::new(options).unwrap();
            let mut turned = 0;
            for number in 0..200 {
                let now = Time(1 + number * 10_000_000);
                let jobs = common::jobs(number, now);
                let mut answer = None;
                let allocated = allocations_of(|| answer = regulator.step(&jobs, now));
                assert_eq!(allocated, 0, "{policy:?}, refill {refill:?}, question {number}");
                turned += usize::from(matches!(answer, Some(Answer::Turn(_))));
            }
            assert!(turned > 1, "{policy:?}, refill {refill:?}: {turned} splits");
        }
    }
}
