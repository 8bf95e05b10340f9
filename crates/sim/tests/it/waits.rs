//! What kept a job from going on, and by which work: all of the split's waiting, and nothing else.

use crate::common;

use common::*;
use proptest::prelude::*;
use punctual_sim::{Blocker, MachineModel, Other, Simulation, SimulationEvent, Waits};
use punctual_units::{Nanos, TaskId, Time};
use punctual_workload::{Arrival, Class, JobOutcome, Op, Program, TaskSpec, Trace, UpdateMode};

fn task(ops: &[Op], deadline: u64, period: u64) -> (TaskSpec, Program) {
    let (mut spec, program) = real_time(ops);
    spec.class = Class::RealTime {
        deadline: Nanos::from_millis(deadline),
    };
    spec.arrival = Arrival::Periodic {
        period: Nanos::from_millis(period),
    };
    (spec, program)
}

/// The jobs with a deadline that are complete at `end`, with what kept them.
fn jobs(machine: &mut Simulation, end: Nanos) -> Vec<(JobOutcome, Waits)> {
    let mut jobs = Vec::new();
    loop {
        match machine.run_until(Time::ZERO + end) {
            SimulationEvent::Completed(outcome) if outcome.deadline.is_some() => {
                jobs.push((outcome, machine.last_waits().clone()))
            }
            SimulationEvent::Reached => return jobs,
            _ => {}
        }
    }
}

fn told(waits: &Waits) -> Vec<(Other, Blocker, Nanos)> {
    waits.by.iter().map(|wait| (wait.by, wait.keeps, wait.took)).collect()
}

#[test]
fn a_job_names_the_task_that_has_its_core_and_the_job_before() {
    let trace = silence();
    // 20 ms every 100 ms, and 4 ms every 10 ms, which comes first at 0, 10, 20 and 30 ms.
    let tasks = vec![
        task(&[compute(40_000_000)], 90, 100),
        task(&[compute(8_000_000)], 10, 10),
    ];
    let jobs = jobs(
        &mut machine(MachineModel::duo(), load(&trace, tasks)),
        Nanos::from_millis(99),
    );
    let (_, long) = jobs.iter().find(|(job, _)| job.task == TaskId(0)).unwrap();
    let expected = (Other::Task(TaskId(1)), Blocker::Core, Nanos::from_millis(16));
    assert_eq!((told(long), long.behind), (vec![expected], Nanos::ZERO));
    assert!(
        jobs.iter()
            .all(|(job, waits)| job.task == TaskId(0) || waits.by.is_empty())
    );

    // Jobs of 15 ms every 10 ms.
    let tasks = vec![task(&[compute(30_000_000)], 10, 10)];
    let behind = self::jobs(
        &mut machine(MachineModel::duo(), load(&trace, tasks)),
        Nanos::from_millis(50),
    );
    let behind: Vec<Nanos> = behind.iter().map(|(_, waits)| waits.behind).collect();
    assert_eq!(behind, [0, 5, 10].map(Nanos::from_millis));
}

#[test]
fn a_job_names_the_holder_of_the_lock_and_what_that_does() {
    let trace = silence();
    let tasks = vec![
        task(&[compute(2_000_000), put(20_000)], 90, 200),
        task(&[put(1)], 10, 10),
    ];
    let mut machine = machine(MachineModel::duo(), load(&trace, tasks));
    let jobs = jobs(&mut machine, Nanos::from_millis(150));
    let (job, waits) = jobs
        .iter()
        .find(|(job, _)| job.task == TaskId(1) && job.job == 1)
        .unwrap();
    let held = told(waits).into_iter().filter(|(by, ..)| *by == Other::Task(TaskId(0)));
    let held: Vec<(Blocker, Nanos)> = held.map(|(_, keeps, took)| (keeps, took)).collect();
    assert_eq!(held.iter().map(|(_, took)| *took).sum::<Nanos>(), job.split.lock);
    assert_eq!(
        held.iter().map(|(keeps, _)| *keeps).collect::<Vec<_>>(),
        [Blocker::Lock, Blocker::Commit]
    );
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (1u64..4_000_000).prop_map(compute),
        (1u32..400).prop_map(get),
        (1u32..400).prop_map(put),
    ]
}

proptest! {
    /// Each nanosecond that the split calls waiting has its culprit, whatever the load.
    #[test]
    fn all_waiting_is_explained(
        tasks in prop::collection::vec((prop::collection::vec(op(), 1..4), 2u64..30, 2u64..30), 1..5),
        memory_first in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let (gap, age) = (Nanos::from_millis(5), Nanos::from_secs(1));
        let trace = Trace::synthetic(20, gap, gap * 4, age, seed);
        let tasks = tasks.iter().map(|(ops, deadline, period)| task(ops, *deadline, *period)).collect();
        let mut load = load(&trace, tasks);
        if memory_first {
            load.update_mode = UpdateMode::MemoryFirst;
        }
        let mut machine = machine(MachineModel::exynos5422_a15(), load);
        for (job, waits) in jobs(&mut machine, Nanos::from_millis(300)) {
            let sum = |keeps: &[Blocker]| {
                let kept = waits.by.iter().filter(|wait| keeps.contains(&wait.keeps));
                kept.map(|wait| wait.took).sum::<Nanos>()
            };
            let off = job.split.released_late - waits.behind + job.split.preempted;
            prop_assert_eq!(sum(&[Blocker::Lock, Blocker::Commit]), job.split.lock, "{:?} {:?}", job, waits);
            prop_assert_eq!(sum(&[Blocker::Core]), off, "{:?} {:?}", job, waits);
            prop_assert!(waits.by.iter().all(|wait| wait.took > Nanos::ZERO));
        }
    }
}
