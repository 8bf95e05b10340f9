//! Programs to profile, compiled where they are needed.

#![allow(dead_code)] // Each file that includes it uses a part of it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use punctual_profiler::{Geometry, ProfilerRun, Program, ProgramEnding};

/// The README's small caches: 16 KiB and 64 KiB, 20 ways of 64 KiB.
pub fn scaled() -> Geometry {
    let mut geometry = Geometry::FULL;
    geometry.l1.bytes = 16 << 10;
    geometry.l2 = geometry.l2.map(|mut l2| {
        l2.bytes = 64 << 10;
        l2
    });
    geometry.way_bytes = 64 << 10;
    geometry
}

pub fn search() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

/// Compiles `tests/programs/NAME.c` into `folder`; `None`, and a word of why, where there is no emulator or no
/// compiler.
pub fn compiled(name: &str, folder: &Path) -> Option<PathBuf> {
    compiled_with(&["-pthread"], name, folder)
}

/// [`compiled`], with other options of the compiler.
pub fn compiled_with(options: &[&str], name: &str, folder: &Path) -> Option<PathBuf> {
    let emulator = format!("qemu-{}", std::env::consts::ARCH);
    if Command::new(&emulator).arg("--version").output().is_err() {
        eprintln!("skipped: no {emulator} here; install qemu-user");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
        .with_extension("c");
    let program = folder.join(name);
    let compiler = Command::new("cc")
        .arg("-O2")
        .args(options)
        .arg("-o")
        .arg(&program)
        .arg(source)
        .status();
    let Ok(status) = compiler else {
        eprintln!("skipped: no C compiler here");
        return None;
    };
    assert!(status.success(), "{name}.c does not compile");
    Some(program)
}

/// Runs `program` to its end.
pub fn profiled(program: &Path, arguments: &[&str], geometry: &Geometry) -> (ProfilerRun, ProgramEnding) {
    profiled_in(&search(), program, arguments, geometry)
}

/// [`profiled`], with the emulator that is found in `emulators`.
pub fn profiled_in(
    emulators: &OsStr,
    program: &Path,
    arguments: &[&str],
    geometry: &Geometry,
) -> (ProfilerRun, ProgramEnding) {
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    let program = Program::find(OsStr::new(program), &arguments, &search()).expect("a program");
    let mut run = ProfilerRun::start(&program, geometry, emulators).expect("an emulator");
    let ending = punctual_testing::wait_for(
        || "the program's end".into(),
        || run.wait(Duration::from_secs(1)).expect("the emulator is ours"),
    );
    (run, ending)
}
