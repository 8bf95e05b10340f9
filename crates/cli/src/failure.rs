//! What ends a command early, and the exit code that tells scripts whose turn it is.

use std::fmt;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The input or the surroundings are at fault; the user can mend it. One message per line.
    Input(Vec<String>),
    /// What was to be confirmed is not so: a goal that was not held, a replay that differs.
    Refuted(String),
    /// This program is at fault.
    Internal(String),
}

impl Failure {
    /// What the user has to mend.
    pub fn input<S: Into<String>>(lines: impl IntoIterator<Item = S>) -> Failure {
        Failure::Input(lines.into_iter().map(Into::into).collect())
    }

    /// All failures among `results` as one.
    ///
    /// # Errors
    /// Where there is one; an internal one comes before what the user can mend, and what is refuted last.
    pub fn all(results: impl IntoIterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
        let (mut lines, mut refuted) = (Vec::new(), None);
        for failure in results.into_iter().filter_map(Result::err) {
            match failure {
                Failure::Input(more) => lines.extend(more),
                Failure::Refuted(_) => refuted = Some(failure),
                Failure::Internal(_) => return Err(failure),
            }
        }
        match refuted {
            _ if !lines.is_empty() => Err(Failure::Input(lines)),
            Some(refuted) => Err(refuted),
            None => Ok(()),
        }
    }

    /// 2 for what the user can mend (as for a wrong command line), 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Input(_) => 2,
            Failure::Refuted(_) | Failure::Internal(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(lines) => f.write_str(&lines.join("\n")),
            Failure::Refuted(what) => f.write_str(what),
            Failure::Internal(what) => write!(
                f,
                "internal error: {what}\nThis is a defect of punctual; please report it."
            ),
        }
    }
}

impl std::error::Error for Failure {}
