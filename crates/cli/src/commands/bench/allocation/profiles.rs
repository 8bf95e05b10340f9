//! Which programs `bench allocation` decides for.

use std::path::Path;

use punctual_allocation::{Grid, Profile, synthetic};

use crate::failure::Failure;

/// Made-up programs where no profiles are given.
const MADE_UP: u64 = 3;
/// Their phases: as many as an allocator takes.
const PHASES: usize = 64;

/// The profiles in `folder`, compiled ones in JSON; or made-up programs.
///
/// # Errors
/// [`Failure::Input`] naming the file that cannot be read.
pub fn read(folder: Option<&Path>) -> Result<Vec<Profile>, Failure> {
    let Some(folder) = folder else {
        return Ok((1..=MADE_UP)
            .map(|seed| synthetic::program(Grid::PAPER, PHASES, seed))
            .collect());
    };
    let refused = |path: &Path, why: String| Failure::input([format!("{}: {why}", path.display())]);
    let entries = folder.read_dir().map_err(|error| refused(folder, error.to_string()))?;
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| refused(folder, error.to_string()))?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    if files.is_empty() {
        return Err(refused(
            folder,
            "no profile in this folder: give one with NAME.json files".into(),
        ));
    }
    let profile = |file: &std::path::PathBuf| {
        let text = std::fs::read(file).map_err(|error| refused(file, error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| refused(file, format!("not a compiled profile: {error}")))
    };
    files.iter().map(profile).collect()
}
