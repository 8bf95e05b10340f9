//! What does a TOML text say, and where is it wrong? One reader for every kind of file.
//!
//! A document becomes a tree that knows where each value was written (`tree`), values of the command line may take the
//! place of some (`overrides`), and a [`Section`] reads the tree key by key. Problems of all steps have one form, and
//! all are reported at once: `scenarios/x.toml:12: task[0].period: what is wrong; what to do`.

mod nearest;
mod overrides;
mod report;
mod section;
mod time;
pub mod tree;

pub use overrides::Override;
pub use report::{ProblemList, origin_of, place};
pub use section::{Section, Setting};
pub use time::parse_time;

/// Reads a document with `read`; the error has one line per problem, with its place in `shown`, the file's name.
///
/// # Errors
/// All problems, one line each, in the order of the file.
pub fn read<T>(text: &str, shown: &str, read: impl FnOnce(&mut Section<'_, '_>) -> T) -> Result<T, Vec<String>> {
    let mut report = ProblemList::default();
    let value = report.document(text).map(|document| {
        let mut top = Section::top(&document, &mut report);
        let value = read(&mut top);
        top.finish();
        value
    });
    let lines = report.lines(shown, &[]);
    value.filter(|_| lines.is_empty()).ok_or(lines)
}

/// Reads a document as [`read`]; once all values could be read, `faults` are the keys whose values make no sense, and
/// why.
///
/// # Errors
/// As [`read`].
pub fn read_checked<T, F, K, W>(
    text: &str,
    shown: &str,
    read: impl FnOnce(&mut Section<'_, '_>) -> T,
    faults: impl FnOnce(&T) -> F,
) -> Result<T, Vec<String>>
where
    F: IntoIterator<Item = (K, W)>,
    K: AsRef<str>,
    W: AsRef<str>,
{
    self::read(text, shown, |top| {
        let value = read(top);
        let faults = top.is_readable().then(|| faults(&value));
        for (key, what) in faults.into_iter().flatten() {
            top.complain(key.as_ref(), what);
        }
        value
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Server {
        threads: Option<u32>,
        range: [f64; 2],
        names: BTreeMap<String, String>,
    }

    fn server(text: &str) -> Result<Server, Vec<String>> {
        read(text, "x.toml", |top| Server {
            threads: top.table("server", |server| server.count("threads")),
            range: top.pair("range", Section::numbers),
            names: top.table("names", |names| names.all_texts()),
        })
    }

    #[test]
    fn a_quoted_key_with_a_dot_is_no_path() {
        let text = "range = [1, 2.5]\n[server]\nthreads = 3\n[names]\n\"a.b-2.6\" = \"one\"\n";
        let read = server(text).unwrap();
        assert_eq!((read.threads, read.range), (Some(3), [1.0, 2.5]));
        assert_eq!(read.names["a.b-2.6"], "one");
        let refused = server("range = [1, 2]\n\"server.threads\" = 3\n[server]\nthreads = 1\n").unwrap_err();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(
            refused[0].starts_with("x.toml:2: \"server.threads\": unknown key"),
            "{refused:?}"
        );
    }

    #[test]
    fn each_problem_is_reported_once_with_its_line() {
        let refused = server("range = [1]\n[server]\nthreads = 3.0\nother = 1\n").unwrap_err();
        assert!(
            refused[0].starts_with("x.toml:1: range: expected two numbers"),
            "{refused:?}"
        );
        assert!(
            refused[1].starts_with("x.toml:3: server.threads: ") && refused[1].contains("3.0"),
            "{refused:?}"
        );
        assert!(
            refused[2].starts_with("x.toml:4: server.other: unknown key"),
            "{refused:?}"
        );
        assert_eq!(refused.len(), 3, "{refused:?}");
        let refused = server("range = [1, 2]\nserver.threads = 5000000000\n").unwrap_err();
        assert!(refused[0].contains("write a smaller number"), "{refused:?}");
    }
}
