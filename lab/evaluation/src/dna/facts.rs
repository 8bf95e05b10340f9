//! Facts that a profile's file states about itself: remarks of the form `# key: value`.
//!
//! Rows alone do not say how large the ways were that they count, nor whether anything was counted at all. The writer
//! of a profile says so in remarks under the line of names, where several files can still be put together into one.
//! Other keys are ordinary remarks.
//!
//! | key | value |
//! |---|---|
//! | `kind` | `modelled`: from a model of caches and of time; `counted`: by a processor's counters |
//! | `way-bytes` | bytes of a way of the last-level cache |

use punctual_allocation::profile::ReadError;

/// Characters of a wrong value that an error repeats.
const SHOWN_MAX: usize = 40;

/// Fault of a file in a set of profiles.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetError {
    /// The file is no profile, or a remark has an impossible value.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Remarks that do not agree, in a file or in those of a set.
    #[error(
        "{place}: {key} is {found}, and {before} in an earlier remark: profiles of one set are of one machine and kind"
    )]
    OtherFact {
        /// File, and line if one is at fault.
        place: String,
        /// Key of the remark.
        key: &'static str,
        /// Value in this remark.
        found: String,
        /// Value of an earlier remark.
        before: String,
    },
}

punctual_units::named! {
    /// Where a profile's figures come from.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProfileOrigin by name {
        /// Models of the caches and of time.
        Modelled = "modelled",
        /// Counters of a real processor.
        Counted = "counted",
    }
}

/// Facts that a profile's file states; `None` where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Where its figures come from.
    pub kind: Option<ProfileOrigin>,
    /// Bytes of a way of the last-level cache, at least 1.
    pub way_bytes: Option<u64>,
}

impl Facts {
    /// Reads the remarks in `bytes`, which came from `file`.
    ///
    /// # Errors
    /// [`SetError`] names the line with a value that is invalid, or differs from an earlier one.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Facts, SetError> {
        let mut facts = Facts::default();
        for (line, text) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            if let Some((key, value)) = remark(text) {
                facts.take(Remark { file, line, key, value })?;
            }
        }
        Ok(facts)
    }

    fn take(&mut self, remark: Remark<'_>) -> Result<(), SetError> {
        match remark.key {
            "kind" => {
                let kinds = [ProfileOrigin::Modelled, ProfileOrigin::Counted];
                let kind = kinds.into_iter().find(|kind| kind.name() == remark.value);
                let kind = kind.ok_or_else(|| remark.wrong("modelled or counted"))?;
                remark.agree("kind", &mut self.kind, kind, ProfileOrigin::name)
            }
            "way-bytes" => {
                let bytes = remark.value.parse().ok().filter(|bytes| *bytes > 0);
                let bytes: u64 = bytes.ok_or_else(|| remark.wrong("a whole number of bytes, at least 1"))?;
                remark.agree("way-bytes", &mut self.way_bytes, bytes, |bytes: u64| bytes)
            }
            _ => Ok(()),
        }
    }
}

/// A line `# key: value`, and where it stands.
struct Remark<'a> {
    file: &'a str,
    line: usize,
    key: &'a str,
    value: &'a str,
}

impl Remark<'_> {
    fn wrong(&self, expected: &'static str) -> SetError {
        let text: String = self.value.chars().take(SHOWN_MAX).collect();
        SetError::Read(ReadError {
            file: self.file.to_string(),
            line: Some(self.line),
            what: format!("{} is \"{text}\"; it must be {expected}", self.key),
        })
    }

    /// Stores a value if none is known, and refuses one that differs from the known one.
    fn agree<V: Copy + PartialEq, S: ToString>(
        &self,
        key: &'static str,
        known: &mut Option<V>,
        value: V,
        said: impl Fn(V) -> S,
    ) -> Result<(), SetError> {
        match *known.get_or_insert(value) {
            before if before == value => Ok(()),
            before => Err(SetError::OtherFact {
                place: format!("{}:{}", self.file, self.line),
                key,
                found: said(value).to_string(),
                before: said(before).to_string(),
            }),
        }
    }
}

/// Key and value of a line `# key: value`.
fn remark(line: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(line).ok()?.trim().strip_prefix('#')?;
    let (key, value) = text.split_once(':')?;
    Some((key.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_remarks_are_passed_over_and_the_same_may_be_said_again() {
        let text = "a,b\n# by hand\n# window: 1000000\n# kind: counted\n1,2\n# kind: counted\r\n";
        let facts = Facts::read("x.csv", text.as_bytes()).expect("fine");
        assert_eq!((facts.kind, facts.way_bytes), (Some(ProfileOrigin::Counted), None));
    }

    #[test]
    fn wrong_remarks_are_refused_with_their_line() {
        let mut list = String::new();
        for (text, line) in [
            ("a,b\n# kind: guessed\n", 2),
            ("# way-bytes: 0\n", 1),
            ("# way-bytes: -1\n", 1),
            ("# way-bytes: 2 MiB\n", 1),
            ("# way-bytes:\n", 1),
            ("# way-bytes: 65536\n\n# way-bytes: 2097152\n", 3),
        ] {
            let error = Facts::read("x.csv", text.as_bytes()).expect_err(text).to_string();
            assert!(error.starts_with(&format!("x.csv:{line}: ")), "{text}: {error}");
            list += &format!("{text}  => {error}\n");
        }
        insta::assert_snapshot!("facts", list);
    }
}
