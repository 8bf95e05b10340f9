//! When a store was last found whole: a line in the file `checked` beside its data, whose time is that of the check.
//!
//! For people, by `punctual doctor`: nothing depends on it, so that whatever refuses it is no failure, and it is not
//! synced.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use super::Verify;

pub(super) const FILE_NAME: &str = "checked";

/// A check that found a store whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// How much was checked.
    pub verify: Verify,
    /// Of which commit.
    pub commit: u64,
    /// When.
    pub at: SystemTime,
}

/// Notes that `commit` was found whole now.
pub(super) fn note(directory: &Path, verify: Verify, commit: u64) {
    let what = match verify {
        Verify::Full => "full",
        Verify::Structure => "structure",
        Verify::None => return,
    };
    // Another user may have written it; it is the folder that may be changed.
    forget(directory);
    // Only as a new file: the folder's owner may have put a link there, to a file that is not theirs to write.
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).open(directory.join(FILE_NAME));
    let _ = made.and_then(|mut file| writeln!(file, "{what} {commit}"));
}

/// There is another store in `directory` now, or this one is found damaged.
pub(super) fn forget(directory: &Path) {
    let _ = fs::remove_file(directory.join(FILE_NAME));
}

/// The last check of the store in `directory` that found it whole, as it was opened or by [`Visitor::verify`].
///
/// [`Visitor::verify`]: super::Visitor::verify
pub fn last_check(directory: &Path) -> Option<Checked> {
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
    let verify = match what {
        "full" => Verify::Full,
        "structure" => Verify::Structure,
        _ => return None,
    };
    Some(Checked {
        verify,
        commit: commit.parse().ok()?,
        at: about.modified().ok()?,
    })
}
