//! Files that a command writes at its end, checked at its beginning.
//!
//! A run takes a minute, so an error about its report should come before it. The file appears complete or not at all:
//! the command writes a temporary file in the same folder and renames it.
//!
//! A file that is there is replaced only if it begins as the new one does ([`OutputKind`]), so that a wrong name
//! destroys no store, model or scenario.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::NamedTempFile;

use punctual_files::failure::Failure;

/// Most bytes of a file that are read to recognise its content.
const BEGINNING_MAX: u64 = 256;

/// Content of an output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// JSON without a kind.
    Report,
    /// JSON of [`crate::timeline`].
    Timeline,
    /// HTML.
    Page,
    /// JSON whose first key is `kind`, with this value.
    Document(&'static str),
    /// Text of `store export`.
    Export,
    /// Profile of a program, as CSV.
    Profile,
    /// Scenario in TOML.
    Scenario,
}

impl OutputKind {
    fn name(self) -> &'static str {
        match self {
            OutputKind::Report => "JSON report",
            OutputKind::Timeline => "timeline",
            OutputKind::Page => "HTML page",
            OutputKind::Document(kind) => kind.trim_start_matches("punctual-"),
            OutputKind::Export => "export of a store",
            OutputKind::Profile => "profile",
            OutputKind::Scenario => "scenario",
        }
    }

    /// Whether a file that begins with `text` has this content. An empty file has any.
    fn is_begun_by(self, text: &[u8]) -> bool {
        let after = |text: &[u8], word: &str| Some(text.trim_ascii_start().strip_prefix(word.as_bytes())?.to_vec());
        let first_key = |key| after(text, "{").and_then(|rest| after(&rest, key));
        let (kind, is_timeline) = (first_key("\"kind\""), first_key("\"displayTimeUnit\"").is_some());
        let begins = |word| after(text, word).is_some();
        text.trim_ascii_start().is_empty()
            || match self {
                OutputKind::Report => kind.is_none() && !is_timeline && (begins("{") || begins("[")),
                OutputKind::Timeline => is_timeline,
                OutputKind::Page => begins("<!"),
                OutputKind::Document(of) => {
                    let value = kind.and_then(|rest| after(&rest, ":"));
                    value.is_some_and(|rest| after(&rest, &format!("\"{of}\"")).is_some())
                }
                OutputKind::Export => begins("punctual store export "),
                OutputKind::Profile => begins("window_index,"),
                OutputKind::Scenario => false,
            }
    }

    /// Refuses a file that this content must not replace, or that would lie in the folder of a store.
    fn check(self, path: &Path, folder: &Path) -> Result<(), String> {
        let what = self.name();
        let ends = |end: &[u8]| path.as_os_str().as_encoded_bytes().ends_with(end);
        let is_model = matches!(self, OutputKind::Document(kind) if kind.ends_with("-model"));
        let reserved = [
            (self != OutputKind::Scenario, ".toml", "scenarios and configurations"),
            (!is_model, ".model.json", "models"),
        ];
        let reserved = reserved.iter().find(|(others, end, _)| *others && ends(end.as_bytes()));
        if let Some((_, end, of)) = reserved {
            return Err(format!("{end} is for {of}: name another file for the {what}"));
        }
        if folder.join("data.mdb").exists() {
            return Err(format!(
                "{} is the folder of a store: name a file elsewhere for the {what}",
                folder.display()
            ));
        }
        let mut text = Vec::new();
        let read = File::open(path).and_then(|file| file.take(BEGINNING_MAX).read_to_end(&mut text));
        match read {
            Ok(_) if self.is_begun_by(&text) => Ok(()),
            Err(missing) if missing.kind() == ErrorKind::NotFound => Ok(()),
            // Perhaps it is not there: its folder cannot be searched, and says so when the file is made.
            Err(_) if path.symlink_metadata().is_err() => Ok(()),
            Ok(_) => Err(format!(
                "is there already, and is no {what}: name another file, or remove it"
            )),
            Err(why) => Err(format!(
                "is there already, and cannot be read ({}): name another file",
                why.kind()
            )),
        }
    }
}

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

