//! Reads one table of a document, key by key, and records every problem.
//!
//! Not serde: its first error ends the reading, and it does not know whether a value came from the file or from the
//! command line. Every reader returns a placeholder after a problem, so that the rest can be read; the caller must
//! check the report before using the values.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use punctual_platform::CoreChoice;
use punctual_units::{CoreId, Nanos, Share};

use crate::report::{ProblemList, origin_of, place, quoted};
use crate::time::parse_time;
use crate::tree::{Entries, Origin, Toml, TreeNode};

/// More cores than any machine that Linux is built for; limits the size of ranges.
const CORES_MAX: u32 = 8_192;

/// Reader of a table.
pub struct Section<'r, 't> {
    report: &'r mut ProblemList,
    entries: Option<&'t Entries>,
    origin: Origin,
    /// Key path of the table with its final dot, or empty for the top.
    prefix: String,
}

impl<'r, 't> Section<'r, 't> {
    /// Reader of the top of a document.
    pub fn top(entries: &'t Entries, report: &'r mut ProblemList) -> Self {
        Section {
            report,
            entries: Some(entries),
            origin: Origin::Document,
            prefix: String::new(),
        }
    }

    /// Reads the table at `key` with `read`; a missing table reads like an empty one.
    pub fn table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_, 't>) -> T) -> T {
        let node = self.find(key);
        let path = self.path(key);
        self.inner(node, &path, read)
    }

    /// Reads the table at `key` with `read`, if it is there.
    pub fn table_if<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_, 't>) -> T) -> Option<T> {
        self.has(key).then(|| self.table(key, read))
    }

    /// Reads each table of the list at `key`.
    pub fn tables<T>(&mut self, key: &'static str, mut read: impl FnMut(&mut Section<'_, 't>) -> T) -> Vec<T> {
        let Some(node) = self.find(key) else { return Vec::new() };
        let path = self.path(key);
        match &node.value {
            Toml::List(items) => items
                .iter()
                .enumerate()
                .map(|(i, item)| self.inner(Some(item), &format!("{path}[{i}]"), &mut read))
                .collect(),
            other => {
                let found = other.describe();
                let what = format!("expected a list of tables, each under [[{key}]], found {found}");
                self.report.unreadable(node.origin, &path, what);
                Vec::new()
            }
        }
    }

    fn inner<T>(&mut self, node: Option<&'t TreeNode>, path: &str, read: impl FnOnce(&mut Section<'_, 't>) -> T) -> T {
        let entries = match node.map(|node| (&node.value, node.origin)) {
            Some((Toml::Table(entries), _)) => Some(entries),
            Some((other, origin)) => {
                let what = format!("expected a table, found {}", other.describe());
                self.report.unreadable(origin, path, what);
                None
            }
            None => None,
        };
        read(&mut Section {
            report: self.report,
            entries,
            origin: node.map_or(self.origin, |node| node.origin),
            prefix: format!("{path}."),
        })
    }

    /// Reports the keys of the document that no reader asked for. Called after everything was read.
    pub fn finish(self) {
        if let Some(entries) = self.entries {
            self.report.find_unknown(entries, &self.prefix);
        }
    }

    /// Records a problem of `key`, at its place if present, else at the table's. A key of an inner table is written
    /// with its path, such as `steps[3].volt`.
    pub fn complain(&mut self, key: &str, what: impl AsRef<str>) {
        let (origin, path) = (self.origin_of(key), self.path(key));
        self.report.problem(origin, &path, what);
    }

    /// Reports a missing `key` with a hint. Not in a table that is missing itself.
    pub fn require(&mut self, key: &'static str, hint: &str) {
        if !self.has(key) && self.entries.is_some() {
            let (origin, path) = (self.origin_of(key), self.path(key));
            self.report.unreadable(origin, &path, format!("missing: {hint}"));
        }
    }

    /// Value of a key that must be there, else a placeholder.
    pub fn needed<T: Default>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Self, &'static str) -> Option<T>,
    ) -> T {
        self.require(key, "give it a value");
        read(self, key).unwrap_or_default()
    }

    /// Pair of values in a list that must be there, else placeholders.
    pub fn pair<T: Copy + Default>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Self, &'static str) -> Option<Vec<T>>,
    ) -> [T; 2] {
        self.needed(key, |section, key| {
            let pair = read(section, key)?
                .try_into()
                .map_err(|_| "expected two numbers".to_string());
            section.checked(key, pair)
        })
    }

    /// Number at a path through tables that must be there, such as `power.core.static-mw-per-v2`; `usual` stands in for
    /// a missing one.
    pub fn number_at(&mut self, path: &'static str, usual: Option<f64>) -> f64 {
        match (path.split_once('.'), usual) {
            (Some((table, rest)), _) => self.needed_table(table, |inner| inner.number_at(rest, usual)),
            (None, Some(usual)) => self.number(path).unwrap_or(usual),
            (None, None) => self.needed(path, Self::number),
        }
    }

    /// Reads the table at `key`, which must be there, with `read`.
    pub fn needed_table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_, 't>) -> T) -> T {
        self.require(key, "add this table");
        self.table(key, read)
    }

    /// Place of `key` in the file `shown`, and its path, for problems that only show later.
    pub fn place_of(&self, key: &str, shown: &str) -> String {
        format!("{}: {}", place(self.origin_of(key), shown, &[]), self.path(key))
    }

    /// Whether every value so far could be read.
    pub fn is_readable(&self) -> bool {
        self.report.readable()
    }

    /// Whether `key` is present.
    pub fn has(&mut self, key: &'static str) -> bool {
        self.find(key).is_some()
    }

    /// Whether `key` holds a text.
    pub fn is_text(&mut self, key: &'static str) -> bool {
        self.find(key).is_some_and(|node| matches!(node.value, Toml::Text(_)))
    }

    /// Text of a key.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        self.value(key, text)
    }

    /// Text of a key, parsed; `expected` says how to write it.
    pub fn parsed<T: FromStr>(&mut self, key: &'static str, expected: &str) -> Option<T> {
        let value = self.text(key)?.parse().map_err(|_| format!("expected {expected}"));
        self.checked(key, value)
    }

    /// Text that may be a secret: `None` for another type, without a problem that would print the value.
    pub fn secret(&mut self, key: &'static str) -> Option<String> {
        text(&self.find(key)?.value).ok()
    }

    /// Texts in a list, such as program names.
    pub fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        let expected = "a list of texts such as [\"chronyd\"]";
        let item = |item: &Toml| text(item).or_else(|_| unexpected(expected, item).map_err(|what| what + " in it"));
        self.value(key, |value| list(value, expected, item))
    }

    /// Texts of all keys of the table, which has no others.
    pub fn all_texts(&mut self) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        for (key, node) in self.entries.into_iter().flatten() {
            self.report.known(self.path(&quoted(key)));
            match text(&node.value) {
                Ok(text) => drop(texts.insert(key.clone(), text)),
                Err(what) => self.complain(key, what),
            }
        }
        texts
    }

    /// Choice among a few words.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        self.value(key, |value| {
            let is_it = |(name, _): &&(&str, T)| matches!(value, Toml::Text(text) if text == name);
            let names = || {
                choices
                    .iter()
                    .map(|(name, _)| format!("\"{name}\""))
                    .collect::<Vec<_>>()
            };
            let found = choices.iter().find(is_it).map(|(_, choice)| *choice);
            found.map_or_else(|| unexpected(&names().join(" or "), value), Ok)
        })
    }

    /// Cores: a list, a range as text, or those isolated by the kernel's boot options.
    pub fn cores(&mut self, key: &'static str) -> Option<CoreChoice> {
        self.value(key, cores)
    }

    /// Number of a key, with or without fraction.
    pub fn number(&mut self, key: &'static str) -> Option<f64> {
        self.value(key, number)
    }

    /// Share of a whole, 0 to 1.
    pub fn share(&mut self, key: &'static str) -> Option<Share> {
        let share = |x| Share::new(x).map_err(|error| error.to_string());
        self.value(key, |value| number(value).and_then(share))
    }

    /// Share in percent, such as `"1 %"`, or as a number from 0 to 1.
    pub fn percent(&mut self, key: &'static str) -> Option<Share> {
        self.value(key, percent)
    }

    /// Numbers in a list, with or without fraction.
    pub fn numbers(&mut self, key: &'static str) -> Option<Vec<f64>> {
        self.value(key, |value| list(value, "a list of numbers such as [0.5, 1.0]", number))
    }

    /// Flag: true or false.
    pub fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.value(key, |value| match value {
            Toml::Flag(flag) => Ok(*flag),
            other => unexpected("true or false", other),
        })
    }

    /// Whole number within the range of `N`.
    pub fn count<N: TryFrom<i64>>(&mut self, key: &'static str) -> Option<N> {
        self.value(key, |value| count(value, "a whole number"))
    }

    /// List of whole numbers from 0 on.
    pub fn counts(&mut self, key: &'static str) -> Option<Vec<u32>> {
        let expected = "a list of whole numbers such as [1, 1]";
        let item = |item: &Toml| match item {
            Toml::Integer(_) => count(item, expected),
            other => unexpected(expected, other).map_err(|what| what + " in it"),
        };
        self.value(key, |value| list(value, expected, item))
    }

    /// Value of a key that must lie in `range`.
    pub fn within<T: Setting>(&mut self, key: &'static str, range: RangeInclusive<T>) -> Option<T> {
        let (value, low, high) = (T::read(self, key)?, range.start(), range.end());
        let checked = match range.contains(&value) {
            true => Ok(value),
            false => Err(format!("{value} is out of range: {low} to {high}")),
        };
        self.checked(key, checked)
    }

    /// Takes the value of a key that must lie in `range`; without the key, `value` stays.
    pub fn update<T: Setting>(&mut self, key: &'static str, range: RangeInclusive<T>, value: &mut T) {
        if let Some(given) = self.within(key, range) {
            *value = given;
        }
    }

    /// Time with its unit, such as `"100ms"`.
    pub fn time(&mut self, key: &'static str) -> Option<Nanos> {
        self.value(key, time)
    }

    /// Time with its unit, or `"none"`.
    pub fn time_or_none(&mut self, key: &'static str) -> Option<Option<Nanos>> {
        self.value(key, |value| match value {
            Toml::Text(text) if text == "none" => Ok(None),
            other => time(other).map(Some).map_err(|what| format!("{what}, or \"none\"")),
        })
    }

    /// Pair of times, the shorter one first.
    pub fn times(&mut self, key: &'static str) -> Option<(Nanos, Nanos)> {
        let expected = "two times, the shorter one first, such as [\"50ms\", \"150ms\"]";
        self.value(key, |value| match value {
            Toml::List(items) => match items.as_slice() {
                [low, high] => Ok((time(&low.value)?, time(&high.value)?)),
                _ => Err(format!("expected {expected}, found {} of them", items.len())),
            },
            other => unexpected(expected, other),
        })
    }

    fn value<T>(&mut self, key: &'static str, read: impl FnOnce(&Toml) -> Result<T, String>) -> Option<T> {
        let value = read(&self.find(key)?.value);
        self.checked(key, value)
    }

    fn checked<T>(&mut self, key: &str, value: Result<T, String>) -> Option<T> {
        let (origin, path) = (self.origin_of(key), self.path(key));
        value.map_err(|what| self.report.unreadable(origin, &path, what)).ok()
    }

    fn find(&mut self, key: &'static str) -> Option<&'t TreeNode> {
        let path = self.path(key);
        self.report.known(path);
        self.entries?.get(key)
    }

    fn origin_of(&self, key: &str) -> Origin {
        match self.entries.map(|entries| origin_of(entries, key)) {
            None | Some(Origin::Document) => self.origin,
            Some(found) => found,
        }
    }

    fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}

