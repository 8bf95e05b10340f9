//! When a store was last found whole: a line in the file `checked` beside its data; the file's time is that of the
//! check.
//!
//! For people, by `punctual doctor`: nothing else depends on the file, so a failure to write it is ignored, and it is
//! not synced.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use super::Verify;

pub(super) const FILE_NAME: &str = "checked";

/// A check that found a store whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckNote {
    /// Extent of the check; never `Verify::None`.
    pub verify: Verify,
    /// Number of the commit that was checked.
    pub commit: u64,
    /// Time of the check: when the note was written.
    pub at: SystemTime,
}

/// Notes that `commit` was just found whole; does nothing for `Verify::None`.
pub(super) fn note(directory: &Path, verify: Verify, commit: u64) {
    if verify == Verify::None {
        return;
    }
    // Another user may have written the file; removing it needs only the right to change the folder.
    forget(directory);
    // Only as a new file: the folder's owner may have put a link there, to a file of another user.
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).open(directory.join(FILE_NAME));
    let _ = made.and_then(|mut file| writeln!(file, "{} {commit}", verify.name()));
}

/// Removes the note, when `directory` gets another store or this one is found damaged.
pub(super) fn forget(directory: &Path) {
    let _ = fs::remove_file(directory.join(FILE_NAME));
}

/// The last check that found the store in `directory` whole, made at open or by [`Visitor::verify`].
///
/// [`Visitor::verify`]: super::Visitor::verify
pub fn last_check(directory: &Path) -> Option<CheckNote> {
    let path = directory.join(FILE_NAME);
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file = options.open(path).ok()?;
    let about = file
        .metadata()
        .ok()
        .filter(|about| about.is_file() && about.len() < 64)?;
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let (what, commit) = text.trim().split_once(' ')?;
    let is_noted = |verify: &Verify| *verify != Verify::None && verify.name() == what;
    Some(CheckNote {
        verify: Verify::ALL.into_iter().find(is_noted)?,
        commit: commit.parse().ok()?,
        at: about.modified().ok()?,
    })
}