/// File that is replaced, and its folder: a symbolic link stays, its target is replaced.
fn target(path: &Path) -> (PathBuf, PathBuf) {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).to_path_buf();
    (path, folder)
}

/// Refuses a file that is named twice, because the last one written would replace the others.
///
/// # Errors
/// [`Failure::Input`] naming both places.
pub fn apart(files: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    let named = |path: &Path| {
        let (path, folder) = target(path);
        let regular = path.metadata().map_or(true, |meta| meta.is_file());
        regular.then(|| (folder.canonicalize().ok(), path.file_name().map(OsString::from)))
    };
    let files = files.iter().filter_map(|(what, path)| Some((*what, (*path)?)));
    let files: Vec<_> = files.collect();
    for (i, (what, path)) in files.iter().enumerate() {
        let is_same = |other: &Path| named(path).is_some_and(|name| Some(name) == named(other));
        let same = files[..i].iter().find(|(_, other)| is_same(other));
        if let Some((first, _)) = same {
            return Err(Failure::at(
                path,
                format!("is named as {what}, but also as {first}: name another file"),
            ));
        }
    }
    Ok(())
}

impl OutputFile {
    /// Checks that `path` can be written with `content`, but creates no file there yet. "-" is standard output: from
    /// now on, printed text goes to standard error, so that a program can parse the output.
    ///
    /// # Errors
    /// [`Failure::Input`] naming the path.
    pub fn prepare(path: &Path, content: OutputKind) -> Result<OutputFile, Failure> {
        if path == Path::new("-") {
            let place = standard_output().map_err(|error| Failure::at(path, format!("no standard output: {error}")))?;
            return Ok(OutputFile {
                path: "standard output".into(),
                place: Place::StandardOutput(place),
            });
        }
        let (path, folder) = target(path);
        let (path, folder) = (path.as_path(), folder.as_path());
        let special = path.metadata().is_ok_and(|meta| !meta.is_file());
        if path.is_dir() {
            return Err(Failure::at(path, "is a folder; name a file in it"));
        }
        let place = if special {
            Place::AsItIs
        } else {
            let cannot = |error: std::io::Error| {
                let why = if folder.is_dir() {
                    error.kind().to_string()
                } else {
                    format!("there is no folder {}", folder.display())
                };
                Failure::at(
                    path,
                    format!("cannot be written: {why}; name a file in a folder that is yours"),
                )
            };
            content.check(path, folder).map_err(|why| Failure::at(path, why))?;
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
    pub fn prepare_some(path: Option<&PathBuf>, content: OutputKind) -> Result<Option<OutputFile>, Failure> {
        path.map(|path| OutputFile::prepare(path, content)).transpose()
    }

    /// [`OutputFile::prepare_some`] for a JSON report.
    pub fn report(path: Option<&PathBuf>) -> Result<Option<OutputFile>, Failure> {
        OutputFile::prepare_some(path, OutputKind::Report)
    }

    /// [`OutputFile::prepare_some`] for a timeline.
    pub fn timeline(path: Option<&PathBuf>) -> Result<Option<OutputFile>, Failure> {
        OutputFile::prepare_some(path, OutputKind::Timeline)
    }

    /// [`OutputFile::prepare_some`] for an HTML page.
    pub fn page(path: Option<&PathBuf>) -> Result<Option<OutputFile>, Failure> {
        OutputFile::prepare_some(path, OutputKind::Page)
    }

    /// [`OutputFile::prepare_some`] for a log of a run.
    pub fn log(path: Option<&PathBuf>) -> Result<Option<OutputFile>, Failure> {
        OutputFile::prepare_some(path, OutputKind::Document(punctual_loop::LOG_KIND))
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
            Failure::at(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_when_it_is_written_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        let output = OutputFile::prepare(&path, OutputKind::Report).unwrap();
        assert!(!path.exists());
        output.json(&[1, 2]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[\n  1,\n  2\n]\n");
        drop(OutputFile::prepare(&path, OutputKind::Report).unwrap());
        assert!(path.exists(), "the old file stays until it is replaced");
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }

    /// A link's target is what is replaced.
    #[test]
    fn a_file_named_twice_is_refused_through_a_link_too() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("x.json"), folder.path().join("link.json"));
        std::fs::write(&file, "{}").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(apart(&[("--json", Some(&file)), ("--trace", Some(&link))]).is_err());
        assert!(
            apart(&[
                ("--json", Some(&file)),
                ("--trace", Some(&folder.path().join("t.json")))
            ])
            .is_ok()
        );
    }

    #[test]
    fn what_cannot_be_written_is_said_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("no/x.json");
        let text = OutputFile::prepare(&missing, OutputKind::Report)
            .unwrap_err()
            .to_string();
        assert!(
            text.starts_with(&format!("{}: cannot be written: ", missing.display())),
            "{text}"
        );
        let text = OutputFile::prepare(folder.path(), OutputKind::Report)
            .unwrap_err()
            .to_string();
        assert!(text.ends_with("is a folder; name a file in it"), "{text}");
    }

    #[test]
    fn a_link_stays_and_so_does_a_mode() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["x.json", "latest.json"].map(|name| folder.path().join(name));
        std::fs::write(&file, "{}").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        OutputFile::prepare(&link, OutputKind::Report)
            .unwrap()
            .text("new")
            .unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn special_files_are_written_in_place() {
        OutputFile::prepare(Path::new("/dev/null"), OutputKind::Report)
            .unwrap()
            .text("x")
            .unwrap();
        let full = OutputFile::prepare(Path::new("/dev/full"), OutputKind::Report)
            .unwrap()
            .text("x")
            .unwrap_err()
            .to_string();
        assert!(full.starts_with("/dev/full: cannot be written: "), "{full}");
    }

    #[test]
    fn only_a_file_of_the_same_content_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [log, model] = ["punctual-log", "punctual-model"].map(OutputKind::Document);
        let can = |name: &str, text: &str, content| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            let refused = OutputFile::prepare(&path, content).err();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            refused.map(|why| why.to_string())
        };
        let timeline = "{\n  \"displayTimeUnit\": \"ms\",\n";
        let of_log = "{\n  \"kind\": \"punctual-log\",\n";
        for (name, text, content) in [
            ("a", "", OutputKind::Page),
            ("a", "{\n  \"scenario\": 1}", OutputKind::Report),
            ("a", timeline, OutputKind::Timeline),
            ("a", "[]", OutputKind::Report),
            ("a", "<!DOCTYPE html>", OutputKind::Page),
            ("a", of_log, log),
            ("a.model.json", "{\"kind\":\"punctual-model\"}", model),
            ("a", "punctual store export 1\n", OutputKind::Export),
            ("a", "window_index,instr_start", OutputKind::Profile),
        ] {
            assert_eq!(can(name, text, content), None, "{text}");
        }
        for (name, text, content) in [
            ("a", "notes", OutputKind::Report),
            ("a", "{\n  \"scenario\": 1}", OutputKind::Timeline),
            ("a", timeline, OutputKind::Report),
            ("a", of_log, OutputKind::Report),
            ("a", of_log, model),
            ("a", "{}", log),
            ("a", "{}", OutputKind::Page),
            ("a.toml", "", OutputKind::Page),
            ("a.model.json", "", OutputKind::Report),
            ("store/data.mdb", "", OutputKind::Export),
            ("store/x.json", "", OutputKind::Report),
        ] {
            let why = can(name, text, content).unwrap();
            assert!(why.contains(name) && why.contains("name "), "{why}");
        }
    }
}
