//! Tasks that events release, on this machine. Nothing here depends on how fast the machine is; every wait has a bound.
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use punctual_engines::Memory;
use punctual_os::LinuxOs;
use punctual_platform::linux::events::{Bell, EventSource};
use punctual_runtime::RuntimeError;
use punctual_runtime::linux::{Runtime, RuntimeBuilder, TaskEnd};
use punctual_store::{Store, StoreOptions};
use punctual_testing::{WAIT_MAX, machine, wait_ok, wait_until};
use punctual_units::{Clock, Nanos};
use punctual_workload::{Arrival, Class};

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn store() -> Arc<Store<Memory, LinuxOs>> {
    Arc::new(Store::open(Memory::default(), LinuxOs, StoreOptions::default()).unwrap())
}

/// Waits until `ended` jobs of a task are counted as ended.
fn wait_counted(runtime: &Runtime<Memory>, task: &str, ended: impl Fn() -> u64) {
    wait_ok("all jobs are counted", || {
        let figures = runtime.figures().unwrap();
        let counted = figures.task(task).map(|task| task.jobs - task.skipped - task.overdue);
        if counted == Some(ended()) { Ok(()) } else { Err(counted) }
    });
}

#[test]
fn every_event_is_served_and_those_without_a_job_of_their_own_are_told() {
    let runtime = Runtime::start(store()).unwrap();
    let device = Bell::new().unwrap();
    let (served, jobs) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (serve, run) = (Arc::clone(&served), Arc::clone(&jobs));
    let task = runtime
        .task("codec")
        .on_event(&device)
        .at_most_every(ms(1))
        .due_in(ms(1));
    let task = task.run(move |job| {
        assert_eq!(job.number(), run.fetch_add(1, Ordering::Relaxed));
        serve.fetch_add(job.events(), Ordering::Relaxed);
    });
    let task = task.unwrap();
    // Some bursts come together, others once what came before is served.
    let mut rung = 0;
    for burst in 0..20 {
        (0..=burst % 3).for_each(|_| device.ring());
        rung += burst % 3 + 1;
        if burst % 2 == 1 {
            wait_until("all events are served", || served.load(Ordering::Relaxed) == rung);
        }
    }
    assert_eq!(task.ended(), None);
    // The control thread counts a job after the job has ended.
    wait_counted(&runtime, "codec", || jobs.load(Ordering::Relaxed));
    let report = runtime.stop().unwrap().report;
    let codec = &report.tasks[0];
    assert_eq!(codec.jobs, jobs.load(Ordering::Relaxed));
    assert_eq!((codec.jobs + codec.merged, codec.skipped, codec.failed), (rung, 0, 0));
}

#[test]
fn a_task_that_waits_for_an_event_is_woken_by_its_stop_and_by_the_end_of_the_run() {
    let runtime = Runtime::start(store()).unwrap();
    let device = Bell::new().unwrap();
    let waits = |name: &str| {
        let task = runtime.task(name).on_event(&device).at_most_every(ms(1)).best_effort();
        task.run(|job| assert_eq!(job.events(), 0, "no event came")).unwrap()
    };
    let (one, other) = (waits("one"), waits("other"));
    one.stop();
    assert_eq!(one.wait(WAIT_MAX.into()), Some(TaskEnd::Stopped));
    assert_eq!(other.ended(), None);
    runtime.stop().unwrap();
    assert_eq!(other.wait(WAIT_MAX.into()), Some(TaskEnd::Stopped));
}

