//! The runtime as a service on this machine: tasks and readings come and go from any thread, and what a closure does
//! wrong ends at most its own task. Nothing here depends on how fast the machine is; every wait has a bound.
#![cfg(target_os = "linux")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use punctual_engines::Memory;
use punctual_os::LinuxOs;
use punctual_runtime::linux::{Bytes, LearningState, Runtime, RuntimeFigures, RuntimeOptions, SensorError, TaskEnd};
use punctual_runtime::{Learning, RuntimeError};
use punctual_store::temporal::ObjectSpec;
use punctual_store::updates::Receipt;
use punctual_store::{Freshness, Store, StoreOptions};
use punctual_testing::{WAIT_MAX, machine, wait_ok, wait_until};
use punctual_units::{Nanos, Share};

type Here = Runtime<Memory>;

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn store(objects: &[&str]) -> Arc<Store<Memory, LinuxOs>> {
    let object = |key: &&str| ObjectSpec {
        key: key.as_bytes().into(),
        avi: ms(1000),
        period: ms(100),
        max_len: 16,
        history: 1,
    };
    let options = StoreOptions {
        objects: objects.iter().map(object).collect(),
        ..StoreOptions::default()
    };
    Arc::new(Store::open(Memory::default(), LinuxOs, options).unwrap())
}

/// Asks for figures until they are as told.
fn until(runtime: &Here, what: &str, reached: impl Fn(&RuntimeFigures) -> bool) -> RuntimeFigures {
    wait_ok(what, || {
        let figures = runtime.figures().unwrap();
        if reached(&figures) {
            Ok(figures)
        } else {
            Err(Box::new(figures))
        }
    })
}

fn jobs(figures: &RuntimeFigures, task: &str) -> u64 {
    figures.task(task).map_or(0, |task| task.jobs + task.failed)
}

#[test]
fn tasks_come_and_go_from_any_thread_while_others_run() {
    let runtime = Runtime::start(store(&[])).unwrap();
    let steady = runtime.task("steady").every(ms(5)).run(|_| ()).unwrap();
    let adders: Vec<_> = (0..4)
        .map(|n| {
            let runtime = runtime.clone();
            std::thread::spawn(move || {
                let name = format!("guest {n}");
                let ran = Arc::new(AtomicU64::new(0));
                let count = Arc::clone(&ran);
                let task = runtime
                    .task(&name)
                    .every(ms(3 + n))
                    .due_in(ms(3))
                    .late("5 %")
                    .run(move |_| {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                let task = task.unwrap();
                until(&runtime, &name, |figures| jobs(figures, &name) >= 3);
                task.stop();
                assert_eq!(task.wait(WAIT_MAX.into()), Some(TaskEnd::Stopped));
                // What the closure held was given back before.
                assert_eq!(Arc::strong_count(&ran), 1);
                (name, ran.load(Ordering::Relaxed))
            })
        })
        .collect();
    let ran: Vec<(String, u64)> = adders.into_iter().map(|adder| adder.join().unwrap()).collect();
    let before = jobs(&runtime.figures().unwrap(), "steady");
    until(&runtime, "steady goes on", |figures| jobs(figures, "steady") > before);
    assert_eq!(steady.ended(), None);
    let figures = runtime.figures().unwrap();
    let report = runtime.stop().unwrap().report;
    for (name, ran) in ran {
        let told = figures.task(&name).unwrap();
        assert_eq!((told.ended.as_deref(), told.goal_late), (Some("stopped"), Some(0.05)));
        let told = report.tasks.iter().find(|task| task.name == name).unwrap();
        assert_eq!(
            told.jobs - told.skipped - told.overdue,
            ran,
            "{name}: every job is in the report, and none after the end"
        );
    }
    assert_eq!(steady.wait(WAIT_MAX.into()), Some(TaskEnd::Stopped));
    assert!(matches!(runtime.figures(), Err(RuntimeError::Stopped)));
    assert!(
        matches!(runtime.stop(), Err(RuntimeError::Stopped)),
        "the report is given once"
    );
}

/// Protections are listed by name; a task may have that of a thread of the runtime, and its own thread has it, too.
#[test]
fn a_task_called_control_shares_no_row_with_the_control_thread() {
    let runtime = Runtime::start(store(&[])).unwrap();
    let named = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&named);
    let task = runtime.task("control").every(ms(5)).run(move |_| {
        let is_so = std::thread::current().name() == Some("control");
        seen.fetch_add(u64::from(is_so), Ordering::Relaxed);
    });
    // A release that is overdue is counted before its job has run.
    wait_until("the task's thread has its name", || named.load(Ordering::Relaxed) > 0);
    task.unwrap().stop();
    let report = runtime.stop().unwrap().report;
    let rows = report.header.protection.iter().map(|it| it.what.clone());
    let (of_task, others): (Vec<_>, Vec<_>) = rows.partition(|what| what.starts_with("control: "));
    let on_a_core = |rows: &[String]| rows.iter().filter(|what| what.contains(": on core ")).count();
    assert_eq!(on_a_core(&of_task), 1, "{of_task:?}");
    let of_thread = |what: &String| what.starts_with("thread control: on core ");
    assert!(others.iter().any(of_thread), "{others:?}");
}

#[test]
fn a_panic_ends_its_task_only_and_is_told() {
    let runtime = Runtime::start(store(&[])).unwrap();
    runtime.task("steady").every(ms(5)).run(|_| ()).unwrap();
    let wrong = runtime.task("wrong").every(ms(5)).run(|job| {
        job.write(|store| store.put(b"half", b"done"))?;
        assert!(job.number() < 2, "the wheel came off");
        Ok::<(), punctual_store::StoreError>(())
    });
    let ended = wrong.unwrap().wait(WAIT_MAX.into());
    assert_eq!(ended, Some(TaskEnd::Panicked("the wheel came off".into())));
    let before = jobs(&runtime.figures().unwrap(), "steady");
    let figures = until(&runtime, "steady goes on", |figures| {
        jobs(figures, "steady") > before + 3
    });
    let told = figures.task("wrong").unwrap();
    assert_eq!((told.jobs - told.skipped - told.overdue, told.failed), (2, 1));
    assert_eq!(told.first_failure.as_deref(), Some("panicked: the wheel came off"));
    // The name is free again.
    runtime.task("wrong").every(ms(5)).run(|_| ()).unwrap();
    let notes = runtime.stop().unwrap().report.summary.notes;
    assert!(notes.iter().any(|note| note.contains("wrong was ended")), "{notes:?}");
}

#[derive(Debug)]
struct Flat;

impl fmt::Display for Flat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the battery is flat")
    }
}

