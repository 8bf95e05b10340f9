//! Names in directories that survive a power cut, and a store that gets its name last.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Makes `directory` and those above it, each with a name that survives a power cut.
pub(crate) fn make(directory: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = directory
        .ancestors()
        .take_while(|above| !above.as_os_str().is_empty() && !above.is_dir())
        .collect();
    for above in missing.into_iter().rev() {
        match fs::create_dir(above) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && above.is_dir() => {}
            answer => answer?,
        }
        sync(parent(above))?;
    }
    Ok(())
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
        // A file system that cannot sync directories has nothing to say about their names (EINVAL).
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        answer => answer,
    }
}

/// Elsewhere a directory cannot be opened as a file, and its names are the file system's to keep.
#[cfg(not(unix))]
pub(crate) fn sync(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Gives the file `made`, which is complete, the name `data`.
pub(crate) fn name(made: &Path, data: &Path) -> io::Result<()> {
    File::open(made)?.sync_all()?;
    fs::rename(made, data)?;
    sync(parent(data))
}

/// Removes what may be there.
pub(crate) fn gone(answer: io::Result<()>) -> io::Result<()> {
    match answer {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}
