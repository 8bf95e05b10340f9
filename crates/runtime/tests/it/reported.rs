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
use punctual_runtime::report::{Progress, RunReport, TaskReport};
use punctual_store::{Store, StoreOptions};
use punctual_testing::{machine, shared_folder, shared_machine, wait_ok, wait_until};
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

/// Report of a run around `program`, which a thread of its own carries out once a runtime listens. The run ends once
/// the program has, and its jobs are counted: `reached` of the figures of all tasks.
fn report_of(
    folder: &std::path::Path,
    tasks: Vec<ReportedTask>,
    program: impl FnOnce() + Send,
    reached: impl Fn(&[TaskReport]) -> bool,
) -> RunReport {
    let listener = Listener::start(folder).unwrap();
    let store = Store::open(Memory::default(), LinuxOs, StoreOptions::default()).unwrap();
    let mut runtime = RuntimeBuilder::here(Arc::new(store)).unwrap();
    runtime.reported(listener, tasks);
    let goal = Goal {
        tasks: TaskGoal::default(),
        drr: 0.5,
        min_fresh: Share::ZERO,
    };
    let options = runtime.options("reported", goal, None);
    let runtime = runtime.start(options).unwrap();
    std::thread::scope(|scope| drop(scope.spawn(program)));
    wait_ok("the reported jobs are counted", || {
        let tasks = runtime.figures().unwrap().tasks;
        if reached(&tasks) { Ok(()) } else { Err(tasks) }
    });
    runtime.stop().unwrap().report
}

#[test]
fn each_job_counts_once_and_is_late_by_the_release_that_its_program_states() {
    let _machine = shared_machine();
    let folder = shared_folder();
    let tasks = ["control", "backup", "absent"].map(task);
    let program = || {
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
    };
    let report = report_of(folder.path(), tasks.to_vec(), program, |tasks| {
        (tasks[0].jobs, tasks[1].jobs) == (51, 1)
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
    ] {
        assert!(notes.contains(said), "{notes}");
    }
}

#[test]
fn a_reporter_that_is_closed_is_noted_while_the_run_goes_on() {
    let _machine = shared_machine();
    let folder = shared_folder();
    let listener = Listener::start(folder.path()).unwrap();
    let store = Store::open(Memory::default(), LinuxOs, StoreOptions::default()).unwrap();
    let mut runtime = RuntimeBuilder::here(Arc::new(store)).unwrap();
    runtime.reported(listener, vec![task("camera")]);
    JobReporter::open_in(folder.path(), "camera").unwrap().job();
    let goal = Goal {
        tasks: TaskGoal::default(),
        drr: 0.5,
        min_fresh: Share::ZERO,
    };
    let options = runtime.options("notes", goal, Nanos::from_secs(60));
    let (mut notes, mut again) = (Vec::new(), None);
    runtime
        .run(options, &mut |progress| {
            if let Progress::Note(note) = progress {
                notes.push(note.to_owned());
                if notes.len() == 2 {
                    return ControlFlow::Break(());
                }
                let mut reporter = JobReporter::open_in(folder.path(), "camera").unwrap();
                drop(reporter.job());
                again = Some(reporter);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    let process = std::process::id();
    assert_eq!(
        notes,
        [
            "camera: 1 of 1 reporting threads ended".to_owned(),
            format!("camera: process {process} reports it now")
        ]
    );
}

#[test]
fn a_program_that_ends_within_a_job_leaves_a_failed_one() {
    let _machine = shared_machine();
    let folder = shared_folder();
    let program = || {
        let mut closed = JobReporter::open_in(folder.path(), "closed").unwrap();
        closed.job();
        drop(closed);
        let mut control = JobReporter::open_in(folder.path(), "control").unwrap();
        control.job();
        control.begin();
        std::mem::forget(control);
    };
    // The check that finds the job finds the closed reporter as well.
    let tasks = ["control", "closed"].map(task);
    let report = report_of(folder.path(), tasks.to_vec(), program, |tasks| tasks[0].failed == 1);
    let task = &report.tasks[0];
    assert_eq!((task.jobs, task.late, task.failed), (1, 0, 1), "{task:?}");
    assert!(
        task.first_failure
            .as_ref()
            .is_some_and(|first| first.contains("ended within the job"))
    );
    let notes = &report.summary.notes;
    for said in ["control: 1 of 1 reporting threads", "closed: 1 of 1 reporting threads"] {
        assert!(notes.iter().any(|note| note.contains(said)), "{notes:?}");
    }
}

#[test]
fn releases_behind_a_job_that_hangs_are_late_also_if_its_thread_ends() {
    let _machine = shared_machine();
    for dies in [false, true] {
        let folder = shared_folder();
        let every = ReportedTask {
            period: Some(Nanos::from_secs(20)),
            ..task("control")
        };
        let (held, hold) = std::sync::mpsc::channel::<()>();
        let path = folder.path().to_owned();
        let program = move || {
            let hangs = std::thread::spawn(move || {
                let mut control = JobReporter::open_in(&path, "control").unwrap();
                control.job();
                // Late for 60 s: so are three releases behind it, and no other for nearly 20 s.
                control.begin_released(LinuxOs.now() - DEADLINE * 2);
                while !dies && hold.recv().is_ok() {}
                std::mem::forget(control);
            });
            if dies {
                hangs.join().unwrap();
            }
        };
        let counted = if dies { (3, 1) } else { (4, 0) };
        let report = report_of(folder.path(), vec![every], program, |tasks| {
            (tasks[0].late, tasks[0].failed) == counted
        });
        drop(held);
        let task = &report.tasks[0];
        assert_eq!((task.late, task.failed), counted, "{task:?}");
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
    let program = || {
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
    };
    let report = report_of(folder.path(), tasks.to_vec(), program, |_| true);
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