#[test]
fn a_source_that_is_closed_ends_its_task_with_a_word() {
    let runtime = Runtime::start(store()).unwrap();
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let heard = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&heard);
    let task = runtime.task("socket").on_event(&here).at_most_every(ms(1));
    let task = task.run(move |_| {
        let mut byte = [0];
        here.read_exact(&mut byte).map(|()| {
            count.fetch_add(1, Ordering::Relaxed);
        })
    });
    let task = task.unwrap();
    there.write_all(b"abc").unwrap();
    drop(there);
    let closed = TaskEnd::SourceClosed("the other side was closed".into());
    assert_eq!(task.wait(WAIT_MAX.into()), Some(closed.clone()));
    assert_eq!(heard.load(Ordering::Relaxed), 3, "what came before the end is served");
    let report = runtime.stop().unwrap().report;
    assert_eq!(report.tasks[0].ended, Some(closed.to_string()));
    let notes = &report.summary.notes;
    assert!(notes.iter().any(|note| note.contains("no more events")), "{notes:?}");
}

#[test]
fn the_instant_that_a_job_tells_counts() {
    let runtime = Runtime::start(store()).unwrap();
    let device = Bell::new().unwrap();
    let task = runtime
        .task("late")
        .on_event(&device)
        .at_most_every(ms(1000))
        .due_in(ms(1000));
    task.run(|job| {
        let now = LinuxOs.now();
        job.happened_at(now + ms(5000));
        assert!(job.released() <= now, "no job ends before its release");
        job.happened_at(now - ms(5000));
    })
    .unwrap();
    device.ring();
    wait_counted(&runtime, "late", || 1);
    let report = runtime.stop().unwrap().report;
    let response = report.tasks[0].response_us.unwrap();
    assert!(response.max >= 5e6, "{response:?}");
    assert_eq!(report.tasks[0].late, 1);
}

#[test]
fn what_is_said_wrongly_is_refused_in_words() {
    let runtime = Runtime::start(store()).unwrap();
    let device = Bell::new().unwrap();
    let file = tempfile::tempfile().unwrap();
    let task = || runtime.task("wrong");
    let wrong = [
        (task().on_event(&device), "at_most_every"),
        (task().at_most_every(ms(1)), "on_event"),
        (task().on_event(&device).at_most_every(ms(1)).every(ms(1)), "leave out"),
        (task().on_event(&device).at_most_every(Nanos::ZERO), "above 0"),
        (task().on_event(&file).at_most_every(ms(1)), "readable at all times"),
    ];
    for (task, word) in wrong {
        match task.run(|_| ()) {
            Err(RuntimeError::Task { why, .. }) => assert!(why.contains(word), "{word}: {why}"),
            other => panic!("{word}: {other:?}"),
        }
    }
    runtime.stop().unwrap();
}

/// Where an exclusive core is available, and where not.
#[test]
fn an_exclusive_task_is_released_by_events() {
    let _machine = machine();
    let device = Bell::new().unwrap();
    let mut prepared = RuntimeBuilder::here(store()).unwrap();
    let (served, class) = (Arc::new(AtomicU64::new(0)), Class::Exclusive { deadline: ms(20) });
    let serve = Arc::clone(&served);
    let events = EventSource::of(&device).unwrap();
    prepared.task_on_event("codec", class, events, ms(20), move |job| {
        serve.fetch_add(job.events(), Ordering::Relaxed);
    });
    prepared.takes_at_most(ms(1));
    // A lendee: the core is lent from a job to the earliest next event.
    let pause = Arrival::AfterCompletion {
        pause_min: Nanos::ZERO,
        pause_max: Nanos::ZERO,
    };
    prepared.task("hog", Class::BestEffort, pause, |_| {
        let until = LinuxOs.now() + Nanos::from_micros(500);
        while LinuxOs.now() < until {}
    });
    let runtime = prepared.start(None).unwrap();
    for rung in 1..=10 {
        device.ring();
        wait_until("the event is served", || served.load(Ordering::Relaxed) == rung);
        if rung % 2 == 0 {
            // Every other event finds the core lent no more.
            std::thread::sleep(Duration::from_millis(25));
        }
    }
    wait_counted(&runtime, "codec", || 10);
    let report = runtime.stop().unwrap().report;
    assert_eq!((report.tasks[0].jobs, report.tasks[0].merged), (10, 0));
}
