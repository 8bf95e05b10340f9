//! Groups the files of profiles into sets.
//!
//! A file's name says which program and which set. The file itself states the kind of its figures and the size of the
//! ways ([`Facts`]); facts that it does not state are assumed, and reported as assumed.

use punctual_allocation::Grid;
use punctual_allocation::profile::{Fit, ProfileOptions, ProfileRecording};

use super::facts::{Facts, ProfileOrigin, SetError};
use super::profiles::{PHASES, ProfileSet, WAY_BYTES};

/// A file to read: its name and its bytes.
pub type File<'f> = (&'f str, &'f [u8]);

/// Placeholder for the set in a file's name: `punctual profile` writes it if the user names no set.
const UNNAMED: &str = "profile";
/// Name of the set of counted profiles whose files name no set; claims use it.
pub(super) const MEASURED: &str = "measured";

/// Groups `files` into sets: `PROGRAM.SET.csv` belongs to SET; `PROGRAM.csv` and `PROGRAM.profile.csv` to `modelled` or
/// `measured`, by their kind. Where a file does not state it, rows by window are of a model, rows by share were
/// counted, and ways are as large as in the set's other files, or [`WAY_BYTES`].
///
/// # Errors
/// [`SetError`] of the first file that cannot be used, or that is of another kind or machine than its set.
pub fn read(files: &[File]) -> Result<Vec<ProfileSet>, SetError> {
    let options = ProfileOptions {
        grid: Some(Grid::PAPER),
        phases: PHASES,
        ..ProfileOptions::default()
    };
    let mut sets: Vec<SetBuilder> = Vec::new();
    for (file, bytes) in files {
        let facts = Facts::read(file, bytes)?;
        let recording = ProfileRecording::read(file, bytes, options.grid)?;
        let compiled = recording.compile(&options).map_err(|error| error.of_file(file))?;
        let kind = facts.kind.unwrap_or(match recording {
            ProfileRecording::Windows(_) => ProfileOrigin::Modelled,
            ProfileRecording::Measured(_) => ProfileOrigin::Counted,
        });
        let name = match recording.name().rsplit_once('.') {
            Some((_, set)) if set != UNNAMED => set,
            _ => match kind {
                ProfileOrigin::Modelled => kind.name(),
                ProfileOrigin::Counted => MEASURED,
            },
        };
        let place = sets.iter().position(|other| other.set.name == name);
        let place = place.unwrap_or_else(|| {
            sets.push(SetBuilder::new(name, kind));
            sets.len() - 1
        });
        sets[place].take(file, facts, kind, compiled)?;
    }
    Ok(sets.into_iter().map(SetBuilder::whole).collect())
}

/// A set under construction, while files are read.
struct SetBuilder {
    set: ProfileSet,
    /// Size of a way, in bytes, once a file has stated it.
    way_bytes: Option<u64>,
    /// Names of the files that do not state the size of a way.
    untold: Vec<String>,
}

impl SetBuilder {
    fn new(name: &str, kind: ProfileOrigin) -> SetBuilder {
        SetBuilder {
            set: ProfileSet {
                name: name.to_string(),
                kind,
                way_bytes: WAY_BYTES,
                assumed: Vec::new(),
                profiles: Vec::new(),
                phases_found: Vec::new(),
                rate_errors: Vec::new(),
            },
            way_bytes: None,
            untold: Vec::new(),
        }
    }

    /// Adds the profile of `file` and checks its facts against the set's.
    fn take(&mut self, file: &str, facts: Facts, kind: ProfileOrigin, compiled: Fit) -> Result<(), SetError> {
        let other = |key, found: String, before: String| SetError::OtherFact {
            place: file.to_string(),
            key,
            found,
            before,
        };
        if self.set.kind != kind {
            return Err(other("kind", kind.name().into(), self.set.kind.name().into()));
        }
        match (facts.way_bytes, self.way_bytes) {
            (Some(found), Some(before)) if found != before => {
                return Err(other("way-bytes", found.to_string(), before.to_string()));
            }
            (Some(found), _) => self.way_bytes = Some(found),
            (None, _) => self.untold.push(file.to_string()),
        }
        if facts.kind.is_none() {
            let assumed = format!("{file}: no `# kind: ...`; assumed: {}", kind.name());
            self.set.assumed.push(assumed);
        }
        let mut profile = compiled.profile;
        if let Some((program, _)) = profile.name.rsplit_once('.') {
            profile.name = program.to_string();
        }
        self.set.profiles.push(profile);
        self.set.phases_found.push(compiled.phases_found);
        self.set.rate_errors.push(compiled.accuracy.rate_mean);
        Ok(())
    }

    /// Completes the set after all files have been read.
    fn whole(self) -> ProfileSet {
        let SetBuilder {
            mut set,
            way_bytes,
            untold,
        } = self;
        set.way_bytes = way_bytes.map_or(WAY_BYTES, |bytes| bytes as f64);
        let ways = size(set.way_bytes);
        let assumed = |file| format!("{file}: no `# way-bytes: ...`; assumed: {ways}");
        set.assumed.extend(untold.into_iter().map(assumed));
        set
    }
}

/// Formats a size: `64 KiB`, `2 MiB`, or bytes where neither is whole.
pub(super) fn size(bytes: f64) -> String {
    let units = [(1_048_576.0, "MiB"), (1024.0, "KiB")];
    match units
        .into_iter()
        .find(|(unit, _)| bytes >= *unit && bytes % unit == 0.0)
    {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
#[path = "sets_tests.rs"]
mod tests;
