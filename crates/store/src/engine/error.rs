//! Errors of an engine: the store or file concerned, and the remedy.

use std::io;
use std::path::PathBuf;

use punctual_units::Nanos;

use super::{EndedBecause, Holder, KEY_MAX_LEN, VALUE_MAX_LEN};

/// Failure or refusal of a storage engine.
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
        /// Path of the affected store.
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
        /// Path of the affected store.
        path: PathBuf,
        /// The quota in bytes.
        quota: u64,
        /// The reader whose snapshot keeps most bytes from reuse.
        holder: Option<Holder>,
    },
    /// The transaction changed more than the engine can hold.
    #[error("{}: the transaction has changed too many records: commit in smaller steps", path.display())]
    TransactionTooLarge {
        /// Path of the affected store.
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
        /// Path of the damaged file.
        path: PathBuf,
        /// The damage that was found.
        reason: String,
    },
    /// The store was written by a version with another format.
    #[error(
        "{}: the store has format {found}, this program reads format {expected}: use the version that wrote \
         it, or begin a new store",
        path.display()
    )]
    Version {
        /// Path of the affected store.
        path: PathBuf,
        /// The format in the file.
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
        /// Path of the store in use.
        path: PathBuf,
        /// The process that has it open, where it could be read.
        pid: Option<u32>,
    },
    /// More snapshots would be open than the engine has room for.
    #[error(
        "{}: {max} snapshots of the store are open, the most possible: drop some, or open it with a larger \
         readers_max",
        path.display()
    )]
    ReadersFull {
        /// Path of the affected store.
        path: PathBuf,
        /// Most snapshots that may be open at once.
        max: u32,
    },
    /// A key that is empty or too long for a record.
    #[error("a key has 1 to {KEY_MAX_LEN} bytes, this one has {len}")]
    KeyLength {
        /// The key's length in bytes.
        len: usize,
    },
    /// A value that is too long for a record.
    #[error("a value has at most {VALUE_MAX_LEN} bytes, this one has {len}")]
    ValueLength {
        /// The value's length in bytes.
        len: usize,
    },
    /// The engine cannot work with this setting.
    #[error("{}: {setting} cannot be {value}: {remedy}", path.display())]
    Setting {
        /// Path of the affected store.
        path: PathBuf,
        /// Name of the refused setting.
        setting: &'static str,
        /// Value of the refused setting, as text.
        value: String,
        /// The accepted values, as the message ends.
        remedy: &'static str,
    },
    /// An earlier write failed halfway; every later call is refused until the store is reopened.
    #[error(
        "{}: an earlier write to the store failed halfway: reopen it, nothing that was acknowledged is \
         lost",
        path.display()
    )]
    Broken {
        /// Path of the affected store.
        path: PathBuf,
    },
    /// A call to the operating system failed for a reason not listed here.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The file or directory concerned.
        path: PathBuf,
        /// The operation that failed, for the message.
        action: &'static str,
        /// The operating system's own error.
        source: io::Error,
    },
    /// The snapshot was ended while its reader was outside of a call, so that it keeps no pages from reuse any more.
    /// This call read nothing; earlier reads are valid.
    #[error("this snapshot was ended when it was {age} old, because {why}: begin another transaction; {}", why.remedy())]
    SnapshotEnded {
        /// Age of the snapshot when it was ended.
        age: Nanos,
        /// Reason for which it was ended.
        why: EndedBecause,
    },
    /// A sync failed: the kernel may have dropped pages that it could not write, and would not report so again.
    #[error(
        "{}: the store could not be synced, and writes since the last sync may be lost: check the medium, then reopen \
         the store to write; reads go on, and nothing that was acknowledged as durable is lost",
        path.display()
    )]
    SyncFailed {
        /// Path of the affected store.
        path: PathBuf,
    },
    /// This process was forked from the one that opened the store.
    #[error(
        "{}: the store belongs to the process that this one was forked from: use it there, or start another program \
         with exec",
        path.display()
    )]
    Forked {
        /// Path of the affected store.
        path: PathBuf,
    },
    /// A sync was asked of a volatile store, which a power cut may destroy in spite of it.
    #[error(
        "{}: a volatile store survives no power cut, whatever is synced: open it with durability no-meta-sync or \
         durable",
        path.display()
    )]
    Volatile {
        /// Path of the volatile store.
        path: PathBuf,
    },
    /// The machine stopped while a volatile store was open, so its contents cannot be trusted.
    #[error(
        "{}: the store was open with durability volatile when the machine stopped, so its contents cannot be trusted: \
         restore it from a copy, or move it away to begin a new one",
        path.display()
    )]
    Unsynced {
        /// Path of the volatile store.
        path: PathBuf,
    },
    /// The folder holds no store.
    #[error("{}: there is no store: name the folder that holds its data.mdb", path.display())]
    NoStore {
        /// The folder that was named.
        path: PathBuf,
    },
    /// The data file is gone or was emptied, and what lies beside it shows that there was a store.
    #[error(
        "{}: the store's data.mdb {what}: put it back from a copy, or remove lock.mdb and an empty data.mdb to begin a \
         new store",
        path.display()
    )]
    DataMissing {
        /// The folder of the store.
        path: PathBuf,
        /// State of the data file, as the message goes on.
        what: &'static str,
    },
    /// A process that read a store beside its owner lost its snapshot; results of its reads must not be used.
    #[error("{}: the store was written to while it was read, and {reason}: try again", path.display())]
    Overtaken {
        /// Path of the store that was read.
        path: PathBuf,
        /// Reason for which the snapshot was lost.
        reason: &'static str,
    },
    /// An earlier call of this transaction failed, so the transaction cannot go on.
    #[error(
        "{}: an earlier change of this transaction failed: drop it and begin another, the store itself goes on",
        path.display()
    )]
    TransactionLost {
        /// Path of the affected store.
        path: PathBuf,
    },
}
