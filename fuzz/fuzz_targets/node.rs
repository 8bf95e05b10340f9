//! Files of nodes: read and checked, or refused with one line for each problem; no password is repeated.
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
#[path = "../../crates/cli/src/serve/file.rs"]
mod file;
#[path = "../../crates/cli/src/scenario/mod.rs"]
mod scenario;
#[path = "../../crates/cli/src/size.rs"]
mod size;

use failure::Failure;

fuzz_target!(|bytes: &[u8]| {
    let mut made = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
    made.write_all(bytes).expect("room in memory");
    let path = format!("/proc/self/fd/{}", made.as_raw_fd());
    match file::load(Path::new(&path)) {
        Ok(node) => {
            assert!((1..=64).contains(&node.options.threads) && node.options.queue_max >= 1);
            assert!(node.users.iter().all(|user| !user.name.is_empty()));
            assert!(node.metrics.is_none_or(|address| address.ip().is_loopback()));
            assert!(node.objects.iter().all(|object| (1..=511).contains(&object.key.len())));
        }
        Err(Failure::Input(lines)) => assert!(!lines.is_empty(), "refused without a reason"),
        Err(other) => panic!("not the user's fault: {other}"),
    }
});
