//! Snapshots that are open: which thread has them, since when, and why one was ended.

use std::fmt;

use punctual_os::Tid;
use punctual_units::{Nanos, Time};

/// What is noted of a snapshot when it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The thread that reads.
    pub thread: Option<Tid>,
    /// When it was taken.
    pub taken_at: Option<Time>,
    /// The firm deadline of its transaction: afterwards nothing needs it.
    pub firm_until: Option<Time>,
    /// The process that reads, where it is not the one that has the store open.
    pub process: Option<u32>,
}

impl Reader {
    /// Nothing is known: such a snapshot is ended for want of room only.
    pub const UNKNOWN: Reader = Reader {
        thread: None,
        taken_at: None,
        firm_until: None,
        process: None,
    };

    /// How long it has been open at `now`; zero where it is not known.
    pub fn age(&self, now: Time) -> Nanos {
        self.taken_at.map_or(Nanos::ZERO, |at| now.since(at))
    }
}

/// A snapshot that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenSnapshot {
    /// Its name.
    pub id: SnapshotId,
    /// What was noted of it.
    pub reader: Reader,
    /// The number of the commit that it shows; later commits have higher numbers.
    pub commit: u64,
}

/// Names one snapshot of an engine, for as long as the engine is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId {
    /// The place that it is kept at.
    pub place: u64,
    /// Which of that place's snapshots it is.
    pub generation: u64,
}

/// A reader that keeps something from reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// What is noted of it.
    pub reader: Reader,
    /// How old its snapshot is, where that is known.
    pub age: Option<Nanos>,
    /// What it keeps from reuse, in bytes.
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
            write!(f, ", open since {age},")?;
        }
        write!(f, " keeps {} bytes of it from reuse", self.held)
    }
}

/// Why a snapshot was ended before its reader gave it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndedBecause {
    /// The firm deadline of its transaction had passed.
    Deadline,
    /// It was older than [`reader_life_max`](crate::StoreOptions::reader_life_max).
    Life,
    /// It kept more from reuse than [the data takes](crate::readers::HELD_MIN).
    Held,
    /// The store's quota was met, and it kept pages that a delete or a group commit needed.
    Quota,
}

impl EndedBecause {
    /// All of them.
    pub const ALL: [EndedBecause; 4] = [
        EndedBecause::Deadline,
        EndedBecause::Life,
        EndedBecause::Held,
        EndedBecause::Quota,
    ];

    /// What its reader can do about it.
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
        f.write_str(match self {
            EndedBecause::Deadline => "its firm deadline had passed",
            EndedBecause::Life => "it was older than reader_life_max",
            EndedBecause::Held => "it kept more from reuse than all data takes",
            EndedBecause::Quota => "the quota was met and it kept pages that were needed",
        })
    }
}

/// How much room an engine has, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The most that the store may take; `None` without a bound.
    pub quota: Option<u64>,
    /// What it takes now.
    pub taken: u64,
    /// The part of `taken` that holds records.
    pub data: u64,
    /// What each commit has freed and no later one has used again: the commit's number, and bytes, in ascending order
    /// of numbers. A snapshot keeps from reuse what commits after its own have freed.
    pub freed: Vec<(u64, u64)>,
}

impl Space {
    /// What a snapshot of `commit` keeps from reuse, in bytes. Another snapshot may keep part of it as well.
    pub fn held_by(&self, commit: u64) -> u64 {
        let later = self.freed.iter().filter(|(freed_by, _)| *freed_by > commit);
        later.map(|(_, bytes)| bytes).sum()
    }
}