/// Types of values that have a range.
pub trait Setting: PartialOrd + Display + Sized {
    /// Reads the value of `key`.
    fn read(section: &mut Section<'_, '_>, key: &'static str) -> Option<Self>;
}

impl Setting for usize {
    fn read(section: &mut Section<'_, '_>, key: &'static str) -> Option<usize> {
        section.count(key)
    }
}

impl Setting for u64 {
    fn read(section: &mut Section<'_, '_>, key: &'static str) -> Option<u64> {
        section.count(key)
    }
}

impl Setting for Nanos {
    fn read(section: &mut Section<'_, '_>, key: &'static str) -> Option<Nanos> {
        section.time(key)
    }
}

fn unexpected<T>(expected: &str, found: &Toml) -> Result<T, String> {
    Err(format!("expected {expected}, found {}", found.describe()))
}

fn list<T>(value: &Toml, expected: &str, item: impl Fn(&Toml) -> Result<T, String>) -> Result<Vec<T>, String> {
    match value {
        Toml::List(items) => items.iter().map(|node| item(&node.value)).collect(),
        other => unexpected(expected, other),
    }
}

fn text(value: &Toml) -> Result<String, String> {
    match value {
        Toml::Text(text) => Ok(text.clone()),
        other => unexpected("a text in quotes", other),
    }
}

fn count<N: TryFrom<i64>>(value: &Toml, expected: &str) -> Result<N, String> {
    match value {
        Toml::Integer(n) => N::try_from(*n).map_err(|_| {
            let right = if *n < 0 {
                "a number from 0 on"
            } else {
                "a smaller number"
            };
            format!("{n} is out of range: write {right}")
        }),
        other => unexpected(expected, other),
    }
}

fn number(value: &Toml) -> Result<f64, String> {
    match value {
        Toml::Float(x) => Ok(*x),
        Toml::Integer(n) => Ok(*n as f64),
        other => unexpected("a number", other),
    }
}

fn cores(value: &Toml) -> Result<CoreChoice, String> {
    let core = |item: &TreeNode| match item.value {
        Toml::Integer(core) => u32::try_from(core).ok().map(CoreId),
        _ => None,
    };
    let cores = match value {
        Toml::Text(text) if text == "isolated" => return Ok(CoreChoice::Isolated),
        Toml::Text(text) => cores_in(text),
        Toml::List(items) => items.iter().map(core).collect(),
        _ => None,
    };
    match cores {
        Some(cores) if !cores.is_empty() => Ok(CoreChoice::These(cores)),
        _ => unexpected("cores such as [2, 3] or \"2-3\", or \"isolated\"", value),
    }
}

/// Cores in a text such as "2-3,5"; `None` if a part is no core or range.
fn cores_in(text: &str) -> Option<Vec<CoreId>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last < CORES_MAX).then_some(first..=last)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    Some(ranges?.into_iter().flatten().map(CoreId).collect())
}

fn percent(value: &Toml) -> Result<Share, String> {
    let hint = "write a share of jobs such as \"1 %\" or 0.01";
    let share = match value {
        Toml::Text(text) => {
            let number = text.trim().strip_suffix('%').map(|number| number.trim().parse::<f64>());
            match number {
                Some(Ok(percent)) => percent / 100.0,
                _ => return Err(format!("\"{text}\" is not a percentage; {hint}")),
            }
        }
        other => number(other).map_err(|what| format!("{what}; {hint}"))?,
    };
    Share::new(share).map_err(|error| format!("{error}; {hint}"))
}

fn time(value: &Toml) -> Result<Nanos, String> {
    match value {
        Toml::Text(text) => parse_time(text),
        other => unexpected("a time with its unit, such as \"100ms\"", other),
    }
}
