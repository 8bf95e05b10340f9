//! Everything that is wrong with a scenario, gathered so that the user sees it at once.

use super::nearest::nearest;
use super::set::Override;
use super::tree::{Entries, Origin, Value};

/// Problems and known keys, gathered while a scenario is read.
#[derive(Debug, Default)]
pub struct Report {
    problems: Vec<(Origin, String)>,
    unknown: Vec<(Origin, String)>,
    /// Every key that the reader asked for, whether it was there or not.
    known: Vec<String>,
}

impl Report {
    /// Notes that the value of `key` is wrong.
    pub fn problem(&mut self, origin: Origin, key: &str, what: impl AsRef<str>) {
        self.problems.push((origin, format!("{key}: {}", what.as_ref())));
    }

    /// Notes that the document could not be read at all at this place.
    pub fn syntax(&mut self, line: usize, what: &str) {
        self.problems.push((Origin::Line(line), format!("not TOML: {what}")));
    }

    /// Notes a key that no reader asked for.
    pub fn unknown(&mut self, origin: Origin, key: String) {
        self.unknown.push((origin, key));
    }

    /// Notes a key that a scenario may have.
    pub fn known(&mut self, key: String) {
        self.known.push(key);
    }

    /// Every key that the reader asked for.
    #[cfg(test)]
    pub fn known_keys(&self) -> &[String] {
        &self.known
    }

    /// Whether every value could be read, so that what was built from them means something.
    pub fn readable(&self) -> bool {
        self.problems.is_empty()
    }

    /// One line per problem, in the order of the file, then of the command line.
    pub fn lines(mut self, file: &str, overrides: &[Override]) -> Vec<String> {
        for (origin, key) in std::mem::take(&mut self.unknown) {
            let text = format!("{key}: unknown key; {}", nearest(&key, &self.known));
            self.problems.push((origin, text));
        }
        self.problems.sort_by_key(|(origin, _)| *origin);
        let line = |(origin, text): &(Origin, String)| format!("{}: {text}", place(*origin, file, overrides));
        self.problems.iter().map(line).collect()
    }
}

/// A place in words: the file and the line, or the option that the user wrote.
pub fn place(origin: Origin, file: &str, overrides: &[Override]) -> String {
    match origin {
        Origin::Document => file.to_string(),
        Origin::Line(line) => format!("{file}:{line}"),
        Origin::Override(i) => overrides[i].written.clone(),
    }
}

/// Where `key` (such as `task[0].period`) was written, or else the innermost table around it that was.
pub fn origin_of(document: &Entries, key: &str) -> Origin {
    let mut origin = Origin::Document;
    let mut entries = document;
    for part in key.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<usize>().ok()),
            None => (part, None),
        };
        let Some(mut node) = entries.get(name) else { break };
        if let (Some(i), Value::List(items)) = (index, &node.value) {
            let Some(item) = items.get(i) else { break };
            node = item;
        }
        origin = node.origin;
        match &node.value {
            Value::Table(inner) => entries = inner,
            _ => break,
        }
    }
    origin
}
