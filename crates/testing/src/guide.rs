//! Generated parts of the guide: a page holds what the program prints, between two marks.
//!
//! A test prints its part and compares. `GUIDE=write cargo test -p ROOM guide` replaces what differs; review the
//! difference.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, PoisonError};

/// Folder of the guide's pages, from any room's tests.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/");

/// Columns of prose in documents.
const COLUMNS: usize = 120;

/// Text of a page of the guide, such as `reference/metrics.md`.
///
/// # Panics
/// Where there is no such page.
pub fn page(name: &str) -> String {
    fs::read_to_string(format!("{FOLDER}{name}")).unwrap_or_else(|error| panic!("docs/guide/{name}: {error}"))
}

/// A block of code in the guide.
#[derive(Clone, Debug)]
pub struct Block {
    /// Page and line of its first line.
    pub place: String,
    /// Kind of its content, such as `toml`; empty where it is not said.
    pub kind: String,
    /// Its lines, each with its end.
    pub text: String,
}

/// Blocks of all pages of the guide.
///
/// # Panics
/// Where the guide cannot be read.
pub fn blocks() -> Vec<Block> {
    let folders = [FOLDER.to_string(), format!("{FOLDER}reference/")];
    let mut paths: Vec<_> = { folders.iter() }
        .flat_map(|folder| fs::read_dir(folder).expect("the guide"))
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    paths.sort();
    let mut blocks = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("a page");
        let mut open: Option<Block> = None;
        for (number, line) in text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), &mut open) {
                (Some(kind), None) => {
                    open = Some(Block {
                        place: format!("{}:{}", path.display(), number + 2),
                        kind: kind.trim().into(),
                        text: String::new(),
                    });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(block)) => block.text += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block without an end", path.display());
    }
    blocks
}

/// Checks that the page has `text` between `<!-- PART -->` and `<!-- end of PART -->`. With `GUIDE=write` in the
/// environment, writes it there instead.
///
/// # Panics
/// With the first line that differs, and with what to do.
pub fn holds(name: &str, part: &str, text: &str) {
    static WRITES: Mutex<()> = Mutex::new(());
    let _one_at_a_time = WRITES.lock().unwrap_or_else(PoisonError::into_inner);
    let page = page(name);
    let (begin, end) = (format!("<!-- {part} -->\n"), format!("<!-- end of {part} -->"));
    let from = page
        .find(&begin)
        .unwrap_or_else(|| panic!("docs/guide/{name} lacks {begin}"))
        + begin.len();
    let to = from
        + page[from..]
            .find(&end)
            .unwrap_or_else(|| panic!("docs/guide/{name} lacks {end}"));
    let text = format!("\n{}\n\n", text.trim());
    if page[from..to] == text {
        return;
    }
    if std::env::var_os("GUIDE").is_some_and(|value| value == "write") {
        let whole = [&page[..from], &text, &page[to..]].concat();
        fs::write(format!("{FOLDER}{name}"), whole).unwrap_or_else(|error| panic!("docs/guide/{name}: {error}"));
        return;
    }
    let (mut there, mut here) = (page[from..to].lines(), text.lines());
    loop {
        match (there.next(), here.next()) {
            (one, other) if one == other => {}
            (one, other) => panic!(
                "docs/guide/{name}, {part}: has {one:?}, the program prints {other:?}; run the test with GUIDE=write"
            ),
        }
    }
}

/// An entry of a list: a name in code, and its meaning, in lines of at most 120 columns.
pub fn item(name: &str, meaning: &str) -> String {
    let mut words = meaning.split_whitespace();
    let first = format!(
        "- `{name}`{}",
        words.next().map_or(String::new(), |word| format!(": {word}"))
    );
    wrapped(first, words, "  ")
}

/// Paragraph of prose, in lines of at most 120 columns.
pub fn paragraph(text: &str) -> String {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default().into();
    wrapped(first, words, "")
}

/// Appends words to a line; the lines that follow begin with `indent`.
fn wrapped<'w>(first: String, words: impl Iterator<Item = &'w str>, indent: &str) -> String {
    let (mut text, mut columns) = (first.clone(), first.chars().count());
    for word in words {
        let len = word.chars().count();
        if columns + 1 + len > COLUMNS {
            text += &format!("\n{indent}{word}");
            columns = indent.len() + len;
        } else {
            text += &format!(" {word}");
            columns += 1 + len;
        }
    }
    text + "\n"
}

/// List of the figures on a page for Prometheus: each name with its labels and its help.
pub fn figures(page: &str) -> String {
    let mut list = String::new();
    for family in page.split("# HELP ").skip(1) {
        let (name, rest) = family.split_once(' ').expect("a help");
        let (help, samples) = rest.split_once(".\n").expect("a type");
        let labels: BTreeSet<&str> = samples.lines().skip(1).flat_map(labels).collect();
        let labels = labels.into_iter().collect::<Vec<_>>().join(", ");
        let labels = if labels.is_empty() {
            labels
        } else {
            format!("{{{labels}}}")
        };
        list += &item(&format!("{name}{labels}"), help);
    }
    list
}

/// Names of the labels of a sample.
fn labels(sample: &str) -> Vec<&str> {
    let (_, labels) = sample.split_once('{').unwrap_or_default();
    let named = labels
        .split("=\"")
        .map(|part| part.rsplit(['"', ',']).next().unwrap_or(part));
    let is_name =
        |name: &&str| !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    named.filter(is_name).collect()
}
