//! `punctual new`: lists the built-in scenarios, or writes one to a file as a start for your own.

use std::path::Path;

use super::print;
use crate::args::New;
use punctual_files::builtin;
use punctual_files::failure::Failure;
use punctual_report::output::{OutputFile, OutputKind};

/// Carries out `punctual new`.
pub fn new(arguments: &New) -> Result<(), Failure> {
    let Some(asked) = &arguments.scenario else {
        return print(&list());
    };
    let path = builtin::scenario(asked).ok_or_else(|| {
        let names = names().collect::<Vec<_>>().join(", ");
        Failure::at(asked, format!("no built-in scenario; there are {names}"))
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

/// Lists the scenarios, each with the first line of its text.
fn list() -> String {
    let line = |name: &str| {
        let text = builtin::text(&format!("scenarios/{name}.toml")).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("# ");
        format!("{name:<14} {first}\n")
    };
    names().map(line).collect()
}

fn names() -> impl Iterator<Item = &'static str> {
    builtin::scenarios().map(|path| path.trim_start_matches("scenarios/").trim_end_matches(".toml"))
}
