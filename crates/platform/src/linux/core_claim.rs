//! One real-time core, one run: a claim that dies with its holder.
//!
//! Two runs that keep real-time work on the same core make each other late, and neither can see why. So a run claims
//! its core by a lock (flock(2)) on a file; the kernel releases the lock when the process ends, however it ends. The
//! claim binds runs of this program only, and is advice, not enforced: a user may want both.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use punctual_units::CoreId;

use crate::Refusal;

/// Where every user may make a lock file (file-hierarchy(7)).
const LOCKS: &str = "/run/lock";

/// A core that this process has claimed, until it is dropped.
#[derive(Debug)]
pub struct CoreClaim {
    _locked: File,
}

impl CoreClaim {
    /// Claims the core for real-time work.
    ///
    /// # Errors
    /// [`Refusal`] where another run has claimed it, or no lock file can be made.
    pub fn of(core: CoreId) -> Result<CoreClaim, Refusal> {
        let shared = Path::new(LOCKS);
        let folder = if shared.is_dir() {
            shared.into()
        } else {
            std::env::temp_dir()
        };
        CoreClaim::within(&folder, core)
    }

    fn within(folder: &Path, core: CoreId) -> Result<CoreClaim, Refusal> {
        let path = folder.join(format!("punctual-core-{core}.lock"));
        let refused = |why: String, remedy: &str| Refusal {
            what: format!("core {core} for the real-time work of this run only"),
            why,
            remedy: remedy.into(),
        };
        let cannot = |error: io::Error| {
            refused(
                format!("{}: {error}", path.display()),
                "make the folder writable, so that runs can tell each other which core they use",
            )
        };
        let mut file = open(&path).map_err(cannot)?;
        if file.try_lock().is_err() {
            return Err(refused(
                format!(
                    "another run{} has its real-time work there, so both will be late",
                    holder(&mut file)
                ),
                "wait until it has ended, or run only one at a time on this machine",
            ));
        }
        // Another user's file says which process made it first; the lock counts, not the text.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(CoreClaim { _locked: file })
    }
}

/// Opens the lock file, or makes it. Opening comes first: in a folder that all may write to, the kernel refuses to
/// "make" a file that another user has made (sysctl fs.protected_regular).
fn open(path: &PathBuf) -> io::Result<File> {
    let read_write = OpenOptions::new().read(true).write(true).open(path);
    let opened = read_write.or_else(|_| File::open(path));
    opened.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path),
        _ => Err(error),
    })
}

/// ` (process 123)`, where the holder could write it down.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(32).read_to_string(&mut text));
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(process)) => format!(" (process {process})"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_claimed_once_until_its_holder_lets_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let claim = |core| CoreClaim::within(folder.path(), CoreId(core));
        let first = claim(1).expect("no process has it");
        let refusal = claim(1).expect_err("it is taken");
        let process = format!("another run (process {}) has", std::process::id());
        assert!(refusal.why.starts_with(&process), "{refusal}");
        claim(0).expect("another core is free");
        drop(first);
        claim(1).expect("free again");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let refusal = CoreClaim::within(Path::new("/nowhere"), CoreId(0)).expect_err("no folder");
        assert!(refusal.why.starts_with("/nowhere/punctual-core-0.lock: "), "{refusal}");
    }
}
