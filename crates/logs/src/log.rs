//! The contract of a log: `CommitLog`, its answers and errors.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{FederationId, LogHistory, Revision};

/// The format of entries that this version writes; it reads this and older ones.
pub const FORMAT: u32 = 1;

/// The longest entry in bytes. etcd's default bound on requests is 1.5 MiB; half a MiB is left for the rest of a
/// request.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Owner, format and history of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The federation whose commits the log holds.
    pub federation: FederationId,
    /// The newest format of the log's entries.
    pub format: u32,
    /// In a call: the history of a log that the call claims.
    pub history: LogHistory,
}

/// State of a log that was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogState {
    /// The revision of the last entry.
    pub last: Revision,
    pub history: LogHistory,
    /// The revision up to which entries are trimmed.
    pub trimmed: Revision,
    /// Bytes of the entries that are there; etcd estimates them. 0: unknown.
    pub bytes: u64,
}

impl Identity {
    /// Checks that a caller with the identity `asked` may use a log with this one.
    ///
    /// # Errors
    /// [`LogError::OtherFederation`], [`LogError::NewerFormat`].
    pub fn admit(&self, asked: Identity) -> Result<(), LogError> {
        if self.federation != asked.federation {
            return Err(LogError::OtherFederation {
                found: self.federation,
                expected: asked.federation,
            });
        }
        if self.format > asked.format {
            return Err(LogError::NewerFormat {
                found: self.format,
                supported: asked.format,
            });
        }
        Ok(())
    }
}

/// An entry with its revision in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    pub revision: Revision,
    /// The entry; its meaning is no concern of the log's.
    pub bytes: Arc<[u8]>,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Entries without a gap, from the one after the requested revision on.
    pub records: Vec<LogRecord>,
    /// The revision of the log's last entry, which may lie beyond `records`.
    pub last: Revision,
}

/// Result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AppendResult {
    /// The entry is in the log, at this revision, and stays there.
    At(Revision),
    /// The log did not end at the expected revision: this call appended nothing. An earlier call of the same append, or
    /// a copy of it that the network made, may have succeeded: a read shows it.
    Lost {
        /// The revision of the log's last entry.
        last: Revision,
    },
}

/// Reason for which a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LogError {
    /// The outcome is unknown: the call was carried out, or will be, or never.
    #[error("the log did not answer: read it to learn whether it did what it was asked")]
    NoAnswer,
    /// The requested entries have been trimmed away.
    #[error("the log begins after revision {trimmed}: get a copy of the state from another node")]
    Compacted {
        /// The last removed revision.
        trimmed: Revision,
    },
    /// The log belongs to another federation.
    #[error("the log belongs to federation {found}, this node to {expected}: correct the address of the log")]
    OtherFederation {
        /// The federation that the log belongs to.
        found: FederationId,
        /// The federation of the caller.
        expected: FederationId,
    },
    /// The log was written by a newer version.
    #[error("the log has format {found}, this program reads up to {supported}: update this node")]
    NewerFormat {
        /// Format of the log's entries.
        found: u32,
        /// The newest format that the caller reads.
        supported: u32,
    },
    /// Entries that were appended for this federation are missing: the log is new, was wiped, or another program has
    /// removed entries.
    #[error(
        "the log has nothing of this federation, or has lost entries of it: if it is new, found it (`punctual cluster \
         found`); else restore etcd from a snapshot, or begin a new federation from a backup of a node's store"
    )]
    Gone,
    /// The entry is too long: nothing was appended. The log refuses an entry of that length always.
    #[error("an entry has at most {ENTRY_BYTES_MAX} bytes, this one has {len}: commit in smaller steps")]
    EntryTooLong {
        /// The entry's length in bytes.
        len: usize,
    },
    /// The medium is full: this call appended nothing. The log answers all other calls, and takes appends once there is
    /// room.
    #[error("the medium of the log is full: make room there; until then nothing is committed, and nothing is lost")]
    NoRoom,
}

/// A log that several nodes append to and read. Revisions rise by one; an entry that was acknowledged, or that a read
/// returned, stays the same.
///
/// Any call may end with [`LogError::Gone`] if the log can lose its entries at all; the federation is over then.
///
/// Any call may end with [`LogError::NoAnswer`]; then it has had its effect, will have it later, or never has it.
pub trait CommitLog {
    /// Claims an empty log for a federation, which then has the history of `identity`; or checks that the log is the
    /// caller's. A log keeps its history.
    ///
    /// # Errors
    /// [`LogError::OtherFederation`], [`LogError::NewerFormat`]: nothing was changed, and no other call may be made.
    fn open(&mut self, identity: Identity) -> Result<LogState, LogError>;

    /// Appends `entry` if the last entry is at `last`. The answer [`AppendResult::At`] is always `last` + 1.
    ///
    /// # Errors
    /// [`LogError::EntryTooLong`], [`LogError::NoRoom`].
    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<AppendResult, LogError>;

    /// Up to `max` entries after `after`. Linearizable: every append that ended before this call began is among them,
    /// or at or before [`Stretch::last`].
    ///
    /// # Errors
    /// [`LogError::Compacted`] where entries after `after` were trimmed.
    fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError>;

    /// Up to `max` entries after `after`, in order and without a gap, as far as they have arrived here: perhaps none.
    ///
    /// # Errors
    /// [`LogError::Compacted`], as [`read_from`](CommitLog::read_from).
    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<LogRecord>, LogError>;

    /// As [`watch_from`](CommitLog::watch_from), but waits up to `wait` for the first entry, if the log can report its
    /// arrival. The default implementation does not wait.
    ///
    /// # Errors
    /// As [`watch_from`](CommitLog::watch_from).
    fn await_from(&mut self, after: Revision, max: usize, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        let _ = wait;
        self.watch_from(after, max)
    }

    /// Removes all entries up to and with `upto`; the last revision stays as it is, and revisions go on from there.
    ///
    /// # Errors
    /// [`LogError::NoAnswer`] only.
    fn trim(&mut self, upto: Revision) -> Result<(), LogError>;
}
