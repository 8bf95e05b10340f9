//! `punctual new`: lists the built-in scenarios, or writes one, or a crate, as a start for your own.

use std::path::Path;
use std::{fs, io};

use super::print;
use crate::args::New;
use punctual_files::builtin;
use punctual_files::failure::Failure;
use punctual_report::output::{OutputFile, OutputKind};

/// Name of the crate beside those of scenarios.
const CRATE: &str = "crate";

/// Carries out `punctual new`.
pub fn new(arguments: &New) -> Result<(), Failure> {
    let Some(asked) = &arguments.scenario else {
        return print(&list());
    };
    if asked == Path::new(CRATE) {
        return new_crate(arguments.file.as_deref().unwrap_or(Path::new("robot")));
    }
    let path = builtin::scenario(asked).ok_or_else(|| {
        let names = names().collect::<Vec<_>>().join(", ");
        Failure::at(asked, format!("no built-in scenario; there are {names} and {CRATE}"))
    })?;
    let text = builtin::text(path).unwrap_or_default();
    let file = match &arguments.file {
        Some(file) => file.as_path(),
        None => Path::new(path.trim_start_matches("scenarios/")),
    };
    if file == Path::new("-") {
        return print(text);
    }
    if file.is_file() {
        let why = format!("{} already exists; choose a new file", file.display());
        return Err(Failure::of(why));
    }
    OutputFile::prepare(file, OutputKind::Scenario)?.text(text)?;
    print(&format!("written to {}: punctual run {0}\n", file.display()))
}

/// Writes a crate with the guide's robot. It depends on the clone that this program was built from while that is there,
/// or else on this version of `punctual`.
fn new_crate(folder: &Path) -> Result<(), Failure> {
    let program = builtin::text("robot.rs").unwrap_or_default();
    if folder == Path::new("-") {
        return print(program);
    }
    let front = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../punctual/Cargo.toml")).canonicalize();
    let (dependency, first) = match front.as_deref().ok().and_then(Path::parent) {
        Some(front) => (format!("{{ path = {front:?} }}"), ""),
        None => (
            format!("{:?}", env!("CARGO_PKG_VERSION")),
            "cargo add punctual --path CLONE/crates/punctual && ",
        ),
    };
    let manifest = format!(
        "[package]\nname = \"robot\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\npunctual = {dependency}\n\n\
         # A workspace of its own, also in a folder of another one.\n[workspace]\n"
    );
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::of(format!("{} already exists; choose a new folder", folder.display()))
        }
        _ => Failure::at(folder, error),
    };
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent).map_err(|error| Failure::at(folder, error))?;
    }
    // Made by this process alone: nothing in it is another's.
    fs::create_dir(folder).map_err(failed)?;
    let written = { fs::create_dir(folder.join("src")) }
        .and_then(|()| fs::write(folder.join("Cargo.toml"), manifest))
        .and_then(|()| fs::write(folder.join("src/main.rs"), program));
    written.map_err(|error| {
        let _ = fs::remove_dir_all(folder);
        Failure::at(folder, error)
    })?;
    print(&format!(
        "written to {}: cd {0} && {first}cargo run --release\n",
        folder.display()
    ))
}

/// Lists the scenarios, each with the first line of its text, and the crate.
fn list() -> String {
    let line = |name: &str| {
        let text = builtin::text(&format!("scenarios/{name}.toml")).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("# ");
        format!("{name:<14} {first}\n")
    };
    names().map(line).collect::<String>() + &format!("{CRATE:<14} A robot in Rust: a task, and a sensor.\n")
}

fn names() -> impl Iterator<Item = &'static str> {
    builtin::scenarios().map(|path| path.trim_start_matches("scenarios/").trim_end_matches(".toml"))
}
