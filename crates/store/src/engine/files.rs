//! Copies of an engine's file, by the process that has it open.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use punctual_units::Share;

use super::{Engine, EngineError};

/// Why a store was not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The store that is read, or the new one, failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The target folder is not empty: its content would be lost.
    #[error("{}: is there already: name a folder that is not, or an empty one", path.display())]
    Taken {
        /// The new store's folder.
        path: PathBuf,
    },
    /// The text of an export could not be written.
    #[error("the export cannot be written: {0}")]
    Write(io::Error),
    /// The text of an export could not be read.
    #[error("the export cannot be read: {0}")]
    Read(io::Error),
    /// The owner took the snapshot away during each attempt.
    #[error(
        "{}: it is written over faster than it can be copied: the copy was begun {tries} times, and lost its snapshot \
         each time (at last: {last}). Copy it while less is written, or let its owner keep snapshots: reader_life_max none \
         keeps them until the quota is met, and a larger quota longer",
        path.display()
    )]
    Outrun {
        /// Directory of the store that is read.
        path: PathBuf,
        /// Number of attempts made.
        tries: usize,
        /// Error of the last attempt.
        last: Box<EngineError>,
    },
    /// The text is not a whole export.
    #[error("line {line}: {what}; export the store once more, nothing was imported")]
    Damaged {
        /// Number of the damaged line, from 1 on.
        line: u64,
        /// The damage found in that line.
        what: String,
    },
}

/// Amount of records copied so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCount {
    /// Number of records copied, of both tables.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// An engine that keeps its records in a file, which it can copy while it is open.
pub trait FileEngine: Engine {
    /// Copies the newest commit to a new store in `to`, in steps that take `share` of the time.
    ///
    /// # Errors
    /// [`TransferError`]; nothing is left at `to`.
    fn backup(&self, to: &Path, share: Share) -> Result<CopyCount, TransferError>;

    /// Writes all records of the newest commit as text.
    ///
    /// # Errors
    /// [`TransferError`]; the text lacks its end line.
    fn export(&self, to: &mut dyn Write) -> Result<CopyCount, TransferError>;
}
