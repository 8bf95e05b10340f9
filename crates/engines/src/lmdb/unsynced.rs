//! The mark of a volatile store: a file that exists while data may be in the page cache only.
//!
//! **Problem.** Without syncs, a power cut leaves any part of the written pages. The file then often looks whole, but
//! holds pages of several commits: it opens, and its data is wrong.
//!
//! **Method.** Before the first write of a volatile store, a file beside it names this boot. The mark is removed once
//! the store is synced: when it is closed, or opened at another durability within the same boot. A store with the mark
//! of another boot is refused.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use punctual_store::engine::EngineError;

use super::error;

const MARK: &str = "unsynced";
const NEW_MARK: &str = "unsynced.new";

/// State of a store's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnsyncedMark {
    /// No mark: the whole file was synced, as its durability promises.
    None,
    /// A process of this boot did not close the store: the page cache still has all of it.
    ThisBoot,
}

/// Reads the mark beside the data of the store in `directory`.
///
/// # Errors
/// [`EngineError::Unsynced`] for a mark of another boot, or when a boot is unknown.
pub(super) fn read(directory: &Path) -> Result<UnsyncedMark, EngineError> {
    let path = directory.join(MARK);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(UnsyncedMark::None),
        Ok(text) if boot().is_some_and(|boot| boot == text) => Ok(UnsyncedMark::ThisBoot),
        Ok(_) => Err(EngineError::Unsynced {
            path: directory.to_path_buf(),
        }),
        Err(source) => Err(error::io(&path, "read the mark of a volatile store")(source)),
    }
}

/// Sets the mark, durably.
pub(super) fn set(directory: &Path) -> Result<(), EngineError> {
    let (new, path) = (directory.join(NEW_MARK), directory.join(MARK));
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(boot().unwrap_or_default().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        crate::directory::sync(directory)
    };
    write().map_err(error::io(&path, "set the mark of a volatile store"))
}

/// Removes the mark; the data must have been synced.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    fs::remove_file(directory.join(MARK))?;
    crate::directory::sync(directory)
}

fn boot() -> Option<String> {
    punctual_os::linux::boot_id()
}
