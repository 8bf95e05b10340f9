//! What the section `[tasks]` says.

use std::path::PathBuf;

use crate::scenario::Section;

/// The longest number of a job, in bytes.
const NUMBER_BYTES: usize = 20;

/// What the section says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TasksFile {
    /// The scenario.
    pub scenario: PathBuf,
    /// Whether the readings of its sensors come from clients, in place of its recording.
    pub from_clients: bool,
    /// Temporal objects that tasks read which read sensors, besides the scenario's own.
    pub reads: Vec<String>,
    /// Temporal objects that a task sets at the end of each job.
    pub sets: Vec<SetBy>,
}

/// An object that a task sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetBy {
    /// By its name in the scenario.
    pub task: String,
    /// Its key.
    pub object: String,
}

/// Reads the section.
pub fn read(section: &mut Section<'_, '_>) -> TasksFile {
    let scenario = section.text("scenario").unwrap_or_default();
    if scenario.is_empty() {
        section.complain("scenario", "name the scenario whose tasks run beside the server");
    }
    let sources = [("recorded", false), ("clients", true)];
    let from_clients = section.choice("readings", &sources).unwrap_or(false);
    let reads = section.texts("reads").unwrap_or_default();
    let sets = section.tables("sets", |section| {
        let mut word = |key| {
            let word = section.text(key).unwrap_or_default();
            if word.is_empty() {
                section.complain(key, "a task sets an object: name both");
            }
            word
        };
        SetBy {
            task: word("task"),
            object: word("object"),
        }
    });
    TasksFile {
        scenario: scenario.into(),
        from_clients,
        reads,
        sets,
    }
}

/// Whether `key` is one that a scenario's own objects have.
pub fn is_taken(key: &[u8]) -> bool {
    key.len() == 12 && (key.starts_with(b"sens") || key.starts_with(b"objt")) && key[4..].iter().all(u8::is_ascii_digit)
}

/// Whether an object with values of at most so many bytes takes the number of any job.
pub fn takes_numbers(max_len: usize) -> bool {
    max_len >= NUMBER_BYTES
}