impl std::error::Error for Flat {}

#[test]
fn a_job_may_fail_with_any_error_and_is_not_counted_as_early() {
    let runtime = Runtime::start(store(&[])).unwrap();
    let failing = runtime.task("drive").every(ms(2)).run(|job| match job.number() % 2 {
        0 => Ok(()),
        _ => Err(Flat),
    });
    let failing = failing.unwrap();
    until(&runtime, "jobs fail", |figures| {
        figures.task("drive").is_some_and(|drive| drive.failed >= 3)
    });
    failing.stop();
    assert!(failing.wait(WAIT_MAX.into()).is_some());
    let report = runtime.stop().unwrap().report;
    let drive = &report.tasks[0];
    assert_eq!(drive.first_failure.as_deref(), Some("the battery is flat"));
    assert!(
        drive.failed.abs_diff(drive.jobs - drive.skipped - drive.overdue) <= 1,
        "every other job: {drive:?}"
    );
    let start = format!("drive: {} jobs failed", drive.failed);
    let notes = &report.summary.notes;
    assert!(
        notes
            .iter()
            .any(|note| note.starts_with(&start) && note.ends_with("the battery is flat")),
        "{notes:?}"
    );
}

#[test]
fn readings_of_live_sensors_are_numbered_here_and_each_is_accounted_for() {
    const EACH: u64 = 2000;
    let store = store(&["battery", "lidar"]);
    let runtime = Runtime::start(Arc::clone(&store)).unwrap();
    let read = runtime
        .task("look")
        .every(ms(2))
        .run(|job| job.read(|store| store.get(b"battery").map(drop)));
    read.unwrap();
    let (battery, lidar) = (runtime.sensor("battery").unwrap(), runtime.sensor("lidar").unwrap());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (battery, lidar) = (battery.clone(), lidar.clone());
            scope.spawn(move || {
                for n in 0..EACH {
                    battery.offer(n as f64).unwrap();
                    lidar.offer(Bytes(b"far")).unwrap();
                }
            });
        }
    });
    assert!(
        matches!(battery.offer(Bytes([0; 17])), Err(SensorError::Store(_))),
        "longer than agreed"
    );
    lidar.stop();
    assert!(matches!(lidar.offer(1.0), Err(SensorError::Stopped)));
    assert!(matches!(runtime.sensor("sonar"), Err(SensorError::Unknown { .. })));
    let counts = runtime.figures().unwrap().updates;
    assert_eq!(counts.offered, 6 * EACH);
    runtime.stop().unwrap();
    assert!(matches!(battery.offer(1.0), Err(SensorError::Stopped)));
    let reconciled = store.reconcile();
    assert!(reconciled.balances(), "{reconciled:?}");
    let counts = store.counts();
    assert_eq!(
        counts.installed + counts.shed + counts.superseded,
        6 * EACH,
        "none is under way: {counts:?}"
    );
    assert!(matches!(
        store.get_fresh(b"lidar", ms(600_000)),
        Ok(Freshness::Fresh { .. })
    ));
}

