//! Threads that starve behind a real-time thread of another process.

use std::process::Command;

use punctual_os::Scheduling;
use punctual_platform::Refusal;
use punctual_platform::linux::starvation::{Relief, StarvationGuard, filled_cores};
use punctual_platform::linux::thread::{Tid, allowed_cores, pin, pin_thread, real_time, set_scheduling};
use punctual_testing::{CHILD_MAX, TestChild, machine, start, wait_until};
use punctual_units::CoreId;

const HOG: u8 = 60;

/// Another process that fills `core` in real time, and its number.
fn hog(core: CoreId) -> Result<(TestChild, i32), Refusal> {
    let child = start(Command::new("sh").args(["-c", "while :; do :; done"]), CHILD_MAX).unwrap();
    let number = child.id() as i32;
    pin_thread(Tid(number), &[core])?;
    set_scheduling(Tid(number), Scheduling::Fifo(HOG))?;
    Ok((child, number))
}

#[test]
fn a_core_that_another_process_fills_is_found_and_the_process_named() {
    let _machine = machine();
    let [_, .., core] = allowed_cores()[..] else {
        return eprintln!("skipped: one core");
    };
    let (_hog, number) = match hog(core) {
        Ok(hog) => hog,
        Err(refusal) => return eprintln!("skipped: {refusal}"),
    };
    let named = format!("sh (process {number}, SCHED_FIFO {HOG}) fills it");
    let filled = |priority| {
        let found = filled_cores(&allowed_cores(), priority)
            .into_iter()
            .find(|(it, _)| *it == core);
        found.map(|(_, refusal)| refusal.why)
    };
    // Other real-time threads, such as the kernel's, may have the core at one instant, and the host at another.
    wait_until("the core is found, and the thread named", || {
        filled(HOG - 1).as_ref() == Some(&named)
    });
    wait_until("a higher priority has the core", || filled(HOG + 1).is_none());
}

#[test]
fn a_thread_that_starves_is_relieved_and_one_that_runs_is_not() {
    let _machine = machine();
    let mut own = StarvationGuard::new(Tid::current());
    assert_eq!((own.look(), own.look()), (None, None));
    let cores = allowed_cores();
    let [_, .., core] = cores[..] else {
        return eprintln!("skipped: one core");
    };
    let _hog = match hog(core) {
        Ok(hog) => hog,
        Err(refusal) => return eprintln!("skipped: {refusal}"),
    };
    let (tell, told) = std::sync::mpsc::channel();
    let starving = std::thread::spawn(move || {
        real_time(HOG - 1).unwrap();
        tell.send(Tid::current()).unwrap();
        pin(core).unwrap();
        allowed_cores()
    });
    let mut guard = StarvationGuard::new(told.recv().unwrap());
    let mut reliefs = Vec::new();
    wait_until("it is relieved", || {
        reliefs.extend(guard.look());
        starving.is_finished()
    });
    assert_eq!(starving.join().unwrap(), cores);
    assert_eq!(reliefs.first(), Some(&Relief::AnyCore));
}
