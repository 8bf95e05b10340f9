//! Files that a command writes at its end, checked at its beginning.
//!
//! A run takes a minute, so an error about its report should come before it. The file appears complete or not at all:
//! the command writes a temporary file in the same folder and renames it.

use std::fs::{File, Permissions};
use std::io::{BufWriter, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::NamedTempFile;

use punctual_files::failure::Failure;

/// File to be written at the end of the command.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Temporary file in the same folder, renamed at the end.
    Beside(NamedTempFile),
    /// Descriptor that standard output had at the beginning.
    StandardOutput(File),
    /// Not a regular file (a terminal, a pipe, /dev/null): opened and written in place.
    AsItIs,
}

/// Refuses a file that is named twice, because the last one written would replace the others.
///
/// # Errors
/// [`Failure::Input`] naming both places.
pub fn apart(files: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    let named = |path: &Path| {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let regular = path.metadata().map_or(true, |meta| meta.is_file());
        regular.then(|| {
            (
                folder.canonicalize().ok(),
                path.file_name().map(std::ffi::OsString::from),
            )
        })
    };
    let files: Vec<_> = files
        .iter()
        .filter_map(|(what, path)| Some((*what, (*path)?)))
        .collect();
    for (i, (what, path)) in files.iter().enumerate() {
        let same = files[..i]
            .iter()
            .find(|(_, other)| named(path).is_some_and(|name| Some(name) == named(other)));
        if let Some((first, _)) = same {
            return Err(refused(
                path,
                format!("is named as {what}, but also as {first}: name another file"),
            ));
        }
    }
    Ok(())
}

impl OutputFile {
    /// Checks that `path` can be written, but creates no file there yet. "-" is standard output: from now on, printed
    /// text goes to standard error, so that a program can parse the output.
    ///
    /// # Errors
    /// [`Failure::Input`] naming the path.
    pub fn prepare(path: &Path) -> Result<OutputFile, Failure> {
        if path == Path::new("-") {
            let place = standard_output().map_err(|error| refused(path, format!("no standard output: {error}")))?;
            return Ok(OutputFile {
                path: "standard output".into(),
                place: Place::StandardOutput(place),
            });
        }
        // A symbolic link stays; its target is replaced.
        let followed = path.canonicalize();
        let path = followed.as_deref().unwrap_or(path);
        let special = path.metadata().is_ok_and(|meta| !meta.is_file());
        if path.is_dir() {
            return Err(refused(path, "is a folder; name a file in it"));
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let place = if special {
            Place::AsItIs
        } else {
            let cannot = |error: std::io::Error| {
                let why = if folder.is_dir() {
                    error.kind().to_string()
                } else {
                    format!("there is no folder {}", folder.display())
                };
                refused(
                    path,
                    format!("cannot be written: {why}; name a file in a folder that is yours"),
                )
            };
            let mode = path.metadata().ok().map(|meta| meta.permissions());
            let mode = mode.unwrap_or_else(|| Permissions::from_mode(0o666)); // less the umask
            let file = tempfile::Builder::new().permissions(mode).tempfile_in(folder);
            Place::Beside(file.map_err(cannot)?)
        };
        Ok(OutputFile {
            path: path.to_path_buf(),
            place,
        })
    }

    /// [`OutputFile::prepare`] for an optional path.
    pub fn prepare_some(path: Option<&PathBuf>) -> Result<Option<OutputFile>, Failure> {
        path.map(|path| OutputFile::prepare(path)).transpose()
    }

    /// Writes `text` and renames the file into place.
    pub fn text(self, text: &str) -> Result<(), Failure> {
        self.write(|file| file.write_all(text.as_bytes()))
    }

    /// Writes `value` as indented JSON and renames the file into place.
    pub fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        self.write(|file| {
            serde_json::to_writer_pretty(&mut *file, value)?;
            file.write_all(b"\n")
        })
    }

    /// Lets `fill` write the file, syncs it and renames it into place.
    pub fn write(self, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            refused(
                &self.path,
                format!("cannot be written: {error}; make room, or name another file"),
            )
        };
        match self.place {
            Place::StandardOutput(file) => match fill_buffered(file, fill) {
                // A reader that closed the pipe (`| head`) is no failure.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
                written => written.map_err(failed),
            },
            Place::AsItIs => {
                let file = std::fs::OpenOptions::new()
                    .write(true)
                    .open(&self.path)
                    .map_err(failed)?;
                fill_buffered(file, fill).map_err(failed)
            }
            Place::Beside(mut file) => {
                fill_buffered(file.as_file_mut(), fill).map_err(failed)?;
                file.as_file().sync_all().map_err(failed)?;
                file.persist(&self.path).map_err(|error| failed(error.error))?;
                Ok(())
            }
        }
    }
}

/// Duplicates standard output, then redirects it to standard error.
fn standard_output() -> std::io::Result<File> {
    let before = std::io::stdout().as_fd().try_clone_to_owned()?;
    // SAFETY: `dup2` touches no memory, and both descriptors stay open for the life of the process.
    if unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(before.into())
}

fn fill_buffered(file: impl Write, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut file = BufWriter::new(file);
    fill(&mut file)?;
    file.flush()
}

fn refused(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::input([format!("{}: {what}", path.display())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_when_it_is_written_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        let output = OutputFile::prepare(&path).unwrap();
        assert!(!path.exists());
        output.json(&[1, 2]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[\n  1,\n  2\n]\n");
        drop(OutputFile::prepare(&path).unwrap());
        assert!(path.exists(), "the old file stays until it is replaced");
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }

    #[test]
    fn what_cannot_be_written_is_said_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("no/x.json");
        let text = OutputFile::prepare(&missing).unwrap_err().to_string();
        assert!(
            text.starts_with(&format!("{}: cannot be written: ", missing.display())),
            "{text}"
        );
        let text = OutputFile::prepare(folder.path()).unwrap_err().to_string();
        assert!(text.ends_with("is a folder; name a file in it"), "{text}");
    }

    #[test]
    fn a_link_stays_and_so_does_a_mode() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["x.json", "latest.json"].map(|name| folder.path().join(name));
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        OutputFile::prepare(&link).unwrap().text("new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn special_files_are_written_in_place() {
        OutputFile::prepare(Path::new("/dev/null")).unwrap().text("x").unwrap();
        let full = OutputFile::prepare(Path::new("/dev/full"))
            .unwrap()
            .text("x")
            .unwrap_err()
            .to_string();
        assert!(full.starts_with("/dev/full: cannot be written: "), "{full}");
    }
}