/// The knob is the store's: what the loop sets there sheds live readings, too.
#[test]
fn live_readings_are_shed_by_the_knob() {
    let store = store(&["battery"]);
    let runtime = Runtime::start(Arc::clone(&store)).unwrap();
    let battery = runtime.sensor("battery").unwrap();
    let mut offered = 0_u32;
    // The loop, which only looks on here, sets the knob back to 1 ten times per second.
    wait_until("a reading is shed", || {
        store.set_admitted_share(Share::ZERO);
        let verdict = battery.offer(f64::from(offered)).unwrap();
        offered += 1;
        verdict != Receipt::Admitted
    });
    until(&runtime, "the loop sets the knob", |_| {
        store.admitted_share() == Share::ONE
    });
    drop(runtime);
    assert!(store.reconcile().balances());
    // A later runtime goes on with the numbers.
    let runtime = Runtime::start(Arc::clone(&store)).unwrap();
    runtime.sensor("battery").unwrap().offer(2.0).unwrap();
    drop(runtime);
    let last = u64::from(offered) + 1;
    assert_eq!(store.counts().offered, last);
    assert_eq!(
        store.sample(store.object(b"battery").unwrap()).unwrap().unwrap().seq.0,
        last
    );
}

#[test]
fn it_ends_by_its_time_with_its_last_handle_or_when_asked_in_a_job() {
    let options = RuntimeOptions::new(store(&[])).run_for(ms(50));
    let runtime = Runtime::start(options).unwrap();
    assert!(runtime.wait().is_ok());

    let runtime = Runtime::start(store(&[])).unwrap();
    let task = runtime.task("orphan").every(ms(5)).run(|_| ()).unwrap();
    drop(runtime);
    // The drop has waited for the machine to be put back, and so for the threads.
    assert_eq!(task.ended(), Some(TaskEnd::Stopped));

    let runtime = Runtime::start(store(&[])).unwrap();
    let handle = runtime.clone();
    let (tell, told) = std::sync::mpsc::channel();
    let stopping = runtime.task("last").every(ms(5)).run(move |_| {
        let _ = tell.send(handle.stop().map(drop));
    });
    stopping.unwrap();
    assert!(matches!(told.recv_timeout(WAIT_MAX), Ok(Err(RuntimeError::Within))));
    assert!(runtime.wait().is_ok(), "another thread gets the report");

    // The last handle goes with a closure, in a thread of the runtime.
    let runtime = Runtime::start(store(&[])).unwrap();
    let handle = runtime.clone();
    let task = runtime
        .task("keeps it")
        .every(ms(5))
        .run(move |_| assert!(handle.figures().is_err() || handle.store().objects() == 0));
    let task = task.unwrap();
    drop(runtime);
    assert_eq!(task.ended(), None, "the closure's handle keeps it running");
    task.stop();
    assert_eq!(task.wait(WAIT_MAX.into()), Some(TaskEnd::Stopped));
}

