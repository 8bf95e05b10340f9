//! `punctual compare`: which figures of two reports differ by more than chance?

use std::path::Path;

use punctual_files::failure::Failure;
use punctual_report::compare;
use punctual_report::output::{self, OutputFile};
use punctual_runtime::report::RunReport;

use crate::args::Compare;

/// Carries out `punctual compare`.
pub fn compare(arguments: &Compare) -> Result<(), Failure> {
    for report in [&arguments.before, &arguments.after] {
        output::apart(&[("a report", Some(report)), ("--json", arguments.json.as_deref())])?;
    }
    let (before, after) = (read(&arguments.before)?, read(&arguments.after)?);
    let json = OutputFile::report(arguments.json.as_ref())?;
    let comparison = compare::compare(&before, &after).map_err(|why| {
        let (before, after) = (arguments.before.display(), arguments.after.display());
        Failure::of(format!("{before}, {after}: {why}; compare two runs of one scenario"))
    })?;
    super::print_report(&comparison.text())?;
    json.map_or(Ok(()), |file| file.json(&comparison))?;
    match arguments.check && comparison.regressed() {
        true => Err(Failure::Refuted("--check: a figure regressed".into())),
        false => Ok(()),
    }
}

fn read(path: &Path) -> Result<RunReport, Failure> {
    let expected = "a report of tasks that `punctual run --json` or `punctual attach --json` wrote";
    let text = punctual_files::bounded::named_text(path, expected)?;
    serde_json::from_str(&text).map_err(|error| {
        let other = error.is_data().then(|| "no such report, or of another version".into());
        let why = other.unwrap_or_else(|| error.to_string());
        Failure::of(format!("{}:{}: {why}; name {expected}", path.display(), error.line()))
    })
}
