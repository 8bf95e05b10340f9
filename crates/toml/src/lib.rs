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
pub use section::Section;
pub use time::parse_time;

/// Reads a document other than a scenario with `read`; the error has one line per problem, with its place in `shown`.
pub fn read_document<T>(
    text: &str,
    shown: &str,
    read: impl FnOnce(&mut Section<'_, '_>) -> T,
) -> Result<T, Vec<String>> {
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
