//! Why jobs are late on the simulated machine: each cause is injected and found by its name; every late job has one.

use crate::common;

use common::{request, unwatched};
use punctual_runtime::report::{Activity, CauseReport, TaskReport};
use punctual_scenario::{PlatformChoice, RunRequest, run};
use punctual_testing::task_by_hand;
use punctual_units::{CoreId, Nanos};
use punctual_workload::{Active, Arrival, Cause, Class, ControllerKind, Demand, ObjectSet, Surge, TaskSpec, Volume};

fn real_time(name: &str, period: u64, deadline: u64, compute: Nanos, writes: u32) -> TaskSpec {
    let class = Class::RealTime {
        deadline: Nanos::from_millis(deadline),
    };
    let period = Nanos::from_millis(period);
    TaskSpec {
        demand: Demand {
            compute,
            data: Nanos::ZERO,
            rounds: 1,
            reads: ObjectSet::Objects,
            writes,
            fit: false,
        },
        core: Some(CoreId(3)),
        ..task_by_hand(name, class, Arrival::Periodic { period })
    }
}

/// 30 s of these tasks alone, on one core.
fn alone(tasks: Vec<TaskSpec>) -> RunRequest {
    let mut request = request(PlatformChoice::Sim, ControllerKind::Open, 30);
    request.scenario.sensors.volume = Volume::Utilisation(0.001);
    request.scenario.tasks = tasks;
    request
}

fn report(request: &RunRequest, task: &str) -> TaskReport {
    let report = run(request, &mut unwatched).unwrap().report;
    let task = report.tasks.into_iter().find(|it| it.name == task).unwrap();
    assert_eq!(
        task.causes.iter().map(|it| it.jobs).sum::<u64>(),
        task.late,
        "each has one"
    );
    for late in &task.late_jobs {
        let sum: f64 = late.spans_us.values().sum();
        assert!((sum - late.late_us - task.deadline_us).abs() < 1e-3, "{late:?}");
        let by: f64 = late.by.iter().map(|it| it.us).sum();
        assert!(by <= late.us + 1e-3, "{late:?}");
    }
    task
}

fn cause(task: &TaskReport, cause: Cause) -> &CauseReport {
    task.causes
        .iter()
        .find(|it| it.cause == cause)
        .unwrap_or_else(|| panic!("no {cause:?}: {task:#?}"))
}

const MS: Nanos = Nanos::from_millis(1);

/// From the middle on, one task takes the whole core, and no job of the other begins.
#[test]
fn a_task_that_never_gets_the_core_did_not_run() {
    let mut request = alone(vec![
        real_time("hungry", 10, 10, MS * 4, 0),
        real_time("starves", 100, 100, MS * 30, 0),
    ]);
    let active = Active {
        from: Nanos::from_secs(15),
        until: Nanos::from_secs(30),
    };
    // 12.4 ms of each job: one is under way at the end.
    request.surge = Some(Surge { active, factor: 3.1 });
    let [hungry, starves] = ["hungry", "starves"].map(|task| report(&request, task));
    // Those that find no place behind the open ones are skipped.
    assert_eq!(
        cause(&starves, Cause::NotRun).jobs + starves.skipped,
        starves.late,
        "{starves:#?}"
    );
    assert!(starves.late > 100, "{starves:#?}");
    let has_begun = [hungry, starves].map(|task| task.unfinished.and_then(|open| open.has_begun));
    assert_eq!(has_begun, [Some(true), Some(false)]);
}

#[test]
fn preemption_names_the_task() {
    let request = alone(vec![
        real_time("long", 100, 30, MS * 20, 0),
        real_time("short", 10, 10, MS * 4, 0),
    ]);
    let long = report(&request, "long");
    assert_eq!(long.late, long.jobs);
    let [only] = &long.causes[..] else { panic!("{long:#?}") };
    assert_eq!(
        (only.cause, only.by.len(), &*only.by[0].name),
        (Cause::Preempted, 1, "short")
    );
    assert_eq!((only.jobs, only.by[0].jobs), (long.late, long.late));
    assert!(
        (only.by[0].us - only.us_mean * only.jobs as f64).abs() < 1.0,
        "it alone: {only:?}"
    );
}

#[test]
fn the_lock_names_its_holder() {
    let request = alone(vec![
        real_time("logger", 80, 80, MS, 7_500),
        real_time("steer", 10, 5, MS, 1),
    ]);
    let steer = report(&request, "steer");
    let lock = cause(&steer, Cause::Lock);
    assert_eq!(
        (&*lock.by[0].name, lock.by[0].doing),
        ("logger", Some(Activity::Working))
    );
    assert_eq!(lock.by.iter().map(|it| it.jobs).sum::<u64>(), lock.jobs);
}

#[test]
fn a_surge_is_longer_computation_also_of_the_job_behind() {
    let mut request = alone(vec![real_time("steer", 20, 20, MS * 9, 0)]);
    request.surge = Some(Surge {
        active: Active {
            from: Nanos::from_secs(15),
            until: Nanos::from_secs(15) + MS * 40,
        },
        factor: 3.0,
    });
    let steer = report(&request, "steer");
    let worst: Vec<(u64, Cause, bool)> = { steer.late_jobs.iter() }
        .map(|it| (it.job, it.cause, it.behind))
        .collect();
    // Two jobs of 27 ms, the second of which began 7 ms late, then one that began 14 ms late, behind them.
    assert_eq!(
        worst,
        [
            (751, Cause::Computation, false),
            (750, Cause::Computation, false),
            (752, Cause::Computation, true)
        ]
    );
    let usual = steer.late_jobs[1].usual_us.unwrap();
    let factor = steer.late_jobs[1].us / usual;
    assert!((factor - 3.0).abs() < 0.05, "{factor}");
}
