//! Tasks that are added to a running runtime are announced to other programs, and take no core of theirs.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use punctual_engines::Memory;
use punctual_os::LinuxOs;
use punctual_platform::linux::journal::Journal;
use punctual_platform::linux::thread::allowed_cores;
use punctual_platform::linux::{KernelTree, cores, recovery};
use punctual_runtime::linux::{Runtime, RuntimeOptions};
use punctual_store::{Store, StoreOptions};
use punctual_testing::CHILD_MAX;
use punctual_units::{CoreId, Nanos};

/// Makes a test of this file the child, and names its part.
const ORDER: &str = "PUNCTUAL_TEST_ANNOUNCES";

/// Parts of the child.
const ADDS: &str = "adds";
const KEEPS_OFF: &str = "keeps off";
const KEEPS_A_CORE: &str = "keeps a core";

const MS: Nanos = Nanos::from_millis(1);

/// Cores of the tasks that this user's programs have announced.
fn announced() -> Vec<CoreId> {
    let found = recovery::look(&recovery::folder()).unwrap().holders;
    found.iter().flat_map(|holder| holder.shared.clone()).collect()
}

/// The child's part; without an order, an empty test.
#[test]
fn child() {
    let Ok(part) = std::env::var(ORDER) else { return };
    let store = Arc::new(Store::open(Memory::default(), LinuxOs, StoreOptions::default()).unwrap());
    let keep = usize::from(part == KEEPS_A_CORE);
    let runtime = Runtime::start(RuntimeOptions::new(store).keep_cores(keep)).unwrap();
    assert_eq!(announced(), [], "no task has a deadline yet");
    let steer = || runtime.task("steer").every(MS * 20).due_in(MS * 10);
    match part.as_str() {
        ADDS => {
            let task = steer().run(|_| ()).unwrap();
            println!("\nANNOUNCED {}", announced().len());
            task.stop();
            punctual_testing::wait_until("the ended task is announced no more", || announced().is_empty());
            let pin = runtime
                .task("audio")
                .at_most_every(MS * 20)
                .due_in(MS * 10)
                .seat_this_thread()
                .unwrap();
            assert_eq!(announced().len(), 1);
            drop(pin);
            punctual_testing::wait_until("the thread is announced no more", || announced().is_empty());
        }
        KEEPS_OFF => {
            let claimed = *cores::online(&KernelTree::default()).last().unwrap();
            let refused = steer().on_core(claimed).run(|_| ()).map(drop).unwrap_err().to_string();
            let task = steer().run(|_| ()).unwrap();
            println!("\nREFUSED {refused}\nAPART {}", !announced().contains(&claimed));
            task.stop();
        }
        _ => {}
    }
    drop(runtime);
}

/// Runs the child with the ledger in `folder`; returns its standard output.
fn run(part: &str, folder: &Path) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "announced::child", "--nocapture", "--test-threads=1"])
        .env(ORDER, part)
        .env(recovery::FOLDER, folder)
        .stdin(Stdio::null());
    let output = punctual_testing::output(&mut command, CHILD_MAX).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    printed
}

#[test]
fn a_task_that_is_added_to_a_running_runtime_is_announced_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let printed = run(ADDS, folder.path());
    assert!(printed.contains("\nANNOUNCED 1\n"), "{printed}");
}

#[test]
fn a_core_that_is_kept_without_the_right_to_it_is_not_announced() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open_in(folder.path(), false).unwrap();
    let machine = cores::online(&KernelTree::default());
    // All that may be taken: the runtime gets none for itself alone.
    if journal.claim(&machine[1..], &machine).is_ok() {
        run(KEEPS_A_CORE, folder.path());
    }
}

#[test]
fn an_added_task_gets_no_core_that_another_program_has_alone() {
    let machine = cores::online(&KernelTree::default());
    if machine.len() < 2 || allowed_cores().len() < 2 {
        return eprintln!("skipped: there is one core only");
    }
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open_in(folder.path(), false).unwrap();
    journal.claim(&machine[machine.len() - 1..], &machine).unwrap();
    let printed = run(KEEPS_OFF, folder.path());
    let process = format!("(process {})", std::process::id());
    let refused = printed.lines().find(|line| line.starts_with("REFUSED")).unwrap();
    assert!(refused.contains("steer") && refused.contains(&process), "{printed}");
    assert!(printed.contains("\nAPART true\n"), "{printed}");
}
