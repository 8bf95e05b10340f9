//! Scenario files: read and checked, or refused with one line for each problem.
#![no_main]

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use punctual_files::failure::Failure;
use punctual_files::scenario;

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
