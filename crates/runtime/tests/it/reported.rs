//! Jobs that a program reports are counted one by one; whether they are late follows from the releases that it states,
//! so no figure depends on how busy the machine is.
#![cfg(target_os = "linux")]

use std::ops::ControlFlow;
use std::sync::Arc;

use punctual_engines::Memory;
use punctual_jobs::{JobReporter, Listener, note};
use punctual_os::{LinuxOs, Scheduling, Tid};
use punctual_platform::linux::thread::{real_time, scheduling};
use punctual_runtime::linux::{ReportedTask, RuntimeBuilder};
use punctual_runtime::report::RunReport;
use punctual_store::{Store, StoreOptions};
use punctual_testing::{machine, shared_folder, shared_machine, wait_until};
use punctual_units::{Clock, Nanos, Share};
use punctual_workload::{Class, Goal, TaskGoal};

/// Longer than the test takes, and shorter than half of the time since the machine's boot.
const DEADLINE: Nanos = Nanos::from_secs(60);

fn task(name: &str) -> ReportedTask {
    ReportedTask {
        name: name.into(),
        deadline: DEADLINE,
        period: None,
        goal: None,
        class: None,
        core: None,
        execution: None,
        observation: None,
    }
}

/// Report of a run of a second around `program`, which a thread of its own carries out once a runtime listens.
fn report(folder: &std::path::Path, names: &[&str], program: impl FnOnce() + Send) -> RunReport {
    report_of(folder, names.iter().map(|name| task(name)).collect(), program)
}

fn report_of(folder: &std::path::Path, tasks: Vec<ReportedTask>, program: impl FnOnce() + Send) -> RunReport {
    let listener = Listener::start(folder).unwrap();
    let store = Store::open(Memory::default(), LinuxOs, StoreOptions::default()).unwrap();
    let mut runtime = RuntimeBuilder::here(Arc::new(store)).unwrap();
    runtime.reported(listener, tasks);
    let goal = Goal {
        tasks: TaskGoal::default(),
        drr: 0.5,
        min_fresh: Share::ZERO,
    };
    let options = runtime.options("reported", goal, Nanos::from_secs(1));
    std::thread::scope(|scope| {
        scope.spawn(program);
        runtime.run(options, &mut |_| ControlFlow::Continue(())).unwrap().report
    })
}

#[test]
fn each_job_counts_once_and_is_late_by_the_release_that_its_program_states() {
    let _machine = shared_machine();
    let folder = shared_folder();
    let report = report(folder.path(), &["control", "backup", "absent"], || {
        let mut control = JobReporter::open_in(folder.path(), "control").unwrap();
        control.job(); // counts from its begin
        for number in 0..50 {
            let now = LinuxOs.now();
            let since = if number % 5 < 2 { DEADLINE * 2 } else { Nanos::ZERO };
            control.begin_released(now - since);
            control.end();
        }
        control.end(); // without a begin
        for begins in [true, true, false, false] {
            note(folder.path(), "backup", begins).unwrap();
        }
    });
    let counts: Vec<_> = report
        .tasks
        .iter()
        .map(|task| (task.name.as_str(), task.jobs, task.late, task.failed))
        .collect();
    assert_eq!(
        counts,
        [("control", 51, 20, 0), ("backup", 1, 0, 0), ("absent", 0, 0, 0)]
    );
    let notes = report.summary.notes.join("\n");
    for said in [
        "control: 1 begins within",
        "backup: 2 begins within",
        "absent: no program",
        "1 of 1 reporting threads",
    ] {
        assert!(notes.contains(said), "{notes}");
    }
}

#[test]
fn a_program_that_ends_within_a_job_leaves_a_failed_one() {
    let _machine = shared_machine();
    let folder = shared_folder();
    let report = report(folder.path(), &["control"], || {
        let inner = std::thread::spawn({
            let folder = folder.path().to_owned();
            move || {
                let mut control = JobReporter::open_in(&folder, "control").unwrap();
                control.job();
                control.begin();
                std::mem::forget(control);
            }
        });
        inner.join().unwrap();
    });
    let task = &report.tasks[0];
    assert_eq!((task.jobs, task.late, task.failed), (1, 0, 1), "{task:?}");
    assert!(
        task.first_failure
            .as_ref()
            .is_some_and(|first| first.contains("ended within the job"))
    );
}

#[test]
fn releases_behind_a_job_that_hangs_are_late_also_if_its_thread_ends() {
    let _machine = shared_machine();
    for dies in [false, true] {
        let folder = shared_folder();
        let every = ReportedTask {
            period: Some(Nanos::from_secs(10)),
            ..task("control")
        };
        let (held, hold) = std::sync::mpsc::channel::<()>();
        let path = folder.path().to_owned();
        let report = report_of(folder.path(), vec![every], move || {
            let hangs = std::thread::spawn(move || {
                let mut control = JobReporter::open_in(&path, "control").unwrap();
                control.job();
                // Late for 35 s: so are three releases behind it.
                control.begin_released(LinuxOs.now() - DEADLINE - Nanos::from_secs(35));
                while !dies && hold.recv().is_ok() {}
                std::mem::forget(control);
            });
            if dies {
                hangs.join().unwrap();
            }
        });
        drop(held);
        let task = &report.tasks[0];
        assert_eq!((task.late, task.failed), if dies { (3, 1) } else { (4, 0) }, "{task:?}");
    }
}

#[test]
fn a_thread_that_reports_two_tasks_has_one_core_until_it_reports_none() {
    let _machine = machine();
    let allowed = std::thread::spawn(|| real_time(1)).join().unwrap();
    if let Err(refusal) = allowed {
        return eprintln!("skipped: {refusal}");
    }
    let folder = shared_folder();
    let tasks = ["first", "second"].map(|name| ReportedTask {
        class: Some(Class::RealTime { deadline: DEADLINE }),
        ..task(name)
    });
    let report = report_of(folder.path(), tasks.to_vec(), || {
        let found = scheduling(Tid::current()).unwrap();
        let is_seated = || matches!(scheduling(Tid::current()), Ok(Scheduling::Fifo(_)));
        let mut open = ["first", "second"].map(|name| {
            let mut reporter = JobReporter::open_in(folder.path(), name).unwrap();
            reporter.job();
            Some(reporter)
        });
        wait_until("it is seated", is_seated);
        open[0] = None;
        // The threads that have left are looked for every 250 ms.
        std::thread::sleep(std::time::Duration::from_millis(350));
        assert!(is_seated());
        open[1] = None;
        wait_until("it is given back", || scheduling(Tid::current()) == Ok(found));
    });
    let protection = &report.header.protection;
    let real_time = protection
        .iter()
        .filter(|it| it.what.contains("SCHED_FIFO") && it.what.contains("first"));
    assert_eq!(real_time.count(), 1, "{protection:?}");
    assert!(
        !protection.iter().any(|it| it.what.contains("second: SCHED_FIFO")),
        "{protection:?}"
    );
}
