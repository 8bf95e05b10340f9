//! A program without a library around it is the same to the last digit, in each run and in each emulator.
//!
//! The emulator in `PATH` is one; `PUNCTUAL_QEMU` names folders of others, separated like those of `PATH`:
//!
//! ```sh
//! PUNCTUAL_QEMU=/opt/qemu-9/bin:/opt/qemu-10/bin cargo test -p punctual-profiler --test it emulators:: -- --nocapture
//! ```

use crate::common;
use crate::naive;
use crate::referee;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use common::{compiled_with, profiled, profiled_in, scaled, search};
use naive::{NaiveCaches, Source};
use punctual_profiler::{Emulator, Geometry, Program, ProgramEnding, Window};
use punctual_tracer::LINE_BYTES;
use referee::{Access, Trace};

fn alone(folder: &Path) -> Option<PathBuf> {
    let fixed = std::process::Command::new("setarch").args(["-R", "true"]).status();
    if !fixed.is_ok_and(|status| status.success()) {
        eprintln!("skipped: addresses of programs cannot be fixed here");
        return None;
    }
    let options = [
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-fno-stack-protector",
        "-fno-pie",
    ];
    compiled_with(&options, "alone", folder)
}

fn geometry() -> Geometry {
    Geometry {
        window: 100_000,
        ..scaled()
    }
}

/// Instructions, requests, and misses by ways.
fn totals(windows: &[Window], ways: u8) -> (u64, u64, Vec<u64>) {
    let sum = |of: &dyn Fn(&Window) -> u64| windows.iter().map(of).sum::<u64>();
    let misses = (0..ways.into()).map(|way| sum(&|window| window.misses().nth(way).expect("a way")));
    (
        sum(&|window| window.instructions),
        sum(&|window| window.requests),
        misses.collect(),
    )
}

#[test]
fn every_emulator_counts_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = alone(folder.path()) else {
        return;
    };
    let (first, ending) = profiled(&program, &[], &geometry());
    assert_eq!(ending, ProgramEnding::Finished);
    assert!(first.windows().len() > 20, "{} windows", first.windows().len());
    let others = std::env::var_os("PUNCTUAL_QEMU").unwrap_or_default();
    let folders = std::env::split_paths(&others).map(PathBuf::into_os_string);
    for emulators in std::iter::once(search()).chain(folders.filter(|folder| !folder.is_empty())) {
        let emulator = Emulator::find(&emulators).expect("an emulator");
        let (again, ending) = profiled_in(&emulators, &program, &[], &geometry());
        assert_eq!(ending, ProgramEnding::Finished, "{emulator:?}");
        assert_eq!(again.windows(), first.windows(), "{emulator:?}");
        let (instructions, requests, misses) = totals(again.windows(), geometry().ways);
        println!(
            "QEMU {}: {instructions} instructions, {requests} requests, misses {misses:?}",
            emulator.version
        );
    }
}

/// What `program` does, as the referee's plugin tells it, through lists: instructions, requests, and misses by ways.
fn by_lists(program: &Path, folder: &Path, geometry: &Geometry) -> (u64, u64, Vec<u64>) {
    let emulator = Emulator::find(&search()).expect("an emulator");
    let plugin = referee::compile(folder, referee::since_9(&emulator.version)).expect("a C compiler");
    let program = Program::find(program.as_os_str(), &[] as &[OsString], OsStr::new("")).expect("a program");
    let mut trace = Trace::start(&emulator.path, &plugin, folder, &program).expect("an emulator");
    let mut caches = NaiveCaches::new(geometry);
    let mut instructions = 0;
    while let Some(Access {
        address,
        bytes,
        instruction,
    }) = trace.next().expect("a trace")
    {
        instructions += u64::from(instruction);
        let source = if instruction {
            Source::Instructions
        } else {
            Source::Data
        };
        for line in address / LINE_BYTES..=(address + bytes - 1) / LINE_BYTES {
            caches.ask(source, &[line]);
        }
    }
    let (requests, misses) = caches.take();
    (instructions, requests, misses)
}

/// Nothing between: the same addresses, through lists that know neither blocks nor distances. They see instructions and
/// data in turns, and the profiler a block's instructions first, which may exchange two neighbours in L2.
#[test]
fn misses_are_those_of_lists_that_see_the_same_addresses() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = alone(folder.path()) else {
        return;
    };
    let (run, _) = profiled(&program, &[], &geometry());
    let ours = totals(run.windows(), geometry().ways);
    let lists = by_lists(&program, folder.path(), &geometry());
    assert_eq!(ours.0, lists.0, "instructions");
    let figures =
        |(_, requests, misses): &(u64, u64, Vec<u64>)| -> Vec<u64> { [&[*requests], misses.as_slice()].concat() };
    let close = |a: u64, b: u64| a.abs_diff(b) * 1000 <= b + 1000;
    let agree = |lists: &(u64, u64, Vec<u64>)| figures(&ours).iter().zip(figures(lists)).all(|(a, b)| close(*a, b));
    assert!(agree(&lists), "{ours:?} {lists:?}");
    // A planted fault: a sixteenth more sets.
    let mut other = geometry();
    other.way_bytes += 4096;
    let lists = by_lists(&program, folder.path(), &other);
    assert!(!agree(&lists), "other caches are not told apart");
}
