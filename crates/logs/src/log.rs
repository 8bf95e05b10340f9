//! What a log promises.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{FederationId, Revision};

/// The format of entries that this version writes; it reads this and older ones.
pub const FORMAT: u32 = 1;

/// The longest entry in bytes. etcd takes requests of 1.5 MiB unless told otherwise; half a MiB is left for what is
/// around an entry.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// What a log is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The federation whose commits it holds.
    pub federation: FederationId,
    /// The newest format of its entries.
    pub format: u32,
}

impl Identity {
    /// Whether a caller of the identity `asked` may use a log of this one.
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

/// An entry with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place.
    pub revision: Revision,
    /// The entry; what it means is no business of the log's.
    pub bytes: Arc<[u8]>,
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Entries without a gap, from the one after the revision that was asked for.
    pub records: Vec<Record>,
    /// The revision of the log's last entry, which may lie beyond `records`.
    pub last: Revision,
}

/// How an append ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Appended {
    /// The entry is in the log, at this revision, and stays there.
    At(Revision),
    /// The log was not at the expected revision: this call appended nothing. An earlier call of the same append, or a
    /// copy of it that the network made, may have: a read tells.
    Lost {
        /// The revision of the log's last entry.
        last: Revision,
    },
}

/// Why a log did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LogError {
    /// Nothing is known of what was asked: it was done, or will be, or never.
    #[error("the log did not answer: read it to learn whether it did what it was asked")]
    NoAnswer,
    /// The entries asked for have been trimmed away.
    #[error("the log begins after revision {trimmed}: get a copy of the state from another node")]
    Compacted {
        /// The last revision that is gone.
        trimmed: Revision,
    },
    /// The log belongs to another federation.
    #[error("the log belongs to federation {found}, this node to {expected}: correct the address of the log")]
    OtherFederation {
        /// The log's federation.
        found: FederationId,
        /// The caller's.
        expected: FederationId,
    },
    /// The log was written by a newer version.
    #[error("the log has format {found}, this program reads up to {supported}: update this node")]
    NewerFormat {
        /// The log's format.
        found: u32,
        /// The newest that the caller reads.
        supported: u32,
    },
    /// What was appended for this federation is not there: the place is new, was wiped, or another program has removed
    /// entries.
    #[error(
        "the log has nothing of this federation, or has lost entries of it: if it is new, found it (`punctual federation \
         found`); else restore etcd from a snapshot, or begin a new federation from a backup of a node's store"
    )]
    Gone,
    /// The entry does not fit: nothing was appended. A log takes an entry of that length at no other time either.
    #[error("an entry has at most {ENTRY_BYTES_MAX} bytes, this one has {len}: commit in smaller steps")]
    EntryTooLong {
        /// The entry's length in bytes.
        len: usize,
    },
}

/// A log that several nodes append to and read. Revisions rise by one; an entry that was acknowledged, or that a read
/// returned, stays what it is.
///
/// Any call may end with [`LogError::Gone`] where the log can lose its entries at all; the federation is over then.
///
/// Any call may end with [`LogError::NoAnswer`]; then it has had its effect, will have it later, or never has it.
pub trait CommitLog {
    /// Claims an empty log for a federation, or checks that it is the caller's; the revision of the last entry.
    ///
    /// # Errors
    /// [`LogError::OtherFederation`], [`LogError::NewerFormat`]: nothing was changed, and nothing may be asked of it.
    fn open(&mut self, identity: Identity) -> Result<Revision, LogError>;

    /// Appends `entry` if the last entry is at `last`. The answer [`Appended::At`] is `last` + 1, always.
    ///
    /// # Errors
    /// [`LogError::EntryTooLong`].
    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<Appended, LogError>;

    /// Up to `max` entries after `after`. Linearizable: every append that ended before this call began is there, or
    /// before [`Stretch::last`].
    ///
    /// # Errors
    /// [`LogError::Compacted`] where entries after `after` were trimmed.
    fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError>;

    /// Up to `max` entries after `after`, in order and without a gap, as far as they have come here: perhaps none.
    ///
    /// # Errors
    /// [`LogError::Compacted`], as [`read_from`](CommitLog::read_from).
    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<Record>, LogError>;

    /// The same, but that it waits up to `wait` for the first entry, where the log can tell when there is one. This
    /// provided one does not wait.
    ///
    /// # Errors
    /// As [`watch_from`](CommitLog::watch_from).
    fn await_from(&mut self, after: Revision, max: usize, wait: Duration) -> Result<Vec<Record>, LogError> {
        let _ = wait;
        self.watch_from(after, max)
    }

    /// Forgets all entries up to and with `upto`, at most all that there are. Revisions go on from where they were.
    ///
    /// # Errors
    /// [`LogError::NoAnswer`] only.
    fn trim(&mut self, upto: Revision) -> Result<(), LogError>;
}
