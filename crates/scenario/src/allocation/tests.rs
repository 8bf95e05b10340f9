//! What is left to pay of ways that were gained.

use proptest::prelude::*;
use punctual_allocation::{Grid, Phase, Policy, RateTable};
use punctual_testing::task_by_hand;
use punctual_units::TaskId;
use punctual_workload::Class;

use super::*;

/// Two tasks on one core, of 100 ms and two phases each.
fn allocating() -> Allocating {
    let period = Nanos::from_millis(500);
    let task = |name: &str| task_by_hand(name, Class::BestEffort, Arrival::Periodic { period });
    let phase = |ends| Phase {
        ends,
        rates: RateTable::new(Grid::PAPER, |share| 1e6 * f32::from(share.ways)),
    };
    let profile = |name: &str| Profile {
        name: name.into(),
        grid: Grid::PAPER,
        instructions: 2e6,
        phases: vec![phase(0.5), phase(1.0)],
    };
    let request = AllocationRequest {
        policy: Policy::Equal,
        changes: Changes::Paying,
        profiles: ["first", "second"].map(|name| (name.into(), profile(name))).into(),
        refill: Some(Refill::PAPER),
    };
    let tasks = [task("first"), task("second")];
    let model = MachineModel::exynos5422_a15();
    let programs = tasks.clone().map(|task| (task, Program { ops: Vec::new() }));
    let placement = punctual_sim::placed(&programs, model.cores).expect("no task names a core");
    Allocating::new(&request, &tasks, &model, &placement).expect("fine profiles")
}

/// A job of the first task on the first core.
fn job(op: usize, done: f64, runs: bool) -> JobAt {
    JobAt {
        runner: 0,
        task: TaskId(0),
        core: 0,
        op,
        done,
        deadline: None,
        released: Time::ZERO,
        runs,
    }
}

/// What the core owes after the job of `begun` was given `cold` seconds to wait, and `now` is all that is known of
/// jobs.
fn owed(begun: JobAt, cold: f64, now: Option<JobAt>) -> f64 {
    let mut allocating = allocating();
    allocating.seen[0] = Some((begun.runner, begun.op));
    allocating.cold[0] = cold;
    allocating.stall(0, &begun);
    assert_eq!(allocating.cold[0], 0.0, "it waits for all of it");
    allocating.unpaid(now.as_slice(), 0)
}

proptest! {
    /// The machine takes for cycles and for waiting what the allocator reckons with, at every clock.
    #[test]
    fn a_phase_takes_as_long_as_the_allocator_thinks(slowdown in 1.0f64..10.0, phase in 0usize..2) {
        let mut allocating = allocating();
        allocating.programs.slow_down(slowdown);
        let begins = allocating.bounds[0][phase];
        let share = allocating.allocator.plan().shares[0];
        let thinks = allocating.programs.phase_left(0, begins, share);
        let stall = allocating.stall(0, &job(phase, 0.0, true));
        let cycles = allocating.cycles[0][phase];
        let takes = cycles * (slowdown / allocating.top.0 as f64 + stall * 1e-9);
        // Cycles are whole.
        prop_assert!((takes - thinks).abs() < 1e-6 * thinks, "{takes} {thinks}");
    }

    /// A job that is pushed aside leaves what it has not waited for: paid and unpaid are the whole.
    #[test]
    fn filling_is_paid_in_full(from in 0.0f64..0.9, more in 0.0f64..1.0, cold in 1e-6f64..0.1) {
        let until = from + more * (1.0 - from);
        let paid = cold * (until - from) / (1.0 - from);
        let unpaid = owed(job(1, from, true), cold, Some(job(1, until, false)));
        prop_assert!((paid + unpaid - cold).abs() <= 1e-9 * cold, "{paid} + {unpaid} of {cold}");
    }
}

#[test]
fn a_job_that_ends_its_phase_has_paid() {
    let begun = job(0, 0.5, true);
    assert_eq!(owed(begun, 0.1, None), 0.0, "the job has ended");
    assert_eq!(
        owed(begun, 0.1, Some(job(1, 0.0, true))),
        0.0,
        "it is in its next phase"
    );
    assert_eq!(
        owed(begun, 0.1, Some(job(1, 0.0, false))),
        0.0,
        "and pushed aside there"
    );
    assert_eq!(owed(begun, 0.1, Some(job(0, 0.0, false))), 0.0, "its next job waits");
}
