//! Windows from streams of readings, and the way through the kernel with events that it counts everywhere.

mod common;

use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use punctual_profiler::Program;
use punctual_profiler::counters::{
    CountedWindow, CountersError, Counting, Cutter, EVENTS, Events, Reading, examine, write_measured,
};

/// What happens between two readings: time, the share of it in which the group is counted (in quarters), and the true
/// counts.
#[derive(Clone, Debug)]
struct Step {
    ns: u64,
    quarters: u64,
    counts: [u64; EVENTS],
}

/// Times and counts are multiples of four, so that a group that is counted for a quarter of the time counts a quarter
/// exactly.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let counts = (0_u64..3000, 0_u64..3000, 0_u64..100, 0_u64..10);
    let step = (1_u64..1000, 0_u64..5, counts).prop_map(|(ns, quarters, (progress, cycles, requests, misses))| Step {
        ns: 4 * ns,
        quarters,
        counts: [4 * progress, 4 * cycles, 4 * requests, 4 * misses],
    });
    prop::collection::vec(step, 0..60)
}

/// Readings of a group that counts `steps` from `begin` on, as a kernel tells them: sums that go round.
fn readings(begin: u64, steps: &[Step]) -> Vec<Reading> {
    let mut reading = Reading {
        enabled_ns: begin,
        running_ns: begin,
        counts: [begin; EVENTS],
    };
    let mut all = vec![reading];
    for step in steps {
        reading.enabled_ns = reading.enabled_ns.wrapping_add(step.ns);
        reading.running_ns = reading.running_ns.wrapping_add(step.ns / 4 * step.quarters);
        for (sum, count) in reading.counts.iter_mut().zip(step.counts) {
            *sum = sum.wrapping_add(count / 4 * step.quarters);
        }
        all.push(reading);
    }
    all
}

fn cut(window: u64, readings: &[Reading]) -> Vec<CountedWindow> {
    let mut cutter = Cutter::new(window);
    readings
        .iter()
        .for_each(|reading| cutter.take(reading).expect("few windows"));
    cutter.finish().expect("counted")
}

fn sums(windows: &[CountedWindow]) -> [f64; EVENTS + 1] {
    let sum = |of: &dyn Fn(&CountedWindow) -> f64| windows.iter().map(of).sum();
    std::array::from_fn(|place| {
        sum(&|window| {
            if place < EVENTS {
                window.counts[place]
            } else {
                window.ns
            }
        })
    })
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever way readings and windows fall: nothing is lost, and every window but the last is full.
    #[test]
    fn windows_add_up_to_what_was_counted(window in 1_u64..5000, steps in steps()) {
        let always: Vec<Step> = steps.iter().map(|step| Step { quarters: 4, ..step.clone() }).collect();
        let windows = cut(window, &readings(0, &always));
        let progress: u64 = steps.iter().map(|step| step.counts[0]).sum();
        prop_assert_eq!(windows.len() as u64, progress.div_ceil(window));
        if let Some((last, full)) = windows.split_last() {
            prop_assert!(full.iter().all(|of| of.progress() == window as f64), "{:?}", full);
            prop_assert!(last.progress() <= window as f64);
            let found = sums(&windows);
            for (event, sum) in found.iter().take(EVENTS).enumerate() {
                // Counts of a rest without progress go with it.
                let counted: u64 = steps.iter().map(|step| step.counts[event]).sum();
                prop_assert!(*sum <= counted as f64 * (1.0 + 1e-9) + 1e-6);
            }
            prop_assert!(close(found[0], progress as f64));
            prop_assert!(close(found[EVENTS], steps.iter().map(|step| step.ns).sum::<u64>() as f64));
        }
    }

    /// A group that shares the counters tells of the same windows, if what it counts is alike all along.
    #[test]
    fn sharing_the_counters_changes_nothing_where_a_program_is_steady(
        shares in prop::collection::vec(0_u64..5, 1..40), last in 1_u64..5, window in 1_u64..5000
    ) {
        let like = |quarters| Step { ns: 4000, quarters, counts: [4000, 8000, 400, 40] };
        let shared: Vec<Step> = shares.iter().chain([&last]).map(|quarters| like(*quarters)).collect();
        let whole: Vec<Step> = shared.iter().map(|_| like(4)).collect();
        let (shared, whole) = (cut(window, &readings(0, &shared)), cut(window, &readings(0, &whole)));
        // A last digit may complete one window more or less.
        let (shared, whole) = (sums(&shared), sums(&whole));
        prop_assert!(shared.iter().zip(whole).all(|(a, b)| close(*a, b)), "{:?} {:?}", shared, whole);
    }

    /// Counters that go round count on.
    #[test]
    fn a_counter_that_goes_round_goes_unnoticed(steps in steps(), back in 0_u64..100_000) {
        let between = |begin: u64| -> Vec<Option<CountedWindow>> {
            let readings = readings(begin, &steps);
            readings.windows(2).map(|pair| CountedWindow::between(&pair[0], &pair[1])).collect()
        };
        prop_assert_eq!(between(0), between(u64::MAX - back));
    }
}

