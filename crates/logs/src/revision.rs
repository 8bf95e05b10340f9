//! Identity of a log's federation and history, and revisions of its entries.

use std::fmt;

pub use punctual_units::Revision;
use serde::{Deserialize, Serialize};

/// The federation that a log belongs to: a number drawn at random when the federation is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FederationId(pub u64);

/// A number drawn at random when a log is made: two logs of one federation differ by it. 0: unknown, because an older
/// version made the log or the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HistoryId(pub u64);

/// Origin of a log's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogHistory {
    pub id: HistoryId,
    /// Revision before the log's first entry: that of the backup with which the history began.
    pub base: Revision,
    /// History of that backup.
    pub parent: HistoryId,
}

impl LogHistory {
    /// Whether a store with all entries of `store` up to `applied` may follow the log, however far that is trimmed: it
    /// has the same history, or a part of the backup with which this one began. If either history is unknown, the
    /// caller must compare entries.
    pub fn admits(&self, store: HistoryId, applied: Revision) -> bool {
        let is_unknown = [self.id, store].contains(&HistoryId::default());
        is_unknown || store == self.id || store == self.parent && applied <= self.base
    }
}

impl fmt::Display for FederationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
