//! Scenario files: read and checked, or refused with one line for each problem.
#![no_main]

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/cli/src/bounded.rs"]
mod bounded;
#[path = "../../crates/cli/src/builtin.rs"]
mod builtin;
#[path = "../../crates/cli/src/failure.rs"]
mod failure;
#[path = "../../crates/cli/src/scenario/mod.rs"]
mod scenario;
#[path = "../../crates/cli/src/size.rs"]
mod size;

use failure::Failure;

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
    file.write_all(bytes).expect("room in memory");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    match scenario::load(Some(Path::new(&path)), &[]) {
        Ok(loaded) => assert_eq!(loaded.scenario.problems().is_empty() || loaded.is_stages_only(), true),
        Err(Failure::Input(lines)) => assert!(!lines.is_empty(), "refused without a reason"),
        Err(other) => panic!("not the user's fault: {other}"),
    }
});
