//! Files of execution profiles.

use std::path::{Path, PathBuf};

use punctual_allocation::Profile;
use punctual_experiments::dna::{ProfileSet, read};

use crate::failure::Failure;

/// The profile in this file.
///
/// # Errors
/// [`Failure::Input`] naming the file and what is wrong with it.
pub fn file(path: &Path) -> Result<Profile, Failure> {
    let sets = sets(&[path.to_path_buf()])?;
    let profile = sets.into_iter().flat_map(|set| set.profiles).next();
    profile.ok_or_else(|| refused(path, "no profile in this file"))
}

/// The profiles in `folder`, in sets: `PROGRAM.SET.csv` belongs to SET, `PROGRAM.csv` to `measured`.
///
/// # Errors
/// [`Failure::Input`] naming the file that cannot be read, or the folder if there is none in it.
pub fn folder(folder: &Path) -> Result<Vec<ProfileSet>, Failure> {
    let entries = folder.read_dir().map_err(|error| refused(folder, &error.to_string()))?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<PathBuf>, _>>()
        .map_err(|error| refused(folder, &error.to_string()))?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "csv"));
    files.sort();
    if files.is_empty() {
        return Err(refused(
            folder,
            "no profile (NAME.csv) in this folder; data/profiles has some",
        ));
    }
    sets(&files)
}

fn sets(files: &[PathBuf]) -> Result<Vec<ProfileSet>, Failure> {
    let mut read_files = Vec::new();
    for file in files {
        let bytes = std::fs::read(file).map_err(|error| refused(file, &error.to_string()))?;
        read_files.push((file.display().to_string(), bytes));
    }
    let files: Vec<_> = read_files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect();
    read(&files).map_err(|error| Failure::input([error.to_string()]))
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::input([format!("{}: {why}", path.display())])
}