#[test]
fn what_is_said_wrongly_is_refused_with_what_to_do() {
    let runtime = Runtime::start(store(&[])).unwrap();
    let why = |result: Result<_, RuntimeError>| match result {
        Ok(_) => panic!("taken"),
        Err(error) => error.to_string(),
    };
    assert!(why(runtime.task("a").run(|_| ())).contains("every(..)"));
    assert!(why(runtime.task("a").every(ms(1)).late("1").run(|_| ())).starts_with("a: late(\"1\"): "));
    assert!(why(runtime.task("a").every(Nanos::ZERO).run(|_| ())).contains("above 0"));
    assert!(why(runtime.task("a").every(ms(1)).due_in(ms(1)).best_effort().run(|_| ())).contains("no deadline"));
    assert!(
        why(runtime
            .task("a")
            .every(ms(5))
            .on_core(punctual_units::CoreId(4000))
            .run(|_| ()))
        .contains("core 4000")
    );
    runtime.task("a").every(ms(5)).run(|_| ()).unwrap();
    assert!(why(runtime.task("a").every(ms(5)).run(|_| ())).contains("runs already"));
    let narrow = Learning {
        admitted_min: Share::ONE,
        ..Learning::default()
    };
    assert!(matches!(runtime.learn(narrow), Err(RuntimeError::Learning { .. })));
}

/// Tasks that do not read sensors do not answer to the admitted share: nothing can be learnt, and the loop finds
/// without a model that nothing need be shed.
#[test]
fn where_nothing_can_be_learnt_it_says_so_and_steps() {
    let learning = Learning {
        period: ms(5),
        hold: 1,
        ..Learning::default()
    };
    let options = RuntimeOptions::new(store(&["battery"])).learn(learning);
    let runtime = Runtime::start(options).unwrap();
    // No delay of a busy machine makes the jobs late for long, so that all stays admitted.
    let steady = runtime.task("steady").every(ms(2)).due_in(ms(200));
    steady.run(|_| ()).unwrap();
    assert!(matches!(
        runtime.learn(Learning::default()),
        Err(RuntimeError::Learning { .. })
    ));
    let figures = until(&runtime, "learning ends", |figures| {
        figures.learnt != LearningState::UnderWay
    });
    // A busy machine may make jobs answer to anything.
    eprintln!("{:?}", figures.learnt);
    if let LearningState::Failed(why) = figures.learnt {
        // The figures that say so may be of the last step of learning.
        until(&runtime, "all is admitted", |figures| figures.admitted == Share::ONE);
        let notes = runtime.stop().unwrap().report.summary.notes;
        assert!(
            notes
                .iter()
                .any(|note| note.contains("nothing was learnt") && note.contains(&why)),
            "{notes:?}"
        );
    }
}

/// A task that handles each reading answers to the admitted share: a model of it is learnt while it runs, and the law
/// turns the knob. The task sleeps in place of computing, so that other programs take little from the record; a record
/// that they spoil is not judged.
#[test]
fn what_answers_to_the_knob_is_learnt_in_place_and_then_controlled() {
    let _machine = machine();
    let learning = Learning {
        period: ms(50),
        // A level lasts longer than a job and the one before it, which it finds under way.
        hold: 4,
        ..Learning::default()
    };
    let runtime = Runtime::start(RuntimeOptions::new(store(&["camera"])).learn(learning)).unwrap();
    // Offered and admitted so far: the share between two jobs does not depend on how fast the offering thread is.
    let seen = [const { AtomicU64::new(0) }; 2];
    let look = runtime.task("look").every(ms(25)).late("1 %");
    look.run(move |job| {
        let counts = job.store().counts();
        let [offered, admitted] = [(0, counts.offered), (1, counts.admitted)]
            .map(|(which, count)| count - seen[which].swap(count, Ordering::Relaxed));
        std::thread::sleep(ms(22).scaled(admitted as f64 / offered.max(1) as f64).into());
    })
    .unwrap();
    let camera = runtime.sensor("camera").unwrap();
    let offering = std::thread::spawn(move || {
        while camera.offer(0.0).is_ok() {
            // Ten readings between two jobs.
            std::thread::sleep(Duration::from_micros(2500));
        }
    });
    let figures = until(&runtime, "learning ends", |figures| {
        figures.learnt != LearningState::UnderWay
    });
    eprintln!("{:?}", figures.learnt);
    if let LearningState::Controls(_) = figures.learnt {
        // With all readings jobs end close to their deadline: a law that leaves room to it lets fewer in.
        until(&runtime, "the law turns the knob", |figures| {
            figures.admitted < Share::ONE
        });
    }
    runtime.stop().unwrap();
    offering.join().unwrap();
}