fn reading(ns: u64, running_ns: u64, progress: u64) -> Reading {
    Reading {
        enabled_ns: ns,
        running_ns,
        counts: [progress, 2 * progress, 0, 0],
    }
}

#[test]
fn a_reading_that_misses_a_thread_waits_for_the_next() {
    let steady = cut(1000, &[reading(4000, 4000, 4000), reading(8000, 8000, 8000)]);
    // In between a thread ended, and its counts are nowhere for a moment.
    let missed = cut(
        1000,
        &[
            reading(4000, 4000, 4000),
            reading(5000, 5000, 300),
            reading(8000, 8000, 8000),
        ],
    );
    assert_eq!(missed, steady);
}

#[test]
fn windows_between_two_readings_are_told() {
    let mut cutter = Cutter::new(1000);
    cutter.take(&reading(100, 100, 900)).expect("few windows");
    cutter.take(&reading(200, 200, 2100)).expect("few windows");
    assert_eq!(cutter.interpolated(), 1, "the first window was under way before");
    cutter.take(&reading(300, 300, 3000)).expect("few windows");
    assert_eq!((cutter.interpolated(), cutter.progress()), (1, 3000.0));
}

#[test]
fn what_was_never_counted_is_no_profile() {
    let mut cutter = Cutter::new(1000);
    cutter.take(&reading(1_000_000, 0, 0)).expect("few windows");
    assert!(matches!(cutter.finish(), Err(CountersError::NeverFree)));
    // A program that did nothing at all is another thing.
    assert_eq!(cut(1000, &[reading(0, 0, 0)]), []);
    let mut cutter = Cutter::new(1);
    let error = cutter.take(&reading(1, 1, 1 << 40)).expect_err("too many");
    assert_eq!(error.to_string(), "more than 1000000 windows; give a longer --window");
}

/// Counts `program` to its end, by processor time and what every kernel counts.
fn counted(program: &str, arguments: &[&str], window: u64) -> Vec<CountedWindow> {
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    let program = Program::find(OsStr::new(program), &arguments, &common::search()).expect("a program");
    let mut counting = Counting::start(&program, &Events::SOFTWARE, window).expect("every kernel counts these");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(120) {
        if let Some(status) = counting.wait(Duration::from_secs(1)).expect("the counters are ours") {
            assert!(status.success(), "{status}");
            return counting.windows().expect("counted");
        }
    }
    panic!("no end");
}

/// Through the real system calls; nothing is asked of how long anything takes.
#[test]
fn a_program_and_its_threads_and_children_are_counted() {
    if let Err(why) = examine(&Events::SOFTWARE) {
        eprintln!("skipped: {why}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = common::compiled("threads", folder.path()) else {
        return;
    };
    let program = program.to_str().expect("text");
    let window = 1_000_000;
    let windows = counted(program, &[], window);
    let (last, full) = windows.split_last().expect("it takes some time");
    assert!(full.iter().all(|of| of.progress() == window as f64), "{full:?}");
    assert!(last.progress() <= window as f64);
    // Each thread is the first to touch its part of the field: many pages of 4 KiB, or a huge one at least.
    let faults = |windows: &[CountedWindow]| windows.iter().map(|window| window.counts[1]).sum::<f64>();
    let nothing = counted("true", &[], window);
    assert!(
        faults(&windows) >= faults(&nothing) + 4.0,
        "{} {}",
        faults(&windows),
        faults(&nothing)
    );
    // A child of the program counts like a thread.
    let child = counted("sh", &["-c", &format!("{program}; :")], window);
    assert!(
        faults(&child) > faults(&windows),
        "{} {}",
        faults(&child),
        faults(&windows)
    );
}

#[test]
fn where_there_are_no_counters_it_is_said_what_would_help() {
    match examine(&Events::HARDWARE) {
        Ok(()) => eprintln!("this machine counts: nothing to refuse"),
        Err(error) => {
            let error = error.to_string();
            assert!(
                error.contains("perf_event_paranoid") || error.contains("PMU") || error.contains("CONFIG_PERF"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_row_is_what_its_window_says() {
    let windows = cut(1000, &[reading(500, 500, 1000), reading(1500, 1500, 1500)]);
    let mut file = Vec::new();
    write_measured(&windows, 3, 4, &mut file).expect("memory");
    let text = String::from_utf8(file).expect("text");
    let rows: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        rows,
        [
            "# kind: counted",
            "3,4,0,1,1000,2000000000,2000,0,0",
            "3,4,1,1001,1500,500000000,1000,0,0"
        ]
    );
}
