//! Destination of a profile: its file, or a second one that no reader takes for a complete profile.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use punctual_files::failure::Failure;
use punctual_report::output::{OutputFile, OutputKind};
use punctual_report::summary::counted;

/// Default path: in the current folder, by the program's name.
pub fn beside(program: &OsString) -> PathBuf {
    let mut name = Path::new(program).file_name().unwrap_or(program).to_os_string();
    name.push(".profile.csv");
    name.into()
}

/// Writes the counts of a program that ended early to `path`.partial, and prints so; does nothing without counts.
pub fn keep(
    path: &Path,
    windows: usize,
    instructions: u64,
    rows: impl FnOnce() -> Result<String, Failure>,
) -> Result<Option<String>, Failure> {
    let special = path.metadata().is_ok_and(|meta| !meta.is_file());
    if windows == 0 || special {
        return Ok(None);
    }
    let mut partial = path.as_os_str().to_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    OutputFile::prepare(&partial, OutputKind::Profile)?.text(&rows()?)?;
    let (place, windows) = (partial.display(), counted(windows as u64, "window"));
    let part = format!("{} instructions of it, in {windows}", millions(instructions));
    Ok(Some(format!("{place}: {part}; there is no profile of the whole")))
}

/// Instructions in millions, such as `12.3 M`.
pub fn millions(instructions: u64) -> String {
    format!("{:.1} M", instructions as f64 / 1e6)
}
