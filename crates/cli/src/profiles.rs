//! Files of execution profiles.

use std::path::{Path, PathBuf};

use punctual_allocation::Profile;

use crate::failure::Failure;

/// The compiled profile in this JSON file.
///
/// # Errors
/// [`Failure::Input`] naming the file and what is wrong with it.
pub fn file(path: &Path) -> Result<Profile, Failure> {
    let text = std::fs::read(path).map_err(|error| refused(path, &error.to_string()))?;
    let profile: Profile =
        serde_json::from_slice(&text).map_err(|error| refused(path, &format!("not a compiled profile: {error}")))?;
    profile.check().map_err(|error| refused(path, &error.to_string()))?;
    Ok(profile)
}

/// All profiles in `folder`, by name.
///
/// # Errors
/// [`Failure::Input`] naming the file that cannot be read, or the folder if there is none in it.
pub fn folder(folder: &Path) -> Result<Vec<Profile>, Failure> {
    let entries = folder.read_dir().map_err(|error| refused(folder, &error.to_string()))?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<PathBuf>, _>>()
        .map_err(|error| refused(folder, &error.to_string()))?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    if files.is_empty() {
        return Err(refused(folder, "no compiled profile (NAME.json) in this folder"));
    }
    files.iter().map(|path| file(path)).collect()
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::input([format!("{}: {why}", path.display())])
}
