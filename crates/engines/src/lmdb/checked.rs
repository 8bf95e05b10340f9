//! When a store was last found whole: a line in the file `checked` beside its data, whose time is that of the check.
//!
//! For people, by `punctual doctor`: nothing depends on it, so that whatever refuses it is no failure, and it is not
//! synced.

use std::fs;
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
    let path = directory.join(FILE_NAME);
    // Another user may have written it; it is the folder that may be changed.
    let _ = fs::remove_file(&path);
    let _ = fs::write(&path, format!("{what} {commit}\n"));
}

/// The last check of the store in `directory` that found it whole, as it was opened or by [`Visitor::verify`].
///
/// [`Visitor::verify`]: super::Visitor::verify
pub fn last_check(directory: &Path) -> Option<Checked> {
    let path = directory.join(FILE_NAME);
    let about = fs::symlink_metadata(&path)
        .ok()
        .filter(|about| about.is_file() && about.len() < 64)?;
    let text = fs::read_to_string(&path).ok()?;
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
