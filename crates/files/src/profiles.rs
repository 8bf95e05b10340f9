//! Files of execution profiles, shared by all readers: `profile FILE`, tasks of a scenario, folders of profiles.

use std::path::Path;

use punctual_allocation::profile::{ProfileOptions, load};
use punctual_allocation::{Grid, Profile};

use crate::bounded;

/// Content of a profile's file.
///
/// # Errors
/// A line that names the file and the reason why it cannot be read.
pub fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    bounded::bytes(path).map_err(|error| {
        format!(
            "{}: {}; name a profile, such as data/profiles/fft.scaled.csv",
            path.display(),
            bounded::why(&error)
        )
    })
}

/// The profile in this file, for a machine that splits `grid`: its phases as `punctual profile` prints them.
///
/// # Errors
/// A line that names the file, its line if known, and the mistake.
pub fn file(path: &Path, grid: Grid) -> Result<Profile, String> {
    of_bytes(&path.display().to_string(), &bytes(path)?, grid)
}

/// As `file`, for a built-in file; messages call it `shown`.
pub fn of_bytes(shown: &str, content: &[u8], grid: Grid) -> Result<Profile, String> {
    let options = ProfileOptions {
        grid: Some(grid),
        ..ProfileOptions::default()
    };
    let compiled = load(shown, content, &options);
    compiled
        .map(|compiled| compiled.profile)
        .map_err(|error| error.to_string())
}
