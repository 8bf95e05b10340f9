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

use super::error::{Problem, ReadError};
use super::rows::shown;

/// Where a profile's figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileOrigin {
    /// Models of the caches and of time.
    Modelled,
    /// Counters of a real processor.
    Counted,
}

impl ProfileOrigin {
    /// Name of the kind in files.
    pub fn name(self) -> &'static str {
        match self {
            ProfileOrigin::Modelled => "modelled",
            ProfileOrigin::Counted => "counted",
        }
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
    /// [`ReadError`] names the line with a value that is invalid, or differs from an earlier one.
    ///
    /// # Examples
    /// ```
    /// use punctual_allocation::profile::{Facts, ProfileOrigin};
    ///
    /// let facts = Facts::read("x.csv", b"window_index,...\n# kind: modelled\n# way-bytes: 65536\n")?;
    /// assert_eq!(facts, Facts { kind: Some(ProfileOrigin::Modelled), way_bytes: Some(65_536) });
    /// # Ok::<(), punctual_allocation::profile::ReadError>(())
    /// ```
    pub fn read(file: &str, bytes: &[u8]) -> Result<Facts, ReadError> {
        let mut facts = Facts::default();
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            let Some((key, value)) = remark(line) else { continue };
            facts.take(key, value).map_err(|problem| ReadError {
                file: file.to_string(),
                line: Some(number),
                problem,
            })?;
        }
        Ok(facts)
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), Problem> {
        let wrong = |expected| Problem::Number {
            column: key.to_string(),
            text: shown(value),
            expected,
        };
        match key {
            "kind" => {
                let kinds = [ProfileOrigin::Modelled, ProfileOrigin::Counted];
                let kind = kinds.into_iter().find(|kind| kind.name() == value);
                let kind = kind.ok_or_else(|| wrong("modelled or counted"))?;
                agree(key, &mut self.kind, kind, ProfileOrigin::name)
            }
            "way-bytes" => {
                let bytes = value.parse().ok().filter(|bytes| *bytes > 0);
                let bytes: u64 = bytes.ok_or_else(|| wrong("a whole number of bytes, at least 1"))?;
                agree(key, &mut self.way_bytes, bytes, |bytes: u64| bytes)
            }
            _ => Ok(()),
        }
    }
}

/// Stores a value if none is known, and refuses one that differs from the known one.
fn agree<V: Copy + PartialEq, S: ToString>(
    key: &str,
    known: &mut Option<V>,
    value: V,
    said: impl Fn(V) -> S,
) -> Result<(), Problem> {
    match *known.get_or_insert(value) {
        before if before == value => Ok(()),
        before => Err(Problem::OtherFact {
            key: key.to_string(),
            found: said(value).to_string(),
            before: said(before).to_string(),
        }),
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

    fn error(text: &str) -> String {
        Facts::read("x.csv", text.as_bytes()).expect_err("refused").to_string()
    }

    #[test]
    fn other_remarks_are_passed_over_and_the_same_may_be_said_again() {
        let text = "a,b\n# by hand\n# window: 1000000\n# kind: counted\n1,2\n# kind: counted\r\n";
        let facts = Facts::read("x.csv", text.as_bytes()).expect("fine");
        assert_eq!((facts.kind, facts.way_bytes), (Some(ProfileOrigin::Counted), None));
    }

    #[test]
    fn what_cannot_be_is_refused_where_it_stands() {
        assert_eq!(
            error("a,b\n# kind: guessed\n"),
            "x.csv:2: kind is \"guessed\"; it must be modelled or counted"
        );
        for bytes in ["0", "-1", "2 MiB", ""] {
            assert_eq!(
                error(&format!("# way-bytes: {bytes}\n")),
                format!("x.csv:1: way-bytes is \"{bytes}\"; it must be a whole number of bytes, at least 1")
            );
        }
        assert_eq!(
            error("# way-bytes: 65536\n\n# way-bytes: 2097152\n"),
            "x.csv:3: says way-bytes: 2097152, but 65536 was said before: profiles of one set are of one machine and of one kind"
        );
    }
}
