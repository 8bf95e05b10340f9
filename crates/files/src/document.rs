//! Reads a file of any kind: its text within bounds, then by the reader of its kind.

use std::path::Path;

use crate::bounded;
use crate::failure::Failure;

/// Reads the file at `path` with `parse`, which gets the text and the file's name for messages. `expected` describes a
/// right file.
///
/// # Errors
/// [`Failure::Input`] if the file cannot be read, else with the lines of `parse`.
pub fn load<T>(
    path: &Path,
    expected: &str,
    parse: impl FnOnce(&str, &str) -> Result<T, Vec<String>>,
) -> Result<T, Failure> {
    let shown = path.display().to_string();
    let text = bounded::named_text(path, expected)?;
    parse(&text, &shown).map_err(Failure::input)
}
