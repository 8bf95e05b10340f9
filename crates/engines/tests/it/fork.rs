//! A child that was forked from a process with an open store: it is told so, does the parent no harm, and does not keep
//! the store closed after the parent has died.

#![cfg(target_os = "linux")]

use crate::common::alone;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use punctual_engines::Lmdb;
use punctual_engines::lmdb::LmdbOptions;
use punctual_store::engine::{Durability, Engine, EngineError, Read, Table, Write};
use punctual_testing::{CHILD_MAX, shared_folder};

const PARENT: &str = "FORK_TEST_PARENT";

fn open(directory: &Path) -> Result<Lmdb, EngineError> {
    let durability = Durability::NoMetaSync;
    LmdbOptions {
        durability,
        ..LmdbOptions::default()
    }
    .open(directory)
}

fn put(engine: &Lmdb, value: &[u8]) -> Result<(), EngineError> {
    let mut transaction = engine.write()?;
    transaction.put(Table::Data, b"key", value)?;
    transaction.commit()
}

/// Runs `work` in a child, and returns with what it ended: 0 if `work` was true.
fn in_child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls what is under test, allocates, and ends without running anything else of the test.
    match unsafe { libc::fork() } {
        0 => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_or(2, |fine| i32::from(!fine));
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) }
        }
        child => {
            assert!(child > 0, "no child");
            let mut status = 0;
            // SAFETY: `status` is valid for the call.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            libc::WEXITSTATUS(status)
        }
    }
}

fn forked<T>(answer: Result<T, EngineError>) -> bool {
    matches!(answer, Err(EngineError::Forked { .. }))
}

#[test]
fn a_child_is_told_and_leaves_the_snapshots_and_locks_of_its_parent_alone() {
    alone(
        "fork::a_child_is_told_and_leaves_the_snapshots_and_locks_of_its_parent_alone",
        || {
            let directory = shared_folder();
            let engine = open(directory.path()).unwrap();
            put(&engine, b"old").unwrap();
            let snapshot = engine.snapshot().unwrap();
            let mut transaction = engine.write().unwrap();
            transaction.put(Table::Data, b"key", b"parent's").unwrap();
            let place = directory.path().to_path_buf();
            // The child drops all three: here a child once took its parent's snapshot along.
            let child = {
                let (engine, snapshot, transaction) = (&engine, &snapshot, &mut transaction);
                move || {
                    let mut all = forked(engine.snapshot().map(drop)) && forked(engine.write().map(drop));
                    all &= forked(engine.sync()) && forked(snapshot.get(Table::Data, b"key"));
                    all &= forked(transaction.put(Table::Data, b"key", b"child's"));
                    all &= forked(transaction.delete(Table::Data, b"key"));
                    all &= forked(open(&place).map(drop));
                    // SAFETY: the child ends by _exit: what is read here is not dropped a second time in this process.
                    unsafe {
                        drop(std::ptr::read(transaction));
                        drop(std::ptr::read(snapshot));
                        drop(std::ptr::read(engine));
                    }
                    all
                }
            };
            assert_eq!(in_child(child), 0);
            transaction.commit().unwrap();
            // Enough commits to use each page again that the snapshot does not hold.
            for round in 0..200_u32 {
                put(&engine, &round.to_le_bytes().repeat(200)).unwrap();
            }
            assert_eq!(snapshot.get(Table::Data, b"key").unwrap().as_deref(), Some(&b"old"[..]));
            drop(snapshot);
            drop(engine);
            let engine = open(directory.path()).unwrap();
            let value = engine.snapshot().unwrap().get(Table::Data, b"key").unwrap();
            assert_eq!(value.as_deref(), Some(&199_u32.to_le_bytes().repeat(200)[..]));
        },
    );
}

/// Not a test: opens a store, forks a child that lives on, and waits to be killed.
#[test]
fn parent() {
    let Ok(directory) = std::env::var(PARENT) else { return };
    // SAFETY: plain numbers. The parent must not outlive the test.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let engine = open(Path::new(&directory)).unwrap();
    put(&engine, b"kept").unwrap();
    // SAFETY: the child only sleeps.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // Until the test kills it; it ends by itself if the test cannot.
        std::thread::sleep(CHILD_MAX);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) }
    }
    println!("\nchild {child}");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_child_does_not_keep_the_store_of_its_dead_parent_closed() {
    let directory = shared_folder();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "fork::parent", "--nocapture", "--test-threads=1"])
        .env(PARENT, directory.path())
        .stdout(Stdio::piped());
    let mut parent = punctual_testing::start(&mut command, CHILD_MAX).unwrap();
    let mut lines = BufReader::new(parent.stdout().unwrap()).lines().map_while(Result::ok);
    let line = lines.find_map(|line| line.strip_prefix("child ").map(str::to_owned));
    let child: libc::pid_t = line.expect("the parent says which child it has").parse().unwrap();
    let refused = open(directory.path()).map(drop).unwrap_err();
    let own = parent.id();
    assert!(
        matches!(refused, EngineError::InUse { pid: Some(pid), .. } if pid == own),
        "{refused}"
    );
    parent.kill().unwrap();
    parent.wait().unwrap();
    // SAFETY: plain numbers; asks whether there is such a process.
    assert_eq!(unsafe { libc::kill(child, 0) }, 0, "the child lives");
    let engine = open(directory.path()).unwrap();
    let value = engine.snapshot().unwrap().get(Table::Data, b"key").unwrap();
    assert_eq!(value.as_deref(), Some(&b"kept"[..]));
    // SAFETY: the test's own grandchild, which was alive a moment ago and is waited for by no other process.
    unsafe { libc::kill(child, libc::SIGKILL) };
}
