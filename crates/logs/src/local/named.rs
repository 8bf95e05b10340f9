//! Tells whether a locked file still has its name: removed by its former holder, it keeps no process out.

use std::fs::{File, TryLockError, metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Refuses a lock on a file that `path` does not name any more, as one that another process holds.
pub(super) fn check(file: &File, path: &Path) -> Result<(), TryLockError> {
    let [own, there] = [file.metadata(), metadata(path)].map(|about| about.map_or(0, |about| about.ino()));
    (own == there).then_some(()).ok_or(TryLockError::WouldBlock)
}
