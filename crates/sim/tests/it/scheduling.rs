//! Which job runs where, and what its outcome says about it.

use crate::common;

use common::*;
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_sim::{BACKLOG_MAX, MachineModel, Simulation, SimulationError, SimulationEvent, SimulationLoad};
use punctual_units::{Clock, CoreId, Nanos, Share, TaskId, Time};
use punctual_workload::{Arrival, Class, JobOutcome, Op, Program, Split, TaskSpec, Trace};

fn completed(events: &[SimulationEvent], task: u32) -> Vec<JobOutcome> {
    let outcome = |event: &SimulationEvent| match event {
        SimulationEvent::Completed(outcome) if outcome.task == TaskId(task) => Some(*outcome),
        _ => None,
    };
    events.iter().filter_map(outcome).collect()
}

fn with_deadline(ops: &[Op], deadline_ms: u64, period_ms: u64) -> (TaskSpec, Program) {
    let (mut spec, program) = real_time(ops);
    spec.class = Class::RealTime {
        deadline: Nanos::from_millis(deadline_ms),
    };
    spec.arrival = Arrival::Periodic {
        period: Nanos::from_millis(period_ms),
    };
    (spec, program)
}

#[test]
fn the_shorter_deadline_preempts() {
    let trace = silence();
    // 20 ms every 100 ms, and 4 ms every 10 ms: the long job meets the short one at 0, 10, 20 and 30 ms.
    let tasks = vec![
        with_deadline(&[compute(40_000_000)], 90, 100),
        with_deadline(&[compute(8_000_000)], 10, 10),
    ];
    let mut machine = machine(MachineModel::duo(), load(&trace, tasks));
    let events = run(&mut machine, Nanos::from_millis(99));
    let long = completed(&events, 0);
    assert_eq!(long[0].response(), Nanos::from_millis(36));
    let expected = Split {
        released_late: Nanos::from_millis(4),
        preempted: Nanos::from_millis(12),
        computation: Nanos::from_millis(20),
        ..Split::default()
    };
    assert_eq!(
        long[0].split, expected,
        "it begins behind one short job, and three preempt it"
    );
    assert!(
        completed(&events, 1)
            .iter()
            .all(|job| job.response() == Nanos::from_millis(4))
    );
}

#[test]
fn a_preempted_put_is_finished_by_the_job_that_needs_the_lock() {
    let trace = silence();
    let puts = 20_000;
    let tasks = vec![
        with_deadline(&[compute(2_000_000), put(puts)], 90, 200),
        with_deadline(&[put(1)], 10, 10),
    ];
    let mut machine = machine(MachineModel::duo(), load(&trace, tasks));
    let events = run(&mut machine, Nanos::from_millis(150));
    let (long, short) = (completed(&events, 0), completed(&events, 1));
    assert!(short[1].split.lock > Nanos::from_millis(1), "{:?}", short[1]);
    // It waits for nothing else: the put's end frees it.
    let put_end = long[0].finished;
    assert!(short[1].finished > put_end && short[1].split.lock <= put_end.since(short[1].released));
}

#[test]
fn a_backlog_is_bounded_and_skipped_releases_are_told() {
    let trace = silence();
    // Each job takes two periods and a half.
    let mut machine = machine(
        MachineModel::duo(),
        load(&trace, vec![with_deadline(&[compute(50_000_000)], 10, 10)]),
    );
    let (mut released, mut done, mut skipped) = (0, 0, 0);
    for event in run(&mut machine, Nanos::from_secs(2)) {
        match event {
            SimulationEvent::Released { job, .. } => {
                assert_eq!(job, released, "numbered without a gap");
                released += 1;
            }
            SimulationEvent::Completed(outcome) => {
                assert_eq!(outcome.job, done, "first in, first out");
                done += 1;
            }
            SimulationEvent::Skipped { at, .. } => {
                assert_eq!(released - done, BACKLOG_MAX as u64 + 1, "at {at:?}");
                skipped += 1;
            }
            SimulationEvent::Progressed(_) | SimulationEvent::Reached => {
                unreachable!("not asked for, and `run` ends there")
            }
        }
        assert!(released - done <= BACKLOG_MAX as u64 + 1);
    }
    assert_eq!(released + skipped, 201, "one every 10 ms, at 0 and at 2 s too");
    assert!(skipped > 100);
}

