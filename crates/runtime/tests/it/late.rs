//! Releases that are late although no job of theirs has ended: behind a job that hangs, and of a thread that has no
//! core. Nothing here depends on how fast the machine is.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use punctual_engines::Memory;
use punctual_os::LinuxOs;
use punctual_platform::linux::thread::{allowed_cores, current_core, pin, real_time};
use punctual_runtime::linux::Runtime;
use punctual_runtime::report::TaskReport;
use punctual_store::{Store, StoreOptions};
use punctual_testing::{SetOnDrop, machine, wait_ok, wait_until};
use punctual_units::{CoreId, Nanos};
use punctual_workload::Cause;

const PERIOD: Nanos = Nanos::from_millis(10);

fn runtime() -> Runtime<Memory> {
    let store = Store::open(Memory::default(), LinuxOs, StoreOptions::default()).unwrap();
    Runtime::start(Arc::new(store)).unwrap()
}

/// The task's figures once they are as wanted.
fn until(runtime: &Runtime<Memory>, what: &str, reached: impl Fn(&TaskReport) -> bool) -> TaskReport {
    wait_ok(what, || {
        let task = runtime.figures().unwrap().tasks.remove(0);
        if reached(&task) { Ok(task) } else { Err(Box::new(task)) }
    })
}

fn cause(task: &TaskReport, cause: Cause) -> u64 {
    let found = task.causes.iter().find(|it| it.cause == cause);
    found.map_or(0, |it| it.jobs)
}

/// Whatever states the releases are in, each late one has one cause.
fn adds_up(task: &TaskReport) {
    assert_eq!(
        task.causes.iter().map(|it| it.jobs).sum::<u64>(),
        task.late,
        "{task:#?}"
    );
    assert!(task.late <= task.jobs && task.overdue + task.skipped <= task.late);
}

#[test]
fn releases_behind_a_job_that_hangs_are_late_while_it_hangs_and_counted_once() {
    let runtime = runtime();
    let over = Arc::new(AtomicBool::new(false));
    let hangs = Arc::clone(&over);
    let task = runtime.task("hangs").every(PERIOD).run(move |job| {
        if job.number() == 3 {
            wait_until("the test ends", || hangs.load(Ordering::Relaxed));
        }
    });
    task.unwrap();
    let during = until(&runtime, "late releases behind the job", |task| {
        let has_begun = task.unfinished.as_ref().and_then(|open| open.has_begun);
        cause(task, Cause::Unfinished) >= 40 && task.skipped > 0 && has_begun == Some(true)
    });
    adds_up(&during);
    over.store(true, Ordering::Relaxed);
    let after = until(&runtime, "the jobs behind it end", |task| task.unfinished.is_none());
    // Of the releases up to then, each is counted once: jobs that ended, and skipped ones.
    assert!(after.late >= during.late && after.jobs >= during.jobs, "{after:#?}");
    adds_up(&after);
    // Some tenths of a second, so that a sample is taken that has counted these; the end takes none.
    until(&runtime, "a sample of them", |task| task.jobs >= after.jobs + 30);
    let report = runtime.stop().unwrap().report;
    let [jobs, misses] = [
        report.samples.iter().map(|sample| u64::from(sample.jobs)).sum::<u64>(),
        report
            .samples
            .iter()
            .map(|sample| u64::from(sample.misses))
            .sum::<u64>(),
    ];
    // The last sample is some jobs before the end.
    assert!(
        jobs <= report.summary.jobs && misses <= report.summary.misses,
        "{jobs}, {misses}"
    );
    assert!(misses >= during.late, "{misses}");
}

/// A run may end before the job that hangs.
#[test]
fn a_job_that_hangs_at_the_end_of_the_run_is_late_in_its_report() {
    let runtime = runtime();
    let over = Arc::new(AtomicBool::new(false));
    let hangs = Arc::clone(&over);
    let task = runtime.task("hangs").every(PERIOD).run(move |job| {
        if job.number() == 3 {
            wait_until("the test ends", || hangs.load(Ordering::Relaxed));
        }
    });
    let task = task.unwrap();
    until(&runtime, "late releases behind the job", |task| task.late >= 20);
    runtime.ask_to_stop();
    // The control thread has counted before any thread hears of the end.
    wait_until("the run counts no more", || runtime.figures().is_err());
    over.store(true, Ordering::Relaxed);
    let report = runtime.wait().unwrap().report;
    assert!(task.ended().is_some());
    let told = &report.tasks[0];
    assert!(told.late >= 20 && told.unfinished.is_some(), "{told:#?}");
    adds_up(told);
    assert_eq!(
        (report.summary.misses, report.summary.overdue),
        (told.late, told.overdue)
    );
}

#[test]
fn releases_of_a_thread_without_a_core_are_late() {
    // Between the task and the control thread, which may have the same core.
    const HOG: u8 = 85;
    static CORE: AtomicU32 = AtomicU32::new(u32::MAX);
    let _machine = machine();
    if let Err(refusal) = std::thread::spawn(|| real_time(HOG)).join().unwrap() {
        return eprintln!("skipped: {refusal}");
    }
    let runtime = runtime();
    let task = runtime.task("starves").every(PERIOD).run(|_| {
        CORE.store(current_core().map_or(u32::MAX, |core| core.0), Ordering::Relaxed);
    });
    task.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&over);
    let hog = std::thread::spawn(move || {
        wait_until("the task runs on a core", || CORE.load(Ordering::Relaxed) != u32::MAX);
        pin(CoreId(CORE.load(Ordering::Relaxed))).unwrap();
        real_time(HOG).unwrap();
        while !ends.load(Ordering::Relaxed) {}
    });
    let during = until(&runtime, "late releases of a thread that waits", |task| {
        let has_begun = task.unfinished.as_ref().and_then(|open| open.has_begun);
        cause(task, Cause::NotRun) >= 3 && has_begun == Some(false)
    });
    runtime.ask_to_stop();
    over.store(true, Ordering::Relaxed);
    hog.join().unwrap();
    adds_up(&during);
    // What was late stays late at the end of the run.
    let report = runtime.wait().unwrap().report;
    assert!(report.tasks[0].late >= during.late, "{:#?}", report.tasks[0]);
    adds_up(&report.tasks[0]);
}

/// Without the control thread nothing would be counted, and the run would have no end.
#[test]
fn a_run_goes_on_and_ends_though_threads_of_others_fill_a_core_of_it() {
    /// Above all threads of a run.
    const HOG: u8 = 97;
    let _machine = machine();
    let allowed = std::thread::spawn(|| real_time(HOG).map(|()| allowed_cores()));
    let cores = match allowed.join().unwrap() {
        Ok(cores) if cores.len() > 1 => cores,
        Ok(_) => return eprintln!("skipped: one core"),
        Err(refusal) => return eprintln!("skipped: {refusal}"),
    };
    let runtime = runtime();
    runtime.task("steers").every(PERIOD).run(|_| ()).unwrap();
    // One of them has the control thread.
    for core in cores {
        let (over, fills) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _over = SetOnDrop(&over);
            scope.spawn(|| {
                pin(core).and_then(|()| real_time(HOG)).unwrap();
                fills.store(true, Ordering::Relaxed);
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            wait_until("the core is filled", || fills.load(Ordering::Relaxed));
            wait_ok("figures", || runtime.figures().map_err(Box::new));
        });
    }
    let notes = runtime.stop().unwrap().report.summary.notes;
    let relieved = |note: &String| note.starts_with("thread control could not run on core");
    assert!(notes.iter().any(relieved), "{notes:?}");
}
