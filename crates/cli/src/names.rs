//! Former names of commands and options, answered with the present ones.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The program of the evaluation, as it is started in a clone of this project.
const LAB: &str = "cargo run --release -p punctual-lab --";

/// Former commands, as the first words after the program, and the present ones; `lab` if they are of that program.
const COMMANDS: [(&str, &str); 24] = [
    ("federation sim", "lab cluster sim"),
    ("federation load", "lab cluster load"),
    ("federation run", "lab cluster run"),
    ("federation watch", "top ADDRESS"),
    ("cluster watch", "top ADDRESS"),
    ("federation balance", "cluster balance"),
    ("federation log", "cluster log"),
    ("federation found", "cluster found"),
    ("federation", "cluster"),
    ("cluster sim", "lab cluster sim"),
    ("cluster load", "lab cluster load"),
    ("bench", "lab bench"),
    ("experiment", "lab experiment"),
    ("radio", "lab radio"),
    ("run fm", "lab run fm"),
    ("scenario list", "new"),
    ("scenario show", "new NAME -"),
    ("scenario", "new"),
    ("identify", "model learn"),
    ("design", "model design"),
    ("restore", "doctor --restore"),
    ("serve hash", "serve --hash"),
    ("profile trace", "profile -- PROGRAM"),
    ("profile show", "profile FILE"),
];

/// Former options, and the present ones.
const OPTIONS: [(&str, &str); 4] = [
    ("--seconds", "--duration TIME, such as --duration 10s"),
    ("--deadline-ms", "--deadline TIME, such as --deadline 500ms"),
    ("--rounds", "--repetitions N"),
    ("--identify-duration", "--learn-duration TIME"),
];

/// The present name of a command that is typed by its former one; `typed` are the words after the program.
pub fn command(typed: &[OsString]) -> Option<String> {
    let words: Vec<&str> = typed.iter().map_while(|word| word.to_str()).collect();
    let is_typed = |former: &str| {
        let mut former = former.split(' ');
        let mut words = words.iter();
        former.all(|word| words.next() == Some(&word))
    };
    let (former, present) = COMMANDS.iter().find(|(former, _)| is_typed(former))?;
    if let Some(scenario) = former.strip_prefix("run ")
        && Path::new(scenario).exists()
    {
        return None; // a file of the user
    }
    Some(match present.strip_prefix("lab ") {
        None => format!("`{former}` is now `{present}`: punctual {present}"),
        Some(present) => format!("`{former}` is in the program punctual-lab: {LAB} {present}"),
    })
}

/// The present name of the option at which clap failed, if it has one.
pub fn option(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let typed = typed.split([' ', '=']).next()?;
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let (former, present) = OPTIONS.iter().find(|(former, _)| *former == typed)?;
            Some(format!("`{former}` is now `{present}`"))
        }
        ErrorKind::InvalidValue if typed == "--json" && is_empty(error) => {
            Some("--json takes a file, or - for standard output: --json report.json, --json -".into())
        }
        _ => None,
    }
}

/// Whether the option that clap refused has no value.
fn is_empty(error: &clap::Error) -> bool {
    matches!(
        error.get(ContextKind::InvalidValue),
        None | Some(ContextValue::String(_))
    ) && !matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Arguments;
    use clap::{CommandFactory, Parser};

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn former_commands_are_answered_and_present_ones_are_not() {
        let answer = |line: &str| command(&words(line));
        let renamed = answer("federation run --nodes 3").unwrap_or_default();
        assert!(renamed.contains("punctual-lab -- cluster run"), "{renamed}");
        let moved = answer("bench store").unwrap_or_default();
        assert!(moved.contains("punctual-lab"), "{moved}");
        for line in [
            "run robot.toml",
            "top robot",
            "cluster run",
            "profile x.csv",
            "store inspect x",
            "model learn",
        ] {
            assert_eq!(answer(line), None, "{line}");
        }
    }

    #[test]
    fn the_present_names_are_there() {
        let product = Arguments::command();
        for (_, present) in COMMANDS.iter().filter(|(_, present)| !present.starts_with("lab ")) {
            let mut at = &product;
            for word in present
                .split(' ')
                .take_while(|word| word.chars().all(|c| c.is_ascii_lowercase()))
            {
                at = at
                    .find_subcommand(word)
                    .unwrap_or_else(|| panic!("no command {present}"));
            }
        }
    }

    #[test]
    fn former_options_are_answered() {
        let answer = |line: &str| {
            let error = Arguments::try_parse_from(line.split(' ')).expect_err(line);
            option(&error)
        };
        let seconds = answer("punctual cluster run --seconds 5").unwrap_or_default();
        assert!(seconds.contains("`--duration TIME"), "{seconds}");
        assert_eq!(answer("punctual serve --log x"), None);
        let json = answer("punctual run --json --plain").unwrap_or_default();
        assert!(json.contains("--json -"), "{json}");
        assert_eq!(answer("punctual run --unknown"), None);
    }
}
