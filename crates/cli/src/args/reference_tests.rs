//! The guide and the command line are the same: its reference is printed from the parser, and each command in a block
//! of the guide is one that the parser takes.

use std::collections::BTreeSet;

use clap::{Arg, ArgAction, Command, CommandFactory, Parser};
use punctual_testing::guide::{self, item, paragraph};

use super::Arguments;

/// Name and value of an argument, as a usage line shows them.
fn form(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<String> = names.iter().map(|name| format!("<{name}>")).collect();
    let value = match arg.get_action() {
        ArgAction::Set | ArgAction::Append => names.join(" "),
        _ => String::new(),
    };
    let (short, long) = (arg.get_short(), arg.get_long());
    let flags = short
        .map(|short| format!("-{short}"))
        .into_iter()
        .chain(long.map(|long| format!("--{long}")));
    let flags = flags.collect::<Vec<_>>().join(", ");
    format!("{flags} {value}").trim().into()
}

/// Help of an argument, with its values and its default.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let mut text = help.map(|help| help.to_string().replace('\n', " ")).unwrap_or_default();
    let values = arg.get_possible_values();
    if !values.is_empty() && matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) {
        let shown = values.iter().map(|value| match value.get_help() {
            Some(help) => format!("`{}` {help}", value.get_name()),
            None => format!("`{}`", value.get_name()),
        });
        text += &format!(": {}", shown.collect::<Vec<_>>().join("; "));
    }
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let defaults = defaults.collect::<Vec<_>>().join(" ");
    match defaults.as_str() {
        "" | "false" => text,
        _ => format!("{text} [default: {defaults}]"),
    }
}

/// The page, and the entries that it has already.
#[derive(Default)]
struct Reference {
    page: String,
    entries: BTreeSet<String>,
}

impl Reference {
    /// Prints a command, then those below it.
    fn print(&mut self, command: &Command, words: &str) {
        let is_shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
        let args: Vec<&Arg> = command.get_arguments().filter(is_shown).collect();
        if !args.is_empty() || !command.has_subcommands() {
            let positions = command.get_positionals().map(|arg| {
                let form = form(arg);
                match arg.is_required_set() {
                    true => form,
                    false => format!("[{}]", form.replace(['<', '>'], "")),
                }
            });
            let usage = [words.to_string()].into_iter().chain(positions).collect::<Vec<_>>();
            let about = command.get_long_about().or_else(|| command.get_about());
            let about = about.map(|about| about.to_string()).unwrap_or_default();
            self.page += &format!("## `{}`\n\n", usage.join(" "));
            for text in about.split("\n\n") {
                let end = if text.ends_with(['.', ':']) { "" } else { "." };
                self.page += &format!("{}\n", paragraph(&format!("{text}{end}")));
            }
            self.arguments(&args);
        }
        let is_below = |below: &&Command| !below.is_hide_set() && below.get_name() != "help";
        for below in command.get_subcommands().filter(is_below) {
            self.print(below, &format!("{words} {}", below.get_name()));
        }
    }

    /// Prints a list; an option that has stood with the same meaning before is only named.
    fn arguments(&mut self, args: &[&Arg]) {
        let mut known = Vec::new();
        for arg in args {
            let entry = item(&form(arg), &meaning(arg));
            match self.entries.insert(entry.clone()) {
                true => self.page += &entry,
                false => known.push(form(arg)),
            }
        }
        if !known.is_empty() {
            self.page += &item(&known.join("`, `"), "as above");
        }
        self.page += "\n";
    }
}

#[test]
fn the_guide_has_every_command_and_option() {
    let mut reference = Reference::default();
    reference.print(&Arguments::command(), "punctual");
    guide::holds("reference/command-line.md", "commands", &reference.page);
}

/// Splits a line of a shell into words, up to a comment, a pipe or a redirection.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (letter, quote) {
            (_, Some(end)) if letter == end => quote = None,
            (_, Some(_)) => word.get_or_insert_default().push(letter),
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            ('#' | '|' | '>' | '&' | ';', None) if word.is_none() => break,
            ('|' | ';' | '&', None) => break,
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Yields place, line and words of each command `punctual ..` in the blocks of the guide.
fn commands_of_the_guide() -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for block in guide::blocks() {
        if ["sh", "console"].contains(&block.kind.as_str()) {
            let text = block.text.replace("\\\n", " ");
            let lines = text.lines().map(|line| line.trim().trim_start_matches("$ "));
            let lines = lines.filter(|line| line.starts_with("punctual "));
            found.extend(lines.map(|line| (format!("{}: {line}", block.place), words(line))));
        }
    }
    found
}

#[test]
fn the_parser_takes_every_command_of_the_guide() {
    let commands = commands_of_the_guide();
    assert!(commands.len() >= 25, "{} commands", commands.len());
    for (place, words) in commands {
        if let Err(error) = Arguments::try_parse_from(&words) {
            assert!(!error.use_stderr(), "{place}: {error}");
        }
    }
    assert_eq!(
        words("punctual run 'a b' --json -  # text"),
        ["punctual", "run", "a b", "--json", "-"]
    );
    assert!(Arguments::try_parse_from(words("punctual run --no-such-option")).is_err());
}

/// The dashboard in `packaging/grafana` asks for figures that the guide's reference has.
#[test]
fn the_dashboard_asks_for_figures_that_there_are() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).expect(path);
    let (dashboard, figures) = (
        read("packaging/grafana/punctual.json"),
        read("docs/guide/reference/figures.md"),
    );
    let names = |text: &str| -> BTreeSet<String> {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let names = words.filter(|word| word.starts_with("punctual_"));
        names.map(str::to_string).collect()
    };
    let (asked, there) = (names(&dashboard), names(&figures));
    assert!(asked.len() >= 10, "{asked:?}");
    let gone: Vec<_> = asked.difference(&there).collect();
    assert!(gone.is_empty(), "{gone:?}");
}
