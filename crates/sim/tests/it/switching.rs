//! Tasks that are switched on and off, and that run on some of the cores only.

use crate::common;

use common::{busy, compute, get, interferer, jobs, load, machine, real_time, run, silence};
use proptest::prelude::*;
use punctual_sim::{MachineModel, SimulationEvent};
use punctual_units::{Nanos, Time};
use punctual_workload::{Active, Arrival, Class, JobProgress, Op, Program, Surge, TaskSpec};

proptest! {
    #[test]
    fn jobs_are_released_only_while_the_task_is_active(from_ms in 0u64..300, length_ms in 1u64..300) {
        let trace = silence();
        let (mut spec, program) = interferer(&[compute(1_000_000)]);
        let [from, until] = [from_ms, from_ms + length_ms].map(Nanos::from_millis);
        spec.active = Active { from, until };
        let mut machine = machine(MachineModel::duo(), load(&trace, vec![(spec, program)]));
        let released: Vec<Time> = run(&mut machine, Nanos::from_millis(700))
            .into_iter()
            .filter_map(|event| match event {
                SimulationEvent::Released { at, .. } => Some(at),
                _ => None,
            })
            .collect();
        prop_assert!(!released.is_empty());
        let [from, until] = [from, until].map(|span| Time::ZERO + span);
        prop_assert!(released.iter().all(|at| (from..until).contains(at)), "{released:?}");
    }
}

#[test]
fn a_task_runs_on_as_many_cores_as_it_is_given() {
    for (cores, expected) in [(None, 3), (Some(1), 1), (Some(2), 2), (Some(9), 3)] {
        let trace = silence();
        let (mut spec, program) = interferer(&[compute(1_000_000)]);
        spec.cores = cores;
        let mut machine = machine(MachineModel::exynos5422_a15(), load(&trace, vec![(spec, program)]));
        run(&mut machine, Nanos::from_millis(20));
        let at_work = busy(&mut machine)
            .into_iter()
            .filter(|busy| *busy > Nanos::ZERO)
            .count();
        assert_eq!(at_work, expected, "{cores:?}");
    }
}

/// A real-time task that is due after its period.
fn every_ten_ms(ops: &[Op]) -> (TaskSpec, Program) {
    let (mut spec, program) = real_time(ops);
    let period = Nanos::from_millis(10);
    (spec.class, spec.arrival) = (Class::RealTime { deadline: period }, Arrival::Periodic { period });
    (spec, program)
}

/// Jobs that are released meanwhile have so many times as much to compute, from their first op to their last.
#[test]
fn a_surge_is_more_to_do_for_the_jobs_released_in_it() {
    let trace = silence();
    let mut machine = machine(
        MachineModel::duo(),
        load(&trace, vec![every_ten_ms(&[compute(1_000_000), compute(3_000_000)])]),
    );
    let active = Active {
        from: Nanos::from_millis(30),
        until: Nanos::from_millis(60),
    };
    machine.surge(Surge { active, factor: 1.5 });
    let took: Vec<Nanos> = jobs(&mut machine, Nanos::from_millis(99))
        .into_iter()
        .map(|job| job.response())
        .collect();
    let usual = took[0];
    assert!(usual > Nanos::ZERO && took.len() == 10, "{took:?}");
    for (k, took) in took.iter().enumerate() {
        let surged = (3..6).contains(&k);
        assert_eq!(*took, if surged { usual.scaled(1.5) } else { usual }, "job {k}");
    }
}

/// Each checkpoint once, in order, at the end of its op; and a listener changes nothing.
#[test]
fn checkpoints_are_told_where_they_are_asked_for_and_change_nothing() {
    let trace = silence();
    let ops = [get(50), compute(1_000_000), get(50), compute(3_000_000)];
    let [mut deaf, mut told] = [(); 2].map(|()| machine(MachineModel::duo(), load(&trace, vec![every_ten_ms(&ops)])));
    told.tell_progress();
    let end = Nanos::from_millis(45);
    let (quiet, all) = (run(&mut deaf, end), run(&mut told, end));
    let checkpoints: Vec<JobProgress> = all
        .iter()
        .filter_map(|event| match event {
            SimulationEvent::Progressed(progress) => Some(*progress),
            _ => None,
        })
        .collect();
    let rest: Vec<SimulationEvent> = all
        .into_iter()
        .filter(|event| !matches!(event, SimulationEvent::Progressed(_)))
        .collect();
    assert_eq!(quiet, rest);
    let numbers: Vec<(u64, u32, u32)> = checkpoints.iter().map(|told| (told.job, told.done, told.of)).collect();
    let expected: Vec<(u64, u32, u32)> = (0..5).flat_map(|job| (1..4).map(move |done| (job, done, 4))).collect();
    assert_eq!(numbers, expected);
    assert!(checkpoints.windows(2).all(|pair| pair[0].at < pair[1].at));
    assert!(checkpoints.iter().all(|told| told.at > told.released));
}
