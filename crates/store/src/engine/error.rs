//! What can go wrong in an engine, where, and what to do about it.

use std::io;
use std::path::PathBuf;

use super::{KEY_MAX_LEN, VALUE_MAX_LEN};

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
    /// The records do not fit into the map. The transaction is undone, the store stays readable.
    #[error(
        "{}: the store's map of {map_size} bytes is full: delete records, or open it with a larger map \
         size",
        path.display()
    )]
    MapFull {
        /// The store.
        path: PathBuf,
        /// The map's size in bytes.
        map_size: usize,
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
    /// This thread already holds a snapshot.
    #[error("this thread already holds a snapshot of the store: read through it, or drop it first")]
    SnapshotHeld,
    /// More threads hold snapshots than the engine has room for.
    #[error(
        "{}: all {max} reader slots of the store are taken: end some reading threads, or open it with more \
         slots",
        path.display()
    )]
    ReadersFull {
        /// The store.
        path: PathBuf,
        /// How many slots there are.
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
}
