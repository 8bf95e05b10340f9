//! Problems of a file, collected so that the user sees all at once.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::nearest::nearest;
use crate::overrides::Override;
use crate::tree::{self, Entries, NotToml, Origin, Toml};

/// Problems and known keys, collected while a file is read.
#[derive(Debug, Default)]
pub struct ProblemList {
    problems: Vec<(Origin, String)>,
    recorded: BTreeSet<(Origin, String)>,
    /// Keys that are missing, or whose values could not be read: one problem each is enough.
    unreadable: BTreeSet<String>,
    unknown: Vec<(Origin, String)>,
    /// Keys that the reader asked for, present or not, in this order.
    known: Vec<String>,
    sorted: BTreeSet<String>,
}

impl ProblemList {
    /// Records that the value of `key` could not be read; later problems of that key, and within it, say nothing more.
    pub fn unreadable(&mut self, origin: Origin, key: &str, what: impl AsRef<str>) {
        self.problem(origin, key, what);
        self.unreadable.insert(key.to_owned());
    }

    /// Records that the value of `key` is wrong, once.
    pub fn problem(&mut self, origin: Origin, key: &str, what: impl AsRef<str>) {
        let mut tables = key.match_indices(['.', '[']).map(|(at, _)| &key[..at]);
        if self.unreadable.contains(key) || tables.any(|table| self.unreadable.contains(table)) {
            return;
        }
        let problem = (origin, format!("{key}: {}", what.as_ref()));
        if self.recorded.insert(problem.clone()) {
            self.problems.push(problem);
        }
    }

    /// Parses a document; `None` after syntax errors, which are recorded.
    pub fn document(&mut self, text: &str) -> Option<Entries> {
        let errors = match tree::parse(text).map(|node| node.value) {
            Ok(Toml::Table(document)) => return Some(document),
            Ok(_) => Vec::new(),
            Err(errors) => errors,
        };
        let problem = |error: NotToml| (Origin::Line(error.line), format!("not TOML: {}", error.what));
        self.problems.extend(errors.into_iter().map(problem));
        None
    }

    /// Records the keys of a table that no reader asked for, and those of tables within it that were read. `prefix` is
    /// its key path with the final dot.
    pub fn find_unknown(&mut self, entries: &Entries, prefix: &str) {
        let first = self.sorted.range(prefix.to_string()..).next();
        if !first.is_some_and(|known| known.starts_with(prefix)) {
            return;
        }
        for (key, node) in entries {
            let path = format!("{prefix}{}", quoted(key));
            match &node.value {
                _ if !self.sorted.contains(&path) => self.unknown.push((node.origin, path)),
                Toml::Table(inner) => self.find_unknown(inner, &format!("{path}.")),
                Toml::List(items) => {
                    for (i, item) in items.iter().enumerate() {
                        if let Toml::Table(inner) = &item.value {
                            self.find_unknown(inner, &format!("{path}[{i}]."));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Records a valid key.
    pub fn known(&mut self, key: String) {
        if self.sorted.insert(key.clone()) {
            self.known.push(key);
        }
    }

    /// Keys that the reader asked for.
    pub fn known_keys(&self) -> &[String] {
        &self.known
    }

    /// Whether every value could be read, so that the result is meaningful.
    pub fn readable(&self) -> bool {
        self.problems.is_empty()
    }

    /// The problems, one line each, in the order of the file, then of the command line.
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

/// A key as a path has it: in quotes, where its own dots or brackets would look like those of the path.
pub(crate) fn quoted(key: &str) -> Cow<'_, str> {
    match key.contains(['.', '[', '"']) {
        true => Cow::Owned(format!("{key:?}")),
        false => Cow::Borrowed(key),
    }
}

/// Text of a place: file and line, or the option as typed.
pub fn place(origin: Origin, file: &str, overrides: &[Override]) -> String {
    match origin {
        Origin::Document => file.to_string(),
        Origin::Line(line) => format!("{file}:{line}"),
        Origin::Override(i) => overrides[i].written.clone(),
    }
}

/// Place at which `key` (such as `task[0].period`) was written, else that of the innermost table around it.
pub fn origin_of(document: &Entries, key: &str) -> Origin {
    let mut origin = Origin::Document;
    let mut entries = document;
    for part in key.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<usize>().ok()),
            None => (part, None),
        };
        let Some(mut node) = entries.get(name) else { break };
        if let (Some(i), Toml::List(items)) = (index, &node.value) {
            let Some(item) = items.get(i) else { break };
            node = item;
        }
        origin = node.origin;
        match &node.value {
            Toml::Table(inner) => entries = inner,
            _ => break,
        }
    }
    origin
}
