//! The order in which a node applies the log: one entry after the other, none twice, none left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::entry::Entry;
use crate::ids::Revision;

/// The most entries that wait to be applied; those beyond are read again later.
pub const BUFFER_MAX: u64 = 256;

/// An entry with its place in the log.
pub type Placed = (Revision, Arc<Entry>);

/// How far a node has applied the log, and what comes next.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    applied: Revision,
    applying: Option<Placed>,
    waiting: BTreeMap<Revision, Arc<Entry>>,
    /// The log is known to reach as far.
    end: Revision,
}

impl Follower {
    /// A node whose store contains all up to `applied`.
    pub fn new(applied: Revision) -> Follower {
        Follower {
            applied,
            end: applied,
            ..Follower::default()
        }
    }

    /// All up to here is applied.
    pub fn applied(&self) -> Revision {
        self.applied
    }

    /// The log is known to reach as far.
    pub fn end(&self) -> Revision {
        self.end
    }

    /// Learns that the log reaches as far as `end`.
    pub fn reaches(&mut self, end: Revision) {
        self.end = self.end.max(end);
    }

    /// Takes an entry of the log, in any order and as often as it comes.
    pub fn offer(&mut self, (revision, entry): Placed) {
        self.reaches(revision);
        let under_way = self.applying.as_ref().map_or(self.applied, |(revision, _)| *revision);
        if revision > under_way && revision.0 <= under_way.0 + BUFFER_MAX {
            self.waiting.insert(revision, entry);
        }
    }

    /// The next entry to apply, if it is there and none is being applied.
    pub fn next_to_apply(&mut self) -> Option<Placed> {
        if self.applying.is_some() {
            return None;
        }
        let revision = self.applied.next();
        let entry = self.waiting.remove(&revision)?;
        self.applying = Some((revision, Arc::clone(&entry)));
        Some((revision, entry))
    }

    /// The entry that was being applied is applied; what it was.
    pub fn done(&mut self, revision: Revision) -> Option<Arc<Entry>> {
        let (_, entry) = self.applying.take_if(|(applying, _)| *applying == revision)?;
        self.applied = revision;
        Some(entry)
    }

    /// The store was replaced by a copy of `revision`.
    pub fn installed(&mut self, revision: Revision) {
        self.applied = revision;
        self.applying = None;
        self.waiting.retain(|waiting, _| *waiting > revision);
        self.reaches(revision);
    }

    /// Whether an entry is being applied.
    pub fn busy(&self) -> bool {
        self.applying.is_some()
    }

    /// Whether the log is known to have more than is here.
    pub fn lacks(&self) -> bool {
        !self.busy() && self.end > self.applied && !self.waiting.contains_key(&self.applied.next())
    }
}
