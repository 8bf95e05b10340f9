//! Names in directories that survive a power cut, and a store that gets its name last.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Creates `directory` and its missing ancestors, and syncs each new name, so that it survives a power cut. Returns the
/// new ones, `directory` first.
pub(crate) fn make(directory: &Path) -> io::Result<Vec<&Path>> {
    let missing: Vec<&Path> = directory
        .ancestors()
        .take_while(|above| !above.as_os_str().is_empty() && !above.is_dir())
        .collect();
    for above in missing.iter().rev() {
        match fs::create_dir(above) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && above.is_dir() => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let why = format!("{} is no folder: name another", above.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
            }
            answer => answer?,
        }
        sync(parent(above))?;
    }
    Ok(missing)
}

pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    }
}

/// Makes the names in `directory` durable.
#[cfg(unix)]
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    match File::open(directory)?.sync_all() {
        // EINVAL: this file system cannot sync directories, so it promises nothing about their names.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        answer => answer,
    }
}

/// Outside of Unix a directory cannot be opened as a file; the file system alone keeps its names.
#[cfg(not(unix))]
pub(crate) fn sync(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Syncs the complete file `made` and renames it to `data`, durably.
pub(crate) fn name(made: &Path, data: &Path) -> io::Result<()> {
    File::open(made)?.sync_all()?;
    fs::rename(made, data)?;
    sync(parent(data))
}

/// Treats a file that is already missing as removed.
pub(crate) fn gone(answer: io::Result<()>) -> io::Result<()> {
    match answer {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}
