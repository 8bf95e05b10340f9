//! The order in which a node applies the log: one entry after the other, without repetition or gap.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::entry::Entry;
use crate::ids::Revision;

/// Most entries that wait to be applied; further ones are read again later.
pub const BUFFER_MAX: u64 = 256;

/// An entry with its revision in the log.
pub type NumberedEntry = (Revision, Arc<Entry>);

/// Progress of a node in applying the log, and the entries that come next.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    applied: Revision,
    applying: Option<NumberedEntry>,
    waiting: BTreeMap<Revision, Arc<Entry>>,
    /// Revision up to which the log is known to reach.
    end: Revision,
}

impl Follower {
    /// State of a node whose store contains all entries up to `applied`.
    pub fn new(applied: Revision) -> Follower {
        Follower {
            applied,
            end: applied,
            ..Follower::default()
        }
    }

    /// Revision up to which all entries are applied.
    pub fn applied(&self) -> Revision {
        self.applied
    }

    /// Revision up to which all entries are applied or being applied.
    pub fn under_way(&self) -> Revision {
        self.applying.as_ref().map_or(self.applied, |(revision, _)| *revision)
    }

    /// Forgets what it knows about the log behind the entry under way.
    pub fn begin_anew(&mut self) {
        self.waiting.clear();
        self.end = self.under_way();
    }

    /// Revision up to which the log is known to reach.
    pub fn end(&self) -> Revision {
        self.end
    }

    /// Notes that the log reaches at least up to `end`.
    pub fn reaches(&mut self, end: Revision) {
        self.end = self.end.max(end);
    }

    /// Notes that the log was read, and ended at `end`: a peer may have reported more of another log.
    pub fn ends(&mut self, end: Revision) {
        let waiting = self.waiting.keys().next_back().copied().unwrap_or_default();
        self.end = end.max(self.under_way()).max(waiting);
    }

    /// Takes an entry of the log, in any order, and repeatedly.
    pub fn offer(&mut self, (revision, entry): NumberedEntry) {
        self.reaches(revision);
        let under_way = self.under_way();
        if revision > under_way && revision.0 <= under_way.0 + BUFFER_MAX {
            self.waiting.insert(revision, entry);
        }
    }

    /// The next entry to apply; `None` if it is missing or another one is being applied. It counts as being applied
    /// from now on.
    pub fn next_to_apply(&mut self) -> Option<NumberedEntry> {
        if self.applying.is_some() {
            return None;
        }
        let revision = self.applied.next();
        let entry = self.waiting.remove(&revision)?;
        self.applying = Some((revision, Arc::clone(&entry)));
        Some((revision, entry))
    }

    /// Notes that the entry being applied is applied; returns that entry.
    pub fn done(&mut self, revision: Revision) -> Option<Arc<Entry>> {
        let (_, entry) = self.applying.take_if(|(applying, _)| *applying == revision)?;
        self.applied = revision;
        Some(entry)
    }

    /// Notes that the store was replaced by a copy of `revision`.
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

    /// Whether the log has an entry that must be read before anything can be applied.
    pub fn lacks(&self) -> bool {
        !self.busy() && self.end > self.applied && !self.waiting.contains_key(&self.applied.next())
    }
}
