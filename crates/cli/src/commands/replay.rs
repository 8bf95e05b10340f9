//! `punctual replay`: repeats the decisions of a recorded run.

use std::collections::BTreeMap;
use std::path::Path;

use punctual_loop::{EventLog, LOG_KIND, LOG_OLDEST, LOG_VERSION};
use serde::{Deserialize, Serialize};

use crate::args::Replay;
use punctual_files::failure::Failure;
use punctual_report::output::OutputFile;

/// Content of a log's file.
#[derive(Serialize, Deserialize)]
struct LogFile {
    kind: String,
    version: u32,
    log: EventLog,
}

/// Kind and version of a log; both are missing in the first version.
#[derive(Deserialize)]
struct Label {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    version: Option<u32>,
}

/// Writes a log to the file that was asked for.
///
/// # Errors
/// [`Failure`] if the file cannot be written.
pub fn write(file: Option<OutputFile>, log: Option<EventLog>) -> Result<(), Failure> {
    let Some((file, log)) = file.zip(log) else {
        return Ok(());
    };
    file.json(&LogFile {
        kind: LOG_KIND.into(),
        version: LOG_VERSION,
        log,
    })
}

/// Carries out `punctual replay`.
pub fn replay(arguments: &Replay) -> Result<(), Failure> {
    let path = &arguments.log;
    let log = read(path)?;
    let differences = punctual_loop::replay(&log)
        .map_err(|error| Failure::at(path, format!("makes no decider: {error}; record the run again")))?;
    let decisions = log.decisions.len();
    match differences.first() {
        None => super::print_report(&format!("{decisions} decisions, identical{}\n", among(&log))),
        Some(first) => {
            let (path, differ) = (path.display(), differences.len());
            let first = format!("the first is number {}: {}", first.index + 1, first.what);
            Err(Failure::Refuted(format!(
                "{path}: {differ} of {decisions} decisions differ; {first}"
            )))
        }
    }
}

/// Number of decisions of each decider, and of those for which there was no room.
fn among(log: &EventLog) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for decision in &log.decisions {
        *counts.entry(log.deciders[decision.decider].about()).or_default() += 1;
    }
    let told = counts.iter().map(|(about, count)| format!("; {count} about {about}"));
    let lost = (log.lost > 0).then(|| format!("; {} more are not in the log", log.lost));
    told.chain(lost).collect()
}

fn read(path: &Path) -> Result<EventLog, Failure> {
    let text = punctual_files::bounded::named_text(path, "a log that `punctual run --record` wrote")?;
    check_label(path, &text)?;
    let file: LogFile = serde_json::from_str(&text).map_err(|error| damaged(path, &error))?;
    Ok(file.log)
}

/// Refuses other files, and logs of other versions, before their content is parsed.
fn check_label(path: &Path, text: &str) -> Result<(), Failure> {
    let label: Label = serde_json::from_str(text).map_err(|error| damaged(path, &error))?;
    match (label.kind.as_deref(), label.version) {
        (Some(LOG_KIND), Some(LOG_OLDEST..=LOG_VERSION)) => Ok(()),
        (Some(LOG_KIND), version) => Err(Failure::at(
            path,
            format!(
                "is a log of version {}, and this program replays logs from version {LOG_OLDEST} to version \
                 {LOG_VERSION}: replay it with the program that wrote it, or record the run again",
                version.unwrap_or(1)
            ),
        )),
        (other, _) => {
            let remedy = "name a log that `punctual run --record` wrote";
            let what = other.map_or("no log of a run".into(), |other| format!("a \"{other}\""));
            Err(Failure::at(path, format!("is {what}; {remedy}")))
        }
    }
}

fn damaged(path: &Path, error: &serde_json::Error) -> Failure {
    Failure::of(format!(
        "{}:{}: damaged, or no log of a run: {error}; record the run again with `punctual run --record`",
        path.display(),
        error.line()
    ))
}
