//! Overrides from the command line: `--set task.analysis.period=80ms`.
//!
//! A key is spelt as in the scenario file, its parts joined by dots. Tasks, stages and edges are addressed by their
//! index, as in `task[0]`; tasks and stages also by their name, as in `task.analysis`.

use punctual_toml::tree::{self, Entries, Origin, Toml, TreeNode};
use punctual_toml::{Override, ProblemList};

/// Keys that an override of another key removes, because they say the same in another way: `--set trace.replicas=4`
/// works where the file has `utilisation`. Each entry: table, key, keys to remove.
const REPLACES: [(&str, &str, &[&str]); 12] = [
    ("goal", "late", &["tardiness"]),
    ("goal", "tardiness", &["late"]),
    ("task", "late", &["tardiness"]),
    ("task", "tardiness", &["late"]),
    ("task", "period", &["gap", "pause"]),
    ("task", "gap", &["period", "pause"]),
    ("task", "pause", &["period", "gap"]),
    ("trace", "replicas", &["utilisation"]),
    ("trace", "utilisation", &["replicas"]),
    ("control", "period", &["pace"]),
    ("trace", "dir", &["sensors", "period"]),
    ("trace", "sensors", &["dir"]),
];

/// Applies `overrides` to the document, in order; reports those that cannot be placed.
pub fn apply(document: &mut Entries, overrides: &[Override], report: &mut ProblemList) {
    for (i, given) in overrides.iter().enumerate() {
        let origin = Origin::Override(i);
        if let Err(what) = place(document, &given.key, tree::parse_value(&given.value, origin)) {
            report.problem(origin, &given.key, what);
        }
    }
}

fn place(document: &mut Entries, key: &str, node: TreeNode) -> Result<(), String> {
    let origin = node.origin;
    let mut parts: Vec<&str> = key.split('.').collect();
    let leaf = parts.pop().unwrap_or_default();
    if leaf.is_empty() || parts.iter().any(|part| part.is_empty()) {
        return Err("a part of the key is empty; write it like goal.tardiness or task.analysis.period".into());
    }
    let mut table = document;
    let mut parts = parts.into_iter();
    while let Some(part) = parts.next() {
        let (list, index) = part
            .split_once('[')
            .map_or((part, None), |(list, index)| (list, Some(index)));
        table = if LISTS.contains(&list) {
            let which = match index {
                Some(index) => Which::Index(index.trim_end_matches(']')),
                None => Which::Name(
                    parts
                        .next()
                        .ok_or_else(|| format!("which {list}? write it like task.analysis.period"))?,
                ),
            };
            item(table, list, which)?
        } else {
            let empty = || TreeNode {
                origin,
                value: Toml::Table(Entries::new()),
            };
            match &mut table.entry(part.into()).or_insert_with(empty).value {
                Toml::Table(inner) => inner,
                other => return Err(format!("\"{part}\" holds {}, no keys of its own", other.describe())),
            }
        };
    }
    for (of, set, replaced) in REPLACES {
        if key.starts_with(of) && leaf == set {
            table.retain(|other, _| !replaced.contains(&other.as_str()));
        }
    }
    table.insert(leaf.into(), node);
    Ok(())
}

enum Which<'k> {
    Index(&'k str),
    Name(&'k str),
}

/// Keys that hold lists of tables.
const LISTS: [&str; 3] = ["task", "stage", "edge"];

fn item<'t>(document: &'t mut Entries, list: &str, which: Which<'_>) -> Result<&'t mut Entries, String> {
    let items: &mut [TreeNode] = match document.get_mut(list).map(|node| &mut node.value) {
        Some(Toml::List(items)) => items,
        _ => return Err(format!("the scenario has no [[{list}]]")),
    };
    let names: Vec<String> = items.iter().map(|item| name(item).unwrap_or("?").to_string()).collect();
    let names = names.join(", ");
    let found = match which {
        Which::Index(index) => index.parse().ok().and_then(|i: usize| items.get_mut(i)),
        Which::Name(wanted) => items.iter_mut().find(|item| name(item) == Some(wanted)),
    };
    match found.map(|item| &mut item.value) {
        Some(Toml::Table(entries)) => Ok(entries),
        _ => Err(format!(
            "no such {list}; there are {names}, the first of them being {list}[0]"
        )),
    }
}

fn name(item: &TreeNode) -> Option<&str> {
    match &item.value {
        Toml::Table(entries) => match &entries.get("name")?.value {
            Toml::Text(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "name = \"x\"\n[trace]\nutilisation = 0.5\ndir = \"d\"\n[[task]]\nname = \"analysis\"\nperiod = \"1s\"\n[[task]]\nname = \"browse\"\n";

    fn document() -> Entries {
        match tree::parse(DOCUMENT).unwrap().value {
            Toml::Table(entries) => entries,
            other => panic!("{other:?}"),
        }
    }

    fn set(arguments: &[&str]) -> Result<Entries, Vec<String>> {
        let overrides: Vec<Override> = arguments.iter().map(|a| Override::parse(a).unwrap()).collect();
        let mut entries = document();
        let mut report = ProblemList::default();
        apply(&mut entries, &overrides, &mut report);
        match report.readable() {
            true => Ok(entries),
            false => Err(report.lines("f", &overrides)),
        }
    }

    fn text(entries: &Entries, path: &[&str]) -> Option<String> {
        let (first, rest) = path.split_first()?;
        let node = entries.get(*first)?;
        match &node.value {
            Toml::Table(inner) => text(inner, rest),
            Toml::List(items) => match &items[rest[0].parse::<usize>().ok()?].value {
                Toml::Table(inner) => text(inner, &rest[1..]),
                _ => None,
            },
            value => Some(value.describe()),
        }
    }

    #[test]
    fn a_value_lands_where_its_key_says() {
        let entries = set(&[
            "goal.drr=0.4",
            "task.browse.pause=1s",
            "task[0].period=2s",
            "name=y",
            "name=z",
        ])
        .unwrap();
        assert_eq!(text(&entries, &["goal", "drr"]).unwrap(), "the number 0.4");
        assert_eq!(text(&entries, &["task", "1", "pause"]).unwrap(), "the text \"1s\"");
        assert_eq!(text(&entries, &["task", "0", "period"]).unwrap(), "the text \"2s\"");
        assert_eq!(text(&entries, &["name"]).unwrap(), "the text \"z\"");
    }

    #[test]
    fn setting_one_way_of_saying_it_removes_the_others() {
        let entries = set(&["trace.replicas=4", "task.analysis.gap=[\"1s\", \"2s\"]"]).unwrap();
        assert_eq!(text(&entries, &["trace", "utilisation"]), None);
        assert_eq!(text(&entries, &["task", "0", "period"]), None);
        let entries = set(&["trace.sensors=8", "trace.period=[\"1s\", \"2s\"]"]).unwrap();
        assert_eq!(text(&entries, &["trace", "dir"]), None);
        assert_eq!(text(&entries, &["trace", "sensors"]).unwrap(), "the number 8");
    }

    #[test]
    fn keys_without_a_place_are_refused() {
        for (argument, key) in [
            ("task.brwse.pause=1s", "task.brwse.pause"),
            ("task[7].pause=1s", "task[7].pause"),
            ("task.analysis=1s", "task.analysis"),
            ("name.first=1", "name.first"),
            ("goal.=1", "goal."),
        ] {
            let problems = set(&[argument]).unwrap_err();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(
                problems[0].starts_with(&format!("--set {argument}: {key}: ")),
                "{problems:?}"
            );
        }
        assert!(Override::parse("seed").is_err());
        assert!(Override::parse("=3").is_err());
    }
}
