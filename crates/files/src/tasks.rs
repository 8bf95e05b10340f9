//! Section `[tasks]` of a node's file.

use std::path::PathBuf;

use punctual_toml::Section;

/// Longest number of a job, in decimal digits.
const NUMBER_BYTES: usize = 20;

/// Settings of the tasks in a server's process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TasksFile {
    /// File of the scenario with the tasks.
    pub scenario: PathBuf,
    /// Whether the readings of its sensors come from clients instead of its recording.
    pub from_clients: bool,
    /// Temporal objects that its sensor-reading tasks read, in addition to the scenario's own.
    pub reads: Vec<String>,
    /// Temporal objects that a task sets at the end of each job.
    pub sets: Vec<SetBy>,
}

/// A temporal object, and the task that sets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetBy {
    /// Name of the task in the scenario.
    pub task: String,
    /// Key of the temporal object.
    pub object: String,
}

/// Reads the section `[tasks]`.
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

/// Whether `key` has the form of a scenario's own objects.
pub fn is_taken(key: &[u8]) -> bool {
    key.len() == 12 && (key.starts_with(b"sens") || key.starts_with(b"objt")) && key[4..].iter().all(u8::is_ascii_digit)
}

/// Whether values of at most `max_len` bytes can hold the number of any job.
pub fn takes_numbers(max_len: usize) -> bool {
    max_len >= NUMBER_BYTES
}
