//! The simulated machine does as the placement says, and locks work across real-time cores.

use crate::common;

use common::{compute, load, put};
use proptest::prelude::*;
use punctual_cores::{Placement, Seat};
use punctual_sim::{MachineModel, Simulation, SimulationError, SimulationEvent, placed};
use punctual_testing::task_by_hand;
use punctual_units::{Clock, CoreId, Nanos, TaskId, Time};
use punctual_workload::{Arrival, Class, JobOutcome, Op, Program, TaskSpec, Trace};

fn task(name: &str, class: Class, period: Nanos, ops: &[Op]) -> (TaskSpec, Program) {
    let spec = task_by_hand(name, class, Arrival::Periodic { period });
    (spec, Program { ops: ops.to_vec() })
}

fn trace() -> Trace {
    let [short, long] = [Nanos::from_millis(4), Nanos::from_millis(20)];
    Trace::synthetic(64, short, long, Nanos::from_secs(2), 1)
}

/// Every job that ends within a second.
fn outcomes(machine: &mut Simulation) -> Vec<JobOutcome> {
    let mut outcomes = Vec::new();
    let end = Time::ZERO + Nanos::from_secs(1);
    while machine.now() < end {
        if let SimulationEvent::Completed(outcome) = machine.run_until(end) {
            outcomes.push(outcome);
        }
    }
    outcomes
}

#[test]
fn two_exclusive_tasks_of_sixty_percent_are_both_on_time() {
    let period = Nanos::from_millis(100);
    let sixty = |name: &str| {
        let cycles = [compute(120_000_000)]; // 60 ms at 2 GHz
        let mut task = task(name, Class::Exclusive { deadline: period }, period, &cycles);
        task.0.demand.compute = Nanos::from_millis(60);
        task
    };
    let tasks = vec![sixty("left"), sixty("right")];
    let trace = trace();
    let mut machine = Simulation::new(MachineModel::exynos5422_a15(), load(&trace, tasks)).expect("a sound load");
    let late = outcomes(&mut machine)
        .iter()
        .filter(|job| job.overrun().is_some())
        .count();
    assert_eq!(late, 0);
}

/// Real-time tasks with writes on three cores, named, beside update transactions.
fn spread(works: &[(u64, u32)]) -> Vec<(TaskSpec, Program)> {
    let one = |(number, (kilocycles, writes)): (usize, &(u64, u32))| {
        let period = Nanos::from_micros(2_000 + 700 * number as u64);
        let deadline = period;
        let ops = [
            compute(kilocycles * 1_000),
            common::get(4),
            put(*writes),
            compute(kilocycles * 500),
        ];
        let mut task = task(&format!("task {number}"), Class::RealTime { deadline }, period, &ops);
        task.0.core = Some(CoreId(1 + number as u32 % 3));
        task
    };
    works.iter().enumerate().map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whichever cores write: every job ends, the run repeats, every update is accounted for, and no wait for the lock
    /// is longer than all that can come before it.
    #[test]
    fn writers_on_several_cores_all_get_ahead(works in prop::collection::vec((1u64..600, 1u32..6), 2..7)) {
        let trace = trace();
        let run = || {
            let load = load(&trace, spread(&works));
            let mut machine = Simulation::new(MachineModel::exynos5422_a15(), load).expect("a sound load");
            let outcomes = outcomes(&mut machine);
            (outcomes, machine.updates().reconcile())
        };
        let (first, account) = run();
        prop_assert_eq!(&first, &run().0);
        prop_assert!(account.balances(), "{:?}", account);
        for task in 0..works.len() {
            let ended = first.iter().filter(|job| job.task == TaskId(task as u32)).count();
            prop_assert!(ended > 150, "task {task} ended {ended} jobs in a second");
        }
    }
}

#[test]
fn a_placement_of_another_machine_is_refused() {
    let trace = trace();
    let tasks = spread(&[(10, 1)]);
    let placement = placed(&tasks, 4).expect("four cores");
    let with = |placement: Placement| {
        let mut load = load(&trace, tasks.clone());
        load.placement = Some(placement);
        Simulation::new(MachineModel::duo(), load).map(drop)
    };
    assert!(with(placement.clone()).is_ok());
    let elsewhere = Placement {
        seats: vec![Seat::BestEffort(vec![CoreId(3)])],
        ..placement
    };
    assert_eq!(with(elsewhere), Err(SimulationError::Misplaced { seats: 1, tasks: 1 }));
}
