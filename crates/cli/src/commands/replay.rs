//! `punctual replay`: repeats the decisions of a recorded run.

use std::path::Path;

use punctual_loop::{EventLog, LOG_KIND, LOG_VERSION, ReplayError};
use serde::{Deserialize, Serialize};

use crate::args::Replay;
use punctual_files::failure::Failure;

/// Content of a log's file.
#[derive(Serialize, Deserialize)]
pub struct LogFile {
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

impl LogFile {
    /// Labels a log with the current version.
    pub fn of(log: EventLog) -> LogFile {
        LogFile {
            kind: LOG_KIND.into(),
            version: LOG_VERSION,
            log,
        }
    }
}

/// Carries out `punctual replay`.
pub fn replay(arguments: &Replay) -> Result<(), Failure> {
    let path = &arguments.log;
    let log = read(path)?;
    let differences = punctual_loop::replay(&log).map_err(|error| match error {
        ReplayError::Mapping(why) => refused(path, &why.to_string()),
        error => refused(path, &format!("makes no regulator: {error}; record the run again")),
    })?;
    let decisions = log.decisions();
    match differences.first() {
        None => {
            let among = [
                (log.splits(), "split cache ways and bandwidth anew"),
                (log.lendings(), "are about lending exclusive cores"),
                (log.backlogs(), "are about the bounds of backlogs"),
                (log.mappings(), "are about where stages run"),
                (log.clocks(), "are about the clocks beneath them"),
                (log.gaps(), "unknown: earlier ones are missing"),
            ];
            let among = among.into_iter().filter(|(count, _)| *count > 0);
            let among: String = among.map(|(count, what)| format!("; {count} of them {what}")).collect();
            super::print(&format!("{decisions} decisions, identical{among}\n"))
        }
        Some(first) => Err(Failure::Refuted(format!(
            "{}: {} of {decisions} decisions differ; the first is number {}: {}",
            path.display(),
            differences.len(),
            first.index + 1,
            first.what
        ))),
    }
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
        (Some(LOG_KIND), Some(LOG_VERSION)) => Ok(()),
        (Some(LOG_KIND) | None, version) => Err(refused(
            path,
            &format!(
                "is a log of version {}, and this program replays version {LOG_VERSION}: replay it with the program that \
                 wrote it, or record the run again",
                version.unwrap_or(1)
            ),
        )),
        (Some(other), _) => Err(refused(
            path,
            &format!("is a \"{other}\"; name a log that `punctual run --record` wrote"),
        )),
    }
}

fn damaged(path: &Path, error: &serde_json::Error) -> Failure {
    Failure::input([format!(
        "{}:{}: damaged, or no log of a run: {error}; record the run again with `punctual run --record`",
        path.display(),
        error.line()
    )])
}

fn refused(path: &Path, what: &str) -> Failure {
    Failure::input([format!("{}: {what}", path.display())])
}
