//! Machine files: read TOML and return a sound [`MachineModel`], or the line and key of the first fault.
//!
//! The shipped machines are files, too (`machines/` in the project's folder); their text is part of the program.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use crate::check::ModelError;
use crate::model::MachineModel;

const EXYNOS5422_A15: &str = include_str!("../../../machines/exynos5422-a15.toml");
const EXYNOS5422_DUO: &str = include_str!("../../../machines/exynos5422-duo.toml");

/// First fault of a machine or media file: its place, and a correct value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {key}: {what}")]
pub struct MachineFileError {
    /// The line, from 1.
    pub line: usize,
    /// The key, e.g. `steps[3].volt`; `machine` for the file as a whole.
    pub key: String,
    /// The fault, and the values expected.
    pub what: String,
}

impl MachineModel {
    /// Four Cortex-A15 cores of the Exynos 5422 (Odroid-XU3), the first paper's board with its A7 cores off:
    /// `machines/exynos5422-a15.toml`, which names the source of each number.
    pub fn exynos5422_a15() -> MachineModel {
        shipped(EXYNOS5422_A15)
    }

    /// Two cores of that machine: one real-time core and one neighbour.
    pub fn duo() -> MachineModel {
        shipped(EXYNOS5422_DUO)
    }

    /// Reads a machine from the text of its file, and checks it.
    ///
    /// # Errors
    /// [`MachineFileError`] for the first fault; put the file's name and a colon before the message.
    ///
    /// ```
    /// use punctual_sim::MachineModel;
    /// let text = include_str!("../../../machines/exynos5422-a15.toml");
    /// assert_eq!(MachineModel::from_toml(text)?, MachineModel::exynos5422_a15());
    ///
    /// let misspelt = text.replace("service-ns", "service-nanos");
    /// let error = MachineModel::from_toml(&misspelt).unwrap_err();
    /// assert_eq!(error.key, "memory.service-nanos");
    /// # Ok::<(), punctual_sim::MachineFileError>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<MachineModel, MachineFileError> {
        read(text, "machine", MachineModel::check)
    }
}

/// Reads a file of the project from its text and checks it; `whole` is the key in errors about the file as a whole.
///
/// # Errors
/// [`MachineFileError`] for the first fault.
pub fn read<T: DeserializeOwned>(
    text: &str,
    whole: &str,
    check: impl Fn(&T) -> Result<(), ModelError>,
) -> Result<T, MachineFileError> {
    let table = DeTable::parse(text).map_err(|error| syntax(text, whole, &error))?;
    let model: T = toml::from_str(text).map_err(|error| typed(text, whole, table.get_ref(), &error))?;
    check(&model).map_err(|error| unsound(text, table.get_ref(), error))?;
    Ok(model)
}

/// Reads a file that came with the program; a fault in it is the program's, so a test reads them all.
fn shipped(text: &str) -> MachineModel {
    match MachineModel::from_toml(text) {
        Ok(model) => model,
        Err(error) => unreachable!("a shipped machine file is unsound: {error}"),
    }
}

fn syntax(text: &str, whole: &str, error: &toml::de::Error) -> MachineFileError {
    MachineFileError {
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        key: whole.into(),
        what: format!("not TOML: {}", error.message().trim_end()),
    }
}

/// Converts serde's error about a key that is unknown, missing, or of another type.
fn typed(text: &str, whole: &str, table: &DeTable<'_>, error: &toml::de::Error) -> MachineFileError {
    let at = error.span().map_or(0, |span| span.start);
    let mut path = path_at(table, at);
    // A missing key is reported at its table.
    if let Some(missing) = error.message().strip_prefix("missing field `") {
        path.extend(missing.split('`').next().map(String::from));
    }
    let key = if path.is_empty() {
        whole.into()
    } else {
        path.join(".").replace(".[", "[")
    };
    MachineFileError {
        line: line_of(text, at),
        key,
        what: error.message().trim_end().replace('\n', ": "),
    }
}

