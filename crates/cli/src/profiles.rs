//! Files of execution profiles, read alike by whoever names one: `profile show`, tasks of a scenario, folders of them.

use std::path::{Path, PathBuf};

use punctual_allocation::profile::{Options, load};
use punctual_allocation::{Grid, Profile};
use punctual_lab::dna::{ProfileSet, read};

use crate::commands::profile::tell;
use crate::failure::Failure;

/// What is in the file of a profile.
///
/// # Errors
/// A line that names the file and says why it cannot be read.
pub fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| {
        format!(
            "{}: cannot be read: {}; name a profile, such as data/profiles/fft.scaled.csv",
            path.display(),
            error.kind()
        )
    })
}

/// The profile in this file, for a machine that splits `grid`: the phases that `punctual profile show` tells.
///
/// # Errors
/// A line that names the file, where there is one the line of it, and what is wrong.
pub fn file(path: &Path, grid: Grid) -> Result<Profile, String> {
    let options = Options {
        grid: Some(grid),
        ..Options::default()
    };
    let compiled = load(&path.display().to_string(), &bytes(path)?, &options);
    compiled
        .map(|compiled| compiled.profile)
        .map_err(|error| error.to_string())
}

/// The profiles in `folder`, in sets: `PROGRAM.SET.csv` belongs to SET, `PROGRAM.csv` to `modelled` or `measured`, whichever it is. What
/// the files do not say and is assumed is noted on standard error.
///
/// # Errors
/// [`Failure::Input`] naming the file that cannot be read, or the folder if there is none in it.
pub fn folder(folder: &Path) -> Result<Vec<ProfileSet>, Failure> {
    let refused = |why: String| Failure::input([format!("{}: {why}", folder.display())]);
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
    let sets = read(&files).map_err(|error| Failure::input([error.to_string()]))?;
    for assumed in sets.iter().flat_map(|set| &set.assumed) {
        tell(&format!("note: {assumed}\n"));
    }
    Ok(sets)
}
