//! Threads and tasks that come later onto a core that the runtime keeps, on this machine. Where no exclusive core is to
//! be had, everything runs all the same, and it is said.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::sync::mpsc::channel;

use punctual_engines::Memory;
use punctual_os::LinuxOs;
use punctual_platform::linux::thread::{Scheduling, Tid, allowed_cores, scheduling};
use punctual_runtime::RuntimeError;
use punctual_runtime::linux::{CorePin, Runtime, RuntimeOptions};
use punctual_store::{Store, StoreOptions};
use punctual_testing::{WAIT_MAX, machine};
use punctual_units::{CoreId, Nanos};

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn runtime(keep: usize) -> Runtime<Memory> {
    let store = Store::open(Memory::default(), LinuxOs, StoreOptions::default()).unwrap();
    Runtime::start(RuntimeOptions::new(Arc::new(store)).keep_cores(keep)).unwrap()
}

fn here() -> (Vec<CoreId>, Scheduling) {
    (allowed_cores(), scheduling(Tid::current()).unwrap())
}

fn refusals(seated: &CorePin) -> String {
    let refused = seated.obtained().iter().filter_map(|told| told.refused.as_ref());
    refused
        .map(|refusal| refusal.to_string())
        .collect::<Vec<_>>()
        .join("; ")
}

#[test]
fn a_thread_is_seated_and_given_back() {
    let _machine = machine();
    let before = here();
    let runtime = runtime(1);
    // Each job is admitted with the time to wake up as measured, which a busy machine makes milliseconds.
    let audio = runtime
        .task("audio")
        .at_most_every(ms(500))
        .takes_at_most(ms(50))
        .exclusive();
    let seated = audio.seat_this_thread().unwrap();
    let kept = runtime
        .header()
        .protection
        .iter()
        .any(|told| told.what.contains("kept for tasks"));
    assert_eq!(seated.is_exclusive(), kept, "{}", refusals(&seated));
    assert_eq!(here().0, [seated.core()]);
    if !kept {
        eprintln!("skipped what needs an exclusive core: {}", refusals(&seated));
    }
    if kept {
        // As an exclusive task: the shorter its deadline the higher.
        let faster = runtime
            .task("faster")
            .every(ms(250))
            .takes_at_most(ms(50))
            .exclusive()
            .run(|_| ());
        let task = faster.unwrap();
        if let (_, Scheduling::Fifo(priority)) = here() {
            assert_eq!(priority, 79, "behind the task with the shorter deadline");
        }
        let more = runtime
            .task("more")
            .at_most_every(ms(500))
            .takes_at_most(ms(450))
            .exclusive();
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tell.send(
                    more.seat_this_thread()
                        .map(|seated| (seated.is_exclusive(), refusals(&seated))),
                )
            });
        });
        let (exclusive, why) = told.recv_timeout(WAIT_MAX).unwrap().unwrap();
        assert!(!exclusive && why.contains("whole core"), "{why}");
        task.stop();
    }
    drop(seated);
    assert_eq!(here(), before);
    runtime.stop().unwrap();
    assert_eq!(here(), before);
}

#[test]
fn without_a_kept_core_a_thread_is_seated_as_a_real_time_one_and_told() {
    let _machine = machine();
    let before = here();
    let runtime = runtime(0);
    let audio = runtime
        .task("audio")
        .at_most_every(ms(10))
        .takes_at_most(ms(1))
        .exclusive();
    let seated = audio.seat_this_thread().unwrap();
    assert!(!seated.is_exclusive());
    let why = refusals(&seated);
    assert!(why.contains("no core is kept") && why.contains("keep_cores"), "{why}");
    // The end of the runtime gives it back as well.
    runtime.stop().unwrap();
    assert_eq!(here(), before);
    drop(seated);
    assert_eq!(here(), before);
}

#[test]
fn what_is_said_wrongly_of_a_thread_is_refused_in_words() {
    let runtime = runtime(0);
    let task = || runtime.task("mine");
    let wrong = [
        (task().exclusive(), "at_most_every"),
        (task().every(ms(1)), "releases its own jobs"),
        (task().at_most_every(ms(1)).late("1 %"), "releases its own jobs"),
        (task().at_most_every(Nanos::ZERO), "above 0"),
    ];
    for (task, word) in wrong {
        match task.seat_this_thread() {
            Err(RuntimeError::Task { why, .. }) => assert!(why.contains(word), "{word}: {why}"),
            other => panic!("{word}: {other:?}"),
        }
    }
    let of_another_process = task().at_most_every(ms(1)).seat(Tid(1));
    assert!(
        matches!(&of_another_process, Err(RuntimeError::Machine(why)) if why.to_string().contains("no such thread"))
    );
    let seated = task().at_most_every(ms(1)).seat_this_thread().unwrap();
    let again = task().at_most_every(ms(1)).seat_this_thread();
    assert!(
        matches!(&again, Err(RuntimeError::Task { why, .. }) if why.contains("runs already")),
        "{again:?}"
    );
    drop(seated);
    drop(task().at_most_every(ms(1)).seat_this_thread().unwrap());
    runtime.stop().unwrap();
}
