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
