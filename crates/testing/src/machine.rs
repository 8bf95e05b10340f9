//! Tests that need the machine for themselves, one after the other.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// The machine, for one test alone or for all that need its cores; released when this is dropped.
#[derive(Debug)]
pub struct MachineGuard(File);

/// Waits until no other test has the machine. For tests that take cores, priorities, cpusets or control groups, or look
/// at the ledger of programs that do: they would see each other's changes. An exclusive lock of a file excludes threads
/// and processes alike, because each call opens a file of its own; Linux releases it when a process dies.
///
/// # Panics
/// If the file cannot be opened or locked.
pub fn machine() -> MachineGuard {
    locked(File::lock)
}

/// Waits until no test has the machine for itself, and holds off tests that want it. For tests that need more than one
/// core, which another one could take away, or that change what such a test compares; they run at the same time.
///
/// # Panics
/// As [`machine`].
pub fn shared_machine() -> MachineGuard {
    locked(File::lock_shared)
}

fn locked(lock: fn(&File) -> std::io::Result<()>) -> MachineGuard {
    let path = std::env::temp_dir().join("punctual-tests-machine.lock");
    let file = open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    loop {
        match lock(&file) {
            Ok(()) => return MachineGuard(file),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}

/// Opens the file for reading, which suffices to lock it, because it may be another user's; creates it where it is
/// missing.
fn open(path: &PathBuf) -> std::io::Result<File> {
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return opened,
    }
    let mut options = OpenOptions::new();
    match options.write(true).create_new(true).mode(0o644).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => File::open(path),
        created => created,
    }
}

impl Drop for MachineGuard {
    /// Releases the lock also where a forked child that executes no program still has the descriptor.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn one_test_at_a_time_has_the_machine() {
        static INSIDE: AtomicU32 = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _machine = machine();
                        assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        INSIDE.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn tests_that_share_the_machine_run_at_the_same_time() {
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _cores = shared_machine();
                    both.wait();
                });
            }
        });
    }
}
