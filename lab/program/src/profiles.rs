//! Folders of execution profiles.

use std::path::{Path, PathBuf};

use punctual_evaluation::dna::{ProfileSet, read};

use punctual_cli::commands::profile::tell;
use punctual_files::failure::Failure;
use punctual_files::profiles::bytes;

/// The profiles in `folder`, in sets: `PROGRAM.SET.csv` belongs to SET, `PROGRAM.csv` to `modelled` or `measured`, by
/// its content. Assumptions about missing facts are noted on standard error.
///
/// # Errors
/// [`Failure::Input`] naming the file that cannot be read, or the folder if it contains none.
pub fn folder(folder: &Path) -> Result<Vec<ProfileSet>, Failure> {
    let refused = |why: String| Failure::at(folder, why);
    let unreadable = |error: std::io::Error| refused(format!("cannot be read: {}", error.kind()));
    let entries = folder.read_dir().map_err(unreadable)?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<PathBuf>, _>>()
        .map_err(unreadable)?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "csv"));
    files.sort();
    if files.is_empty() {
        return Err(refused(
            "no profiles there; they are called PROGRAM.csv or PROGRAM.SET.csv".into(),
        ));
    }
    sets(&files)
}

fn sets(files: &[PathBuf]) -> Result<Vec<ProfileSet>, Failure> {
    let mut read_files = Vec::new();
    for file in files {
        let bytes = bytes(file).map_err(|line| Failure::Input(vec![line]))?;
        read_files.push((file.display().to_string(), bytes));
    }
    let files: Vec<_> = read_files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect();
    let sets = read(&files).map_err(Failure::of)?;
    for assumed in sets.iter().flat_map(|set| &set.assumed) {
        tell(&format!("note: {assumed}\n"));
    }
    Ok(sets)
}