/// Converts an error of [`MachineModel::check`].
fn unsound(text: &str, table: &DeTable<'_>, error: ModelError) -> MachineFileError {
    MachineFileError {
        line: line_of(text, offset_of(table, &error.key)),
        key: error.key,
        what: error.what,
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
}

/// The keys, outermost first, around this offset in the text; `[3]` for an item of a list.
fn path_at(table: &DeTable<'_>, at: usize) -> Vec<String> {
    let holds = |span: Range<usize>| span.contains(&at);
    for (key, value) in table.iter() {
        let inner = match value.get_ref() {
            DeValue::Table(inner) => path_at(inner, at),
            DeValue::Array(items) => path_in(items, at),
            _ => Vec::new(),
        };
        if !inner.is_empty() || holds(key.span()) || holds(value.span()) {
            return [vec![key.get_ref().to_string()], inner].concat();
        }
    }
    Vec::new()
}

fn path_in(items: &[toml::Spanned<DeValue<'_>>], at: usize) -> Vec<String> {
    for (i, item) in items.iter().enumerate() {
        if item.span().contains(&at) {
            let inner = match item.get_ref() {
                DeValue::Table(inner) => path_at(inner, at),
                _ => Vec::new(),
            };
            return [vec![format!("[{i}]")], inner].concat();
        }
    }
    Vec::new()
}

/// Offset of `key` (such as `steps[3].volt`), or else of the innermost table or list around it that is in the text.
fn offset_of(table: &DeTable<'_>, key: &str) -> usize {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let (name, index) = match first.split_once('[') {
        Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
        None => (first, None),
    };
    let Some((found, value)) = table.iter().find(|(key, _)| key.get_ref().as_ref() == name) else {
        return 0;
    };
    let inside = |value: &toml::Spanned<DeValue<'_>>, at: usize| match value.get_ref() {
        DeValue::Table(inner) if !rest.is_empty() => match offset_of(inner, rest) {
            0 => at,
            offset => offset,
        },
        _ => at,
    };
    match (index, value.get_ref()) {
        (Some(i), DeValue::Array(items)) => items
            .get(i)
            .map_or(found.span().start, |item| inside(item, item.span().start)),
        _ => inside(value, found.span().start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_shipped_machines_are_sound() {
        for (text, cores) in [(EXYNOS5422_A15, 4), (EXYNOS5422_DUO, 2)] {
            let model = MachineModel::from_toml(text).unwrap();
            assert_eq!((model.steps.len(), model.cores), (19, cores));
        }
        let of_two = MachineModel {
            name: MachineModel::duo().name,
            cores: 2,
            ..MachineModel::exynos5422_a15()
        };
        assert_eq!(MachineModel::duo(), of_two, "the two files differ in nothing else");
    }

    /// The message for the duo's file with one text replaced by another.
    fn complaint(from: &str, to: &str) -> String {
        assert!(EXYNOS5422_DUO.contains(from), "{from}");
        let text = EXYNOS5422_DUO.replacen(from, to, 1);
        let error = MachineModel::from_toml(&text).unwrap_err();
        let written = text
            .lines()
            .position(|line| line.contains(to))
            .map_or(0, |line| line + 1);
        // The line is checked against where the fault was put, so that the file may change.
        error.to_string().replacen(&format!("{written}:"), "HERE:", 1)
    }

    #[test]
    fn each_fault_names_line_and_key() {
        for (from, to, expected) in [
            (
                "{ mhz =  400, volt = 0.9 }",
                "{ mhz = 4000, volt = 0.9 }",
                "steps[3].mhz: ",
            ),
            (
                "{ mhz =  400, volt = 0.9 }",
                "{ mhz = 400 }",
                "HERE: steps[2].volt: missing ",
            ),
            (
                "{ mhz =  400, volt = 0.9 }",
                "{ mhz = 400, volt = -0.9 }",
                "HERE: steps[2].volt: ",
            ),
            (
                "hit-cycles = 21",
                "hit-cycle = 21",
                "HERE: cache.hit-cycle: unknown field `hit-cycle`",
            ),
            ("cores = 2", "cores = \"two\"", "HERE: cores: invalid type"),
            ("cores = 2", "cores = 0", "HERE: cores: must lie between 1 and 64"),
            (
                "locality = 0.5",
                "locality = 0",
                "HERE: cache.locality: must be above 0",
            ),
            (
                "get = { cycles = 500, accesses = 8 }",
                "get = { cycles = 500, access = 8 }",
                "HERE: store.get.access: unknown field `access`",
            ),
            ("[memory]", "[memorie]", "HERE: memorie: unknown field `memorie`"),
            ("latency-ns = 40", "", "memory.latency-ns: missing field `latency-ns`"),
            ("cores = 2", "cores = ", "HERE: machine: not TOML"),
        ] {
            let found = complaint(from, to);
            assert!(found.contains(expected), "{from} -> {to}: {found}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,200}", cut in 0usize..3000) {
            let _ = MachineModel::from_toml(&text);
            let cut = EXYNOS5422_A15.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(0);
            let _ = MachineModel::from_toml(&EXYNOS5422_A15[..cut]);
        }
    }
}
