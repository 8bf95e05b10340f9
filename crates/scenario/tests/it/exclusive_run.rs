//! Exclusive tasks on this machine, for real: several share the last core, one that does not fit runs all the same, and
//! no task works while the core is lent. Other programs here are left where they are, by name; nothing depends on how
//! fast the machine is.
#![cfg(target_os = "linux")]

use crate::common;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::request;
use punctual_engines::Memory;
use punctual_os::LinuxOs;
use punctual_platform::Neighbours;
use punctual_platform::linux::{LinuxMachine, LinuxOptions};
use punctual_runtime::linux::RuntimeBuilder;
use punctual_runtime::report::{Progress, Protection, RunReport};
use punctual_scenario::PlatformChoice;
use punctual_store::{Store, StoreOptions};
use punctual_testing::{WAIT_MAX, machine};
use punctual_units::Nanos;
use punctual_workload::{Arrival, Class, ControllerKind};

const MS: Nanos = Nanos::from_millis(1);

/// The names of all programs here but those of this one's threads, which are placed one by one.
fn all_programs() -> Vec<String> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("comm")).ok();
    entries
        .filter_map(name)
        .map(|name| name.trim_end().to_owned())
        .collect()
}

/// Samples before the end of a run: one and a half seconds.
const SAMPLES_MIN: u32 = 15;

/// Exclusive tasks, each with a period in milliseconds and what the caller says of its execution, until each has run;
/// how often each ran.
fn run(tasks: &[(&str, u64, Option<Nanos>)]) -> (RunReport, Vec<u64>) {
    let _machine = machine();
    let machine = LinuxMachine::open(LinuxOptions::default()).unwrap();
    let store = Arc::new(Store::open(Memory::default(), LinuxOs, StoreOptions::default()).unwrap());
    let ran: Vec<Arc<AtomicU64>> = tasks.iter().map(|_| Arc::default()).collect();
    let mut runtime = RuntimeBuilder::new(machine, store);
    runtime.neighbours(Neighbours {
        spare: all_programs(),
        ..Neighbours::default()
    });
    // The core is lent to it.
    let pauses = Arrival::AfterCompletion {
        pause_min: MS,
        pause_max: MS,
    };
    runtime.task("rest", Class::BestEffort, pauses, |job| {
        job.read(|store| store.get(b"nothing").map(drop))
    });
    for ((name, period, execution), ran) in tasks.iter().zip(&ran) {
        let period = MS * *period;
        let (class, arrival) = (Class::Exclusive { deadline: period }, Arrival::Periodic { period });
        let ran = Arc::clone(ran);
        runtime.task(*name, class, arrival, move |job| {
            ran.fetch_add(1, Ordering::Relaxed);
            job.read(|store| store.get(b"nothing").map(drop))
        });
        if let Some(execution) = execution {
            runtime.takes_at_most(*execution);
        }
    }
    let goal = request(PlatformChoice::Linux, ControllerKind::Open, 1).scenario.goal;
    let options = runtime.options("exclusive", goal, Nanos::from_secs(WAIT_MAX.as_secs()));
    let mut samples = 0;
    let mut watch = |progress: Progress<'_>| {
        samples += u32::from(matches!(progress, Progress::Sample(_)));
        if samples >= SAMPLES_MIN && ran.iter().all(|jobs| jobs.load(Ordering::Relaxed) > 0) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let report = runtime.run(options, &mut watch).unwrap().report;
    (report, ran.iter().map(|ran| ran.load(Ordering::Relaxed)).collect())
}

/// What the report says of a task's seat; `None` where this machine gave no core, with the reason printed.
fn seats(report: &RunReport) -> Option<Vec<&Protection>> {
    let told = &report.header.protection;
    let claimed = |it: &&Protection| {
        it.refused
            .as_ref()
            .is_some_and(|refusal| refusal.why.contains("claims core"))
    };
    let none = told
        .iter()
        .find(|it| it.what.starts_with("a core of its own") || claimed(it));
    if let Some(none) = none {
        eprintln!("skipped: {:?}", none.refused);
        assert!(none.refused.is_some());
        return None;
    }
    let seat = |it: &&Protection| it.what.contains("admitted to core") || it.what.contains("on a core of its own or");
    Some(told.iter().filter(seat).collect())
}

#[test]
fn tasks_that_fit_share_a_core_and_one_that_does_not_runs_as_a_real_time_one() {
    // Each job is admitted with the time to wake up as measured, which a busy machine makes milliseconds.
    let tasks = [
        ("steer", 100, Some(MS * 2)),
        ("see", 250, Some(MS * 5)),
        ("dream", 250, Some(MS * 300)),
    ];
    let (report, ran) = run(&tasks);
    assert!(
        ran.iter().all(|jobs| *jobs > 0),
        "a refused task runs all the same: {ran:?}"
    );
    let Some(seats) = seats(&report) else { return };
    eprintln!("{seats:#?}");
    let refused: Vec<bool> = seats.iter().map(|seat| seat.refused.is_some()).collect();
    assert_eq!(refused.iter().filter(|refused| **refused).count(), 1);
    let dream = seats.iter().find(|seat| seat.what.starts_with("dream")).unwrap();
    assert!(dream.refused.as_ref().unwrap().why.contains("whole core"), "{dream:?}");
    assert!(
        seats
            .iter()
            .any(|seat| seat.what.starts_with("steer: admitted") && seat.what.contains("beside 1 other"))
    );
    let lent = report
        .header
        .protection
        .iter()
        .find(|it| it.what.contains("lent while idle"));
    assert!(
        lent.is_some_and(|it| it.refused.is_none()),
        "{:?}",
        report.header.protection
    );
}

#[test]
fn a_task_of_which_nothing_is_known_has_its_core_alone() {
    let (report, ran) = run(&[("steer", 20, None)]);
    assert!(ran[0] > 0);
    let Some(seats) = seats(&report) else { return };
    assert!(
        seats[0].what.contains("alone, ") && seats[0].what.contains("execution time"),
        "{seats:?}"
    );
    assert_eq!(seats[0].refused, None);
}
