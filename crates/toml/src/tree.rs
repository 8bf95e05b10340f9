//! A TOML document as a tree whose nodes know where they were written.
//!
//! Overrides (`--set`) change the tree before types are checked. So a value from the command line and one from the file
//! pass the same checks, and each problem names the place that the user has to change.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// Place at which a node was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The document as a whole.
    Document,
    /// Line of the file, from 1.
    Line(usize),
    /// Index of the override.
    Override(usize),
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeNode {
    /// Place; for a table entry, the line of its key.
    pub origin: Origin,
    /// Value, not checked yet.
    pub value: Toml,
}

/// Entries of a table by key.
pub type Entries = BTreeMap<String, TreeNode>;

/// Values of TOML, as far as files use them.
#[derive(Clone, Debug, PartialEq)]
pub enum Toml {
    Text(String),
    Integer(i64),
    Float(f64),
    Flag(bool),
    List(Vec<TreeNode>),
    Table(Entries),
    /// A value of a type that no file accepts, described in words.
    Foreign(&'static str),
}

impl Toml {
    /// Describes the value for problems: `the text "abc"`, `the number 3`.
    pub fn describe(&self) -> String {
        match self {
            Toml::Text(text) => format!("the text \"{text}\""),
            Toml::Integer(n) => format!("the number {n}"),
            Toml::Float(x) => format!("the number {x:?}"),
            Toml::Flag(flag) => format!("{flag}"),
            Toml::List(_) => "a list".into(),
            Toml::Table(_) => "a table".into(),
            Toml::Foreign(what) => (*what).into(),
        }
    }
}

/// A syntax error of TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotToml {
    /// Number of the line, from 1.
    pub line: usize,
    /// Message of the parser.
    pub what: String,
}

/// Parses a document; the error has every syntax error that the parser finds, in order.
pub fn parse(text: &str) -> Result<TreeNode, Vec<NotToml>> {
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line_of = |at: usize| 1 + ends.partition_point(|end| *end < at);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let origin = |span: Range<usize>| Origin::Line(line_of(span.start));
        let value = Toml::Table(entries(table.get_ref(), &origin));
        return Ok(TreeNode {
            origin: Origin::Document,
            value,
        });
    }
    let not_toml = |error: &toml::de::Error| NotToml {
        line: line_of(error.span().map_or(0, |span| span.start)),
        what: error.message().to_string(),
    };
    Err(errors.iter().map(not_toml).collect())
}

/// Parses a value from the command line: as TOML if that succeeds, else as text, so that `--set goal.tardiness=0.9` and
/// `--set store.update_mode=memory-first` both need no quotes.
pub fn parse_value(text: &str, origin: Origin) -> TreeNode {
    let value = match DeValue::parse(text) {
        Ok(parsed) => convert(parsed.get_ref(), &|_| origin),
        Err(_) => Toml::Text(text.to_string()),
    };
    TreeNode { origin, value }
}

fn entries(table: &DeTable<'_>, origin: &dyn Fn(Range<usize>) -> Origin) -> Entries {
    let node = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| TreeNode {
        origin: origin(key.span()),
        value: convert(value.get_ref(), origin),
    };
    table
        .iter()
        .map(|(key, value)| (key.get_ref().to_string(), node((key, value))))
        .collect()
}

fn convert(value: &DeValue<'_>, origin: &dyn Fn(Range<usize>) -> Origin) -> Toml {
    match value {
        DeValue::String(text) => Toml::Text(text.to_string()),
        DeValue::Boolean(flag) => Toml::Flag(*flag),
        DeValue::Datetime(_) => Toml::Foreign("a date"),
        DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix())
            .map_or(Toml::Foreign("a number of more than 64 bits"), Toml::Integer),
        DeValue::Float(x) => x
            .as_str()
            .parse()
            .map_or(Toml::Foreign("a number that cannot be read"), Toml::Float),
        DeValue::Array(items) => Toml::List(
            items
                .iter()
                .map(|item| TreeNode {
                    origin: origin(item.span()),
                    value: convert(item.get_ref(), origin),
                })
                .collect(),
        ),
        DeValue::Table(table) => Toml::Table(entries(table, origin)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at<'n>(node: &'n TreeNode, key: &str) -> &'n TreeNode {
        match &node.value {
            Toml::Table(entries) => &entries[key],
            other => panic!("{other:?} has no {key}"),
        }
    }

    #[test]
    fn every_node_knows_its_line() {
        let tree =
            parse("name = \"x\"\n\n[goal]\ntardiness = 0.9\n\n[[task]]\nname = \"a\"\n[[task]]\ngap = [1,\n 2]\n")
                .unwrap();
        assert_eq!(at(&tree, "name").origin, Origin::Line(1));
        assert_eq!(at(&tree, "goal").origin, Origin::Line(3));
        assert_eq!(at(at(&tree, "goal"), "tardiness").origin, Origin::Line(4));
        let Toml::List(tasks) = &at(&tree, "task").value else {
            panic!("no list")
        };
        assert_eq!(tasks[0].origin, Origin::Line(6));
        assert_eq!(tasks[1].origin, Origin::Line(8));
        assert_eq!(at(&tasks[1], "gap").origin, Origin::Line(9));
    }

    #[test]
    fn syntax_errors_name_their_line() {
        let errors = parse("a = 1\nb = \nc = 3\nc = 4\n").unwrap_err();
        let lines: Vec<usize> = errors.iter().map(|error| error.line).collect();
        assert_eq!(lines, [2, 4], "{errors:?}");
    }

    #[test]
    fn values_on_the_command_line_need_no_quotes() {
        let value = |text| parse_value(text, Origin::Override(0)).value;
        assert_eq!(value("0.9"), Toml::Float(0.9));
        assert_eq!(value("12"), Toml::Integer(12));
        assert_eq!(value("1_000"), Toml::Integer(1000));
        assert_eq!(value("true"), Toml::Flag(true));
        assert_eq!(value("80ms"), Toml::Text("80ms".into()));
        assert_eq!(value("\"80ms\""), Toml::Text("80ms".into()));
        assert_eq!(value("memory-first"), Toml::Text("memory-first".into()));
        assert_eq!(value(""), Toml::Text(String::new()));
        assert_eq!(
            value("99999999999999999999").describe(),
            "a number of more than 64 bits"
        );
        assert!(matches!(value("[\"1s\", \"2s\"]"), Toml::List(items) if items.len() == 2));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,200}") {
            let _ = parse(&text);
            let _ = parse_value(&text, Origin::Document);
        }
    }
}