#[test]
fn one_core_serves_the_job_first_then_updates_then_best_effort() {
    let trace = Trace::synthetic(
        50,
        Nanos::from_millis(10),
        Nanos::from_millis(20),
        Nanos::from_secs(1),
        1,
    );
    let tasks = vec![real_time(&[compute(20_000_000)]), interferer(&[compute(1_000_000)])];
    let model = MachineModel {
        cores: 1,
        ..MachineModel::exynos5422_a15()
    };
    let mut machine = machine(model, load(&trace, tasks));
    let events = run(&mut machine, Nanos::from_secs(1));
    for job in completed(&events, 0) {
        assert_eq!(job.response(), Nanos::from_millis(10), "no job is in its way");
    }
    assert!(completed(&events, 1).len() > 100, "best-effort work has the rest");
    assert!(machine.updates().counts().installed > 1000);
    let busy = busy(&mut machine)[0];
    assert!(busy.ratio(Nanos::from_secs(1)) > 0.999, "{busy}");
}

#[test]
fn best_effort_jobs_of_a_core_run_in_the_order_of_release() {
    let trace = silence();
    let (mut spec, program) = interferer(&[compute(10_000_000)]);
    spec.per_core = 3;
    let mut machine = machine(MachineModel::duo(), load(&trace, vec![(spec, program)]));
    let jobs = completed(&run(&mut machine, Nanos::from_millis(200)), 0);
    assert!(jobs.len() >= 39);
    assert!(jobs.is_sorted_by_key(|job| job.released));
    assert!(jobs.iter().all(|job| job.split.computation == Nanos::from_millis(5)));
}

#[test]
fn the_clock_stands_at_what_happened_and_never_runs_back() {
    let trace = silence();
    let mut machine = machine(
        MachineModel::duo(),
        load(&trace, vec![real_time(&[compute(2_000_000)])]),
    );
    assert!(matches!(
        machine.run_until(Time(5)),
        SimulationEvent::Released {
            job: 0,
            at: Time::ZERO,
            ..
        }
    ));
    assert_eq!(machine.now(), Time::ZERO);
    assert_eq!(machine.run_until(Time(5)), SimulationEvent::Reached);
    assert_eq!(machine.run_until(Time(3)), SimulationEvent::Reached);
    assert_eq!(machine.now(), Time(5));
    assert!(matches!(machine.run_until(Time::MAX), SimulationEvent::Completed(_)));
    assert_eq!(machine.now(), Time(1_000_000));
}

#[test]
fn what_cannot_be_simulated_is_named() {
    let trace = silence();
    let refused = |model: MachineModel, load: SimulationLoad| Simulation::new(model, load).map(|_| ()).unwrap_err();
    let trace: &'static Trace = Box::leak(Box::new(trace));
    let error = refused(MachineModel::duo(), load(trace, vec![real_time(&[])]));
    assert_eq!(
        error,
        SimulationError::EmptyProgram {
            task: "analysis".into()
        }
    );
    let model = MachineModel {
        cores: 0,
        ..MachineModel::duo()
    };
    let error = refused(model, load(trace, vec![]));
    assert!(error.to_string().starts_with("machine model: cores: "), "{error}");
}

#[test]
fn called_work_takes_turns_with_background_work_that_is_bounded() {
    let hog = |urgent: bool, share: f64| {
        let mut machine = machine(
            MachineModel::duo(),
            load(&silence(), vec![interferer(&[compute(2_000_000_000)])]),
        );
        let steps = vec![punctual_sim::Step::Op(compute(40_000_000))];
        let called = machine.add_called("stage", CoreId(0), urgent, steps);
        machine.apply(&Plan::of(KnobId::BestEffortShare, Value::Share(Share::clamped(share))));
        run(&mut machine, Nanos::from_millis(100));
        machine.call(called);
        machine.call(called);
        let events = run(&mut machine, Nanos::from_millis(200));
        let jobs = completed(&events, called.0);
        assert_eq!(jobs.len(), 1, "one job is under way at a time");
        jobs[0].response()
    };
    // 20 ms beside a job of a second, in turns; beside one that has 1 ms of each 10 ms; and alone.
    let [half, most, all] = [1.0, 0.1, 0.0].map(|share| hog(false, share));
    assert!(
        (Nanos::from_millis(38)..Nanos::from_millis(43)).contains(&half),
        "{half}"
    );
    assert!(
        (Nanos::from_millis(20)..Nanos::from_millis(24)).contains(&most),
        "{most}"
    );
    assert_eq!([all, hog(true, 1.0)], [Nanos::from_millis(20); 2]);
}
