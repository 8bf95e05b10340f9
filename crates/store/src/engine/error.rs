//! What can go wrong in an engine, where, and what to do about it.

use std::io;
use std::path::PathBuf;

use punctual_units::Nanos;

use super::{EndedBecause, Holder, KEY_MAX_LEN, VALUE_MAX_LEN};

/// A failure of a storage engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The file system has no room, or a quota or file-size limit was met. The transaction is undone, the store stays
    /// readable.
    #[error(
        "{}: no room left on the device for the store: free some space, or raise the quota or file-size \
         limit",
        path.display()
    )]
    DiskFull {
        /// The store.
        path: PathBuf,
    },
    /// The store has grown up to its quota. A put of a plain record is refused so that deletes and group commits still
    /// find room: nothing has happened, its transaction may go on. From any other call: the transaction is undone.
    #[error(
        "{}: the store's quota of {quota} bytes is met{}: delete records, which is still possible, change less in one \
         transaction, or raise quota",
        path.display(),
        holder.map_or(String::new(), |holder| holder.to_string())
    )]
    QuotaFull {
        /// The store.
        path: PathBuf,
        /// The quota in bytes.
        quota: u64,
        /// The reader that keeps most from reuse.
        holder: Option<Holder>,
    },
    /// One transaction changed more than the engine can hold.
    #[error("{}: the transaction has changed too many records: commit in smaller steps", path.display())]
    TransactionTooLarge {
        /// The store.
        path: PathBuf,
    },
    /// The store cannot be written.
    #[error(
        "{}: the store cannot be written: give this user write permission, or mount its file system \
         read-write",
        path.display()
    )]
    ReadOnly {
        /// The store, or the file in it that was refused.
        path: PathBuf,
    },
    /// The file is not a store, or is damaged.
    #[error(
        "{}: the store is corrupt ({reason}): restore it from a copy, or move it away to begin a new \
         one",
        path.display()
    )]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The store was written by a version with another format.
    #[error(
        "{}: the store has format {found}, this program reads format {expected}: use the version that wrote \
         it, or begin a new store",
        path.display()
    )]
    Version {
        /// The store.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The format this program reads and writes.
        expected: u32,
    },
    /// Another program, or another part of this one, has the store open.
    #[error(
        "{}: the store is in use by process {}: end it first, or choose another store",
        path.display(),
        pid.map_or("(unknown)".to_owned(), |pid| pid.to_string())
    )]
    InUse {
        /// The store.
        path: PathBuf,
        /// The process that has it open, where it could be read.
        pid: Option<u32>,
    },
    /// More snapshots are open than the engine has room for.
    #[error(
        "{}: {max} snapshots of the store are open, and no more may be: drop some, or open it with a larger \
         readers_max",
        path.display()
    )]
    ReadersFull {
        /// The store.
        path: PathBuf,
        /// How many may be open.
        max: u32,
    },
    /// A key that no record can have.
    #[error("a key has 1 to {KEY_MAX_LEN} bytes, this one has {len}")]
    KeyLength {
        /// The key's length in bytes.
        len: usize,
    },
    /// A value that no record can have.
    #[error("a value has at most {VALUE_MAX_LEN} bytes, this one has {len}")]
    ValueLength {
        /// The value's length in bytes.
        len: usize,
    },
    /// A setting that cannot work.
    #[error("{}: {setting} cannot be {value}: {remedy}", path.display())]
    Setting {
        /// The store.
        path: PathBuf,
        /// The setting's name.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What would be accepted.
        remedy: &'static str,
    },
    /// An earlier failure left the engine unable to go on.
    #[error(
        "{}: an earlier write to the store failed halfway: reopen it, nothing that was acknowledged is \
         lost",
        path.display()
    )]
    Broken {
        /// The store.
        path: PathBuf,
    },
    /// The operating system refused something else.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The snapshot was ended while its reader was outside of a call, so that it keeps no more from reuse. Nothing was
    /// read; what was read before is right.
    #[error("this snapshot was ended when it was {age} old, because {why}: begin another transaction; {}", why.remedy())]
    SnapshotEnded {
        /// How old it was then.
        age: Nanos,
        /// Why.
        why: EndedBecause,
    },
    /// A sync failed: the kernel may have dropped what it could not write, and would not say so again.
    #[error(
        "{}: the store could not be synced, and what was written since is not to be relied upon: see to the medium, \
         then reopen the store; nothing that was acknowledged as durable is lost",
        path.display()
    )]
    SyncFailed {
        /// The store.
        path: PathBuf,
    },
    /// This process is a child of the one that opened the store.
    #[error(
        "{}: the store belongs to the process that this one was forked from: use it there, or start another program \
         with exec",
        path.display()
    )]
    Forked {
        /// The store.
        path: PathBuf,
    },
    /// A sync was asked of a store that cannot keep what it would promise.
    #[error(
        "{}: a volatile store survives no power cut, whatever is synced: open it with durability no-meta-sync or \
         durable",
        path.display()
    )]
    Volatile {
        /// The store.
        path: PathBuf,
    },
    /// A volatile store was open when the machine stopped.
    #[error(
        "{}: the store was open with durability volatile when the machine stopped, and what is in it cannot be told \
         from what is lost: restore it from a copy, or move it away to begin a new one",
        path.display()
    )]
    Unsynced {
        /// The store.
        path: PathBuf,
    },
    /// There is nothing to read.
    #[error("{}: there is no store: name the folder that holds its data.mdb", path.display())]
    NoStore {
        /// The folder.
        path: PathBuf,
    },
    /// A process that reads a store beside its owner lost its snapshot: what it has read is not to be used.
    #[error("{}: the store was written to while it was read, and {reason}: try again", path.display())]
    Overtaken {
        /// The store.
        path: PathBuf,
        /// Why it was not kept.
        reason: &'static str,
    },
    /// An earlier call of this transaction failed.
    #[error(
        "{}: an earlier change of this transaction failed: drop it and begin another, the store itself goes on",
        path.display()
    )]
    TransactionLost {
        /// The store.
        path: PathBuf,
    },
}
