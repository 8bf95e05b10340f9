//! Tasks that are added to a running runtime are announced to other programs.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};
use std::sync::Arc;

use punctual_engines::Memory;
use punctual_os::LinuxOs;
use punctual_platform::linux::recovery;
use punctual_runtime::linux::Runtime;
use punctual_store::{Store, StoreOptions};
use punctual_testing::CHILD_MAX;
use punctual_units::Nanos;

/// Tells the child that it is one.
const ORDER: &str = "PUNCTUAL_TEST_ANNOUNCES";

/// The child's part; a test of its own name only when told so.
#[test]
fn child() {
    if std::env::var_os(ORDER).is_none() {
        return;
    }
    let store = Arc::new(Store::open(Memory::default(), LinuxOs, StoreOptions::default()).unwrap());
    let runtime = Runtime::start(store).unwrap();
    let announced = || {
        let found = recovery::look(&recovery::folder()).unwrap().holders;
        found.iter().map(|holder| holder.shared.len()).sum::<usize>()
    };
    assert_eq!(announced(), 0, "no task has a deadline yet");
    let ms = Nanos::from_millis;
    let task = runtime.task("steer").every(ms(20)).due_in(ms(10)).run(|_| ()).unwrap();
    println!("\nANNOUNCED {}", announced());
    task.stop();
    drop(runtime);
}

#[test]
fn a_task_that_is_added_to_a_running_runtime_is_announced() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "announced::child", "--nocapture", "--test-threads=1"])
        .env(ORDER, "1")
        .env(recovery::FOLDER, folder.path())
        .stdin(Stdio::null());
    let output = punctual_testing::output(&mut command, CHILD_MAX).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("\nANNOUNCED 1\n"), "{said}");
}
