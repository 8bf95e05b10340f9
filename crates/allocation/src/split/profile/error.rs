//! Errors of profiles and of their files.

use std::fmt;

use thiserror::Error;

/// Why a machine cannot be split so, or profiles cannot be used: what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SplitError(pub String);

/// Refuses what does not hold.
///
/// # Errors
/// [`SplitError`], with the sentence `what`.
pub(crate) fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), SplitError> {
    if holds { Ok(()) } else { Err(SplitError(what())) }
}

/// Why a file is no profile: where, what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ReadError {
    /// The file, as the caller named it.
    pub file: String,
    /// The line at fault, from 1; `None` where no single line is.
    pub line: Option<usize>,
    pub what: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

impl SplitError {
    /// The error of the whole `file`.
    pub fn of_file(self, file: &str) -> ReadError {
        ReadError {
            file: file.into(),
            line: None,
            what: self.0,
        }
    }
}
