//! Errors that end a command early, and their exit codes, which let scripts tell a user's error from a refuted check.

use std::fmt;
use std::path::Path;

/// Reason why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Fault of the input or the environment, which the user can fix. One message per line.
    #[error("{}", .0.join("\n"))]
    Input(Vec<String>),
    /// The claim that the command checked does not hold: a missed goal, a replay that differs.
    #[error("{0}")]
    Refuted(String),
    /// Defect of this program.
    #[error("internal error: {0}\nThis is a defect of punctual; please report it.")]
    Internal(String),
}

impl Failure {
    /// Failure that the user can fix, one message per line.
    pub fn input<S: Into<String>>(lines: impl IntoIterator<Item = S>) -> Failure {
        Failure::Input(lines.into_iter().map(Into::into).collect())
    }

    /// Failure that the user can fix, with one message.
    pub fn of(message: impl fmt::Display) -> Failure {
        Failure::Input(vec![message.to_string()])
    }

    /// Failure that the user can fix, about the file at `path`.
    pub fn at(path: impl AsRef<Path>, what: impl fmt::Display) -> Failure {
        Failure::of(format_args!("{}: {what}", path.as_ref().display()))
    }

    /// Refuses the input, where there are messages about it.
    ///
    /// # Errors
    /// [`Failure::Input`] with these messages, one per line.
    pub fn refuse(messages: impl IntoIterator<Item: ToString>) -> Result<(), Failure> {
        let lines: Vec<String> = messages.into_iter().map(|message| message.to_string()).collect();
        match lines.is_empty() {
            true => Ok(()),
            false => Err(Failure::Input(lines)),
        }
    }

    /// Combines all failures among `results` into one.
    ///
    /// # Errors
    /// If any result is an error: an internal one first, then those that the user can fix, then a refuted check.
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

    /// 2 for errors that the user can fix (as for a wrong command line), 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Input(_) => 2,
            Failure::Refuted(_) | Failure::Internal(_) => 1,
        }
    }
}
