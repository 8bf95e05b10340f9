//! `punctual scenario`: prints the built-in scenarios, as examples and as a start for your own.

use super::print;
use crate::args::ScenarioCommand;
use crate::builtin;
use crate::failure::Failure;

/// Carries out `punctual scenario`.
pub fn scenario(what: &ScenarioCommand) -> Result<(), Failure> {
    match what {
        ScenarioCommand::List => print(&list()),
        ScenarioCommand::Show { name } => {
            let text = builtin::scenario(name).and_then(builtin::text);
            print(text.ok_or_else(|| {
                Failure::input([format!(
                    "{}: no built-in scenario; there are {}",
                    name.display(),
                    names().collect::<Vec<_>>().join(", ")
                )])
            })?)
        }
    }
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
