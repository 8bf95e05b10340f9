//! Files of execution profiles, read alike by all that name one: `profile show`, tasks of a scenario, folders of them.

use std::path::Path;

use punctual_allocation::profile::{Options, load};
use punctual_allocation::{Grid, Profile};

use crate::bounded;

/// What is in the file of a profile.
///
/// # Errors
/// A line that names the file and says why it cannot be read.
pub fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    bounded::bytes(path).map_err(|error| {
        format!(
            "{}: cannot be read: {}; name a profile, such as data/profiles/fft.scaled.csv",
            path.display(),
            bounded::why(&error)
        )
    })
}

/// The profile in this file, for a machine that splits `grid`: the phases that `punctual profile show` tells.
///
/// # Errors
/// A line that names the file, where there is one the line of it, and what is wrong.
pub fn file(path: &Path, grid: Grid) -> Result<Profile, String> {
    of_bytes(&path.display().to_string(), &bytes(path)?, grid)
}

/// As [`file`], of a built-in file; `shown` stands for it in messages.
pub fn of_bytes(shown: &str, content: &[u8], grid: Grid) -> Result<Profile, String> {
    let options = Options {
        grid: Some(grid),
        ..Options::default()
    };
    let compiled = load(shown, content, &options);
    compiled
        .map(|compiled| compiled.profile)
        .map_err(|error| error.to_string())
}
