//! Open snapshots: the reading thread, the age, and the reason for which a snapshot was ended.

use std::fmt;

use punctual_os::Tid;
use punctual_units::{Nanos, Time};

/// Facts that the engine records about a reader when its snapshot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The thread that reads, if known.
    pub thread: Option<Tid>,
    /// The instant at which the snapshot was taken.
    pub taken_at: Option<Time>,
    /// The firm deadline of the reading transaction; later the snapshot is useless and may be ended.
    pub firm_until: Option<Time>,
    /// The process that reads, if it is not the one that has the store open.
    pub process: Option<u32>,
}

impl Reader {
    /// A reader of which nothing is known: its snapshot is ended only when the store lacks room.
    pub const UNKNOWN: Reader = Reader {
        thread: None,
        taken_at: None,
        firm_until: None,
        process: None,
    };

    /// Age of the snapshot at `now`; zero where it is unknown.
    pub fn age(&self, now: Time) -> Nanos {
        self.taken_at.map_or(Nanos::ZERO, |at| now.since(at))
    }
}

/// A snapshot that is open and was not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenSnapshot {
    /// Identifier by which `Engine::end` ends it.
    pub id: SnapshotId,
    /// Facts recorded when it was taken.
    pub reader: Reader,
    /// The number of the commit that it shows; later commits have higher numbers.
    pub commit: u64,
}

/// Identifies one snapshot of an engine, for as long as the engine is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId {
    /// Index of the snapshot's slot.
    pub place: u64,
    /// Number of the snapshot within that slot, which is used again.
    pub generation: u64,
}

/// A reader whose snapshot keeps pages from reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Facts recorded when the snapshot was taken.
    pub reader: Reader,
    /// Age of the snapshot, if known.
    pub age: Option<Nanos>,
    /// Bytes that it keeps from reuse.
    pub held: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(", and a snapshot")?;
        if let Some(process) = self.reader.process {
            write!(f, " of process {process}")?;
        }
        if let Some(thread) = self.reader.thread {
            write!(f, " of thread {thread}")?;
        }
        if let Some(age) = self.age {
            write!(f, ", open for {age},")?;
        }
        write!(f, " keeps {} bytes of it from reuse", self.held)
    }
}

punctual_units::named! {
    /// Reason for which a snapshot was ended before its reader released it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum EndedBecause by reason {
        /// The firm deadline of its transaction had passed.
        Deadline = "its firm deadline had passed",
        /// The snapshot was older than [`reader_life_max`](crate::StoreOptions::reader_life_max).
        Life = "it was older than reader_life_max",
        /// The snapshot kept more from reuse than [the data takes](crate::readers::HELD_MIN).
        Held = "it kept more from reuse than all data takes",
        /// The store's quota was met, and the snapshot kept pages that a delete or a group commit needed.
        Quota = "the quota was met and it kept pages that were needed",
    }
}

impl EndedBecause {
    /// Advice for the reader, to end a message with.
    pub fn remedy(self) -> &'static str {
        match self {
            EndedBecause::Deadline => "give the transaction more time, or make its deadline soft",
            EndedBecause::Life => "read in shorter transactions, or raise reader_life_max",
            EndedBecause::Held => "read in shorter transactions, or set reader_life_max to none",
            EndedBecause::Quota => "read in shorter transactions, delete earlier, or raise quota",
        }
    }
}

impl fmt::Display for EndedBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

/// Space of an engine: bound, taken, and free, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Most bytes that the store may take; `None` without a bound.
    pub quota: Option<u64>,
    /// Bytes that the store takes now.
    pub taken: u64,
    /// The part of `taken` that holds records.
    pub data: u64,
    /// Pages freed and not used again yet, per freeing commit: the commit's number and bytes, in ascending order of
    /// numbers. A snapshot keeps from reuse the pages that later commits than its own have freed.
    pub freed: Vec<(u64, u64)>,
}

impl Space {
    /// Bytes that a snapshot of `commit` keeps from reuse. Another snapshot may keep some of them as well.
    pub fn held_by(&self, commit: u64) -> u64 {
        let later = self.freed.iter().filter(|(freed_by, _)| *freed_by > commit);
        later.map(|(_, bytes)| bytes).sum()
    }
}
