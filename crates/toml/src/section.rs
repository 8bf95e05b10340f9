//! Reads one table of a document, key by key, and records every problem.
//!
//! Not serde: its first error ends the reading, and it does not know whether a value came from the file or from the
//! command line. Every reader returns a placeholder after a problem, so that the rest can be read; the caller must
//! check the report before using the values.

use punctual_platform::CoreChoice;
use punctual_units::{CoreId, Nanos, Share};

use crate::report::ProblemList;
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
    asked: Vec<&'static str>,
}

impl<'r, 't> Section<'r, 't> {
    /// Reader of the top of a document.
    pub fn top(entries: &'t Entries, report: &'r mut ProblemList) -> Self {
        Section {
            report,
            entries: Some(entries),
            origin: Origin::Document,
            prefix: String::new(),
            asked: Vec::new(),
        }
    }

    /// Reads the table at `key` with `read`; a missing table reads like an empty one.
    pub fn table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_, 't>) -> T) -> T {
        let node = self.find(key);
        let path = self.path(key);
        self.inner(node, &path, read)
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
                self.report.problem(node.origin, &path, what);
                Vec::new()
            }
        }
    }

    fn inner<T>(&mut self, node: Option<&'t TreeNode>, path: &str, read: impl FnOnce(&mut Section<'_, 't>) -> T) -> T {
        let entries = match node.map(|node| (&node.value, node.origin)) {
            Some((Toml::Table(entries), _)) => Some(entries),
            Some((other, origin)) => {
                let what = format!("expected a table, found {}", other.describe());
                self.report.problem(origin, path, what);
                None
            }
            None => None,
        };
        let mut section = Section {
            report: self.report,
            entries,
            origin: node.map_or(self.origin, |node| node.origin),
            prefix: format!("{path}."),
            asked: Vec::new(),
        };
        let value = read(&mut section);
        section.finish();
        value
    }

    /// Reports the keys that no reader asked for. Called after everything was read.
    pub fn finish(self) {
        for (key, node) in self.entries.into_iter().flatten() {
            if !self.asked.contains(&key.as_str()) {
                self.report.unknown(node.origin, format!("{}{key}", self.prefix));
            }
        }
    }

    /// Records a problem of `key`, at its place if present, else at the table's.
    pub fn complain(&mut self, key: &str, what: impl AsRef<str>) {
        let origin = self
            .entries
            .and_then(|entries| entries.get(key))
            .map_or(self.origin, |node| node.origin);
        let path = self.path(key);
        self.report.problem(origin, &path, what);
    }

    /// Whether `key` is present.
    pub fn has(&mut self, key: &'static str) -> bool {
        self.find(key).is_some()
    }

    /// Text of a key.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        match self.find(key).map(|node| &node.value) {
            None => None,
            Some(Toml::Text(text)) => Some(text.clone()),
            Some(other) => {
                let what = format!("expected a text in quotes, found {}", other.describe());
                self.complain(key, what);
                None
            }
        }
    }

    /// Text that may be a secret: `None` for another type, without a problem that would print the value.
    pub fn secret(&mut self, key: &'static str) -> Option<String> {
        match &self.find(key)?.value {
            Toml::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    /// Texts in a list, such as program names.
    pub fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        let expected = "expected a list of texts such as [\"chronyd\"]";
        let text = |item: &TreeNode| match &item.value {
            Toml::Text(text) => Ok(text.clone()),
            other => Err(format!("{expected}, found {} in it", other.describe())),
        };
        let texts = match &self.find(key)?.value {
            Toml::List(items) => items.iter().map(text).collect(),
            other => Err(format!("{expected}, found {}", other.describe())),
        };
        self.checked(key, texts)
    }

    /// Choice among a few words.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let value = &self.find(key)?.value;
        let found = match value {
            Toml::Text(text) => choices.iter().find(|(name, _)| name == text),
            _ => None,
        };
        if found.is_none() {
            let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            let what = format!("expected {}, found {}", names.join(" or "), value.describe());
            self.complain(key, what);
        }
        found.map(|(_, value)| *value)
    }

    /// Cores: a list, a range as text, or those isolated by the kernel's boot options.
    pub fn cores(&mut self, key: &'static str) -> Option<CoreChoice> {
        let value = &self.find(key)?.value;
        self.checked(key, cores(value))
    }

    /// Number of a key, with or without fraction.
    pub fn number(&mut self, key: &'static str) -> Option<f64> {
        let value = &self.find(key)?.value;
        self.checked(key, number(value))
    }

    /// Share of a whole, 0 to 1.
    pub fn share(&mut self, key: &'static str) -> Option<Share> {
        let value = &self.find(key)?.value;
        let share = number(value).and_then(|x| Share::new(x).map_err(|error| error.to_string()));
        self.checked(key, share)
    }

    /// Share in percent, such as `"1 %"`, or as a number from 0 to 1.
    pub fn percent(&mut self, key: &'static str) -> Option<Share> {
        let value = &self.find(key)?.value;
        self.checked(key, percent(value))
    }

    /// Numbers in a list, with or without fraction.
    pub fn numbers(&mut self, key: &'static str) -> Option<Vec<f64>> {
        let value = &self.find(key)?.value;
        let numbers = match value {
            Toml::List(items) => items.iter().map(|item| number(&item.value)).collect(),
            other => Err(format!(
                "expected a list of numbers such as [0.5, 1.0], found {}",
                other.describe()
            )),
        };
        self.checked(key, numbers)
    }

    /// Flag: true or false.
    pub fn flag(&mut self, key: &'static str) -> Option<bool> {
        let flag = match &self.find(key)?.value {
            Toml::Flag(flag) => Ok(*flag),
            other => Err(format!("expected true or false, found {}", other.describe())),
        };
        self.checked(key, flag)
    }

    /// Whole number within the range of `N`.
    pub fn count<N: TryFrom<i64>>(&mut self, key: &'static str) -> Option<N> {
        let value = &self.find(key)?.value;
        let count = match value {
            Toml::Integer(n) => N::try_from(*n).map_err(|_| format!("{n} is out of range: write a number from 0 on")),
            other => Err(format!("expected a whole number, found {}", other.describe())),
        };
        self.checked(key, count)
    }

    /// List of whole numbers from 0 on.
    pub fn counts(&mut self, key: &'static str) -> Option<Vec<u32>> {
        let expected = "expected a list of whole numbers such as [1, 1]";
        let count = |item: &TreeNode| match item.value {
            Toml::Integer(n) => u32::try_from(n).map_err(|_| format!("{n} is out of range: write a number from 0 on")),
            ref other => Err(format!("{expected}, found {} in it", other.describe())),
        };
        let counts = match &self.find(key)?.value {
            Toml::List(items) => items.iter().map(count).collect(),
            other => Err(format!("{expected}, found {}", other.describe())),
        };
        self.checked(key, counts)
    }

    /// Time with its unit, such as `"100ms"`.
    pub fn time(&mut self, key: &'static str) -> Option<Nanos> {
        let value = &self.find(key)?.value;
        self.checked(key, time(value))
    }

    /// Time with its unit, or `"none"`.
    pub fn time_or_none(&mut self, key: &'static str) -> Option<Option<Nanos>> {
        let value = &self.find(key)?.value;
        let time = match value {
            Toml::Text(text) if text == "none" => Ok(None),
            other => time(other).map(Some).map_err(|what| format!("{what}, or \"none\"")),
        };
        self.checked(key, time)
    }

    /// Pair of times, the shorter one first.
    pub fn times(&mut self, key: &'static str) -> Option<(Nanos, Nanos)> {
        let value = &self.find(key)?.value;
        let expected = "expected two times, the shorter one first, such as [\"50ms\", \"150ms\"]";
        let pair = match value {
            Toml::List(items) => match items.as_slice() {
                [low, high] => time(&low.value).and_then(|low| Ok((low, time(&high.value)?))),
                _ => Err(format!("{expected}, found {} of them", items.len())),
            },
            other => Err(format!("{expected}, found {}", other.describe())),
        };
        self.checked(key, pair)
    }

    fn checked<T>(&mut self, key: &str, value: Result<T, String>) -> Option<T> {
        value.map_err(|what| self.complain(key, what)).ok()
    }

    fn find(&mut self, key: &'static str) -> Option<&'t TreeNode> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
            let path = self.path(key);
            self.report.known(path);
        }
        self.entries?.get(key)
    }

    fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}

fn number(value: &Toml) -> Result<f64, String> {
    match value {
        Toml::Float(x) => Ok(*x),
        Toml::Integer(n) => Ok(*n as f64),
        other => Err(format!("expected a number, found {}", other.describe())),
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
    let expected = "expected cores such as [2, 3] or \"2-3\", or \"isolated\"";
    match cores {
        Some(cores) if !cores.is_empty() => Ok(CoreChoice::These(cores)),
        _ => Err(format!("{expected}, found {}", value.describe())),
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
        other => Err(format!(
            "expected a time in quotes, such as \"100ms\", found {}",
            other.describe()
        )),
    }
}
