//! The reference implementation: a queue in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{AppendResult, CommitLog, ENTRY_BYTES_MAX, Identity, LogError, LogRecord, LogState, Revision, Stretch};

/// A log in memory. It answers every call, at once.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    identity: Option<Identity>,
    /// The last revision that was trimmed.
    trimmed: Revision,
    entries: VecDeque<Arc<[u8]>>,
}

impl Memory {
    /// An empty log whose entries up to `trimmed` have been trimmed.
    pub fn beginning_after(trimmed: Revision) -> Memory {
        Memory {
            trimmed,
            ..Memory::default()
        }
    }

    /// The revision of the last entry.
    pub fn last(&self) -> Revision {
        Revision(self.trimmed.0 + self.entries.len() as u64)
    }

    /// The last revision that has been trimmed away.
    pub fn trimmed(&self) -> Revision {
        self.trimmed
    }

    /// Drops the last entry, as a disk does that acknowledged a write too early: a fault, for tests.
    pub fn lose_last(&mut self) {
        self.entries.pop_back();
    }

    fn after(&self, after: Revision, max: usize) -> Result<Vec<LogRecord>, LogError> {
        let trimmed = self.trimmed;
        if after < trimmed {
            return Err(LogError::Compacted { trimmed });
        }
        let skipped = usize::try_from(after.0 - trimmed.0).unwrap_or(usize::MAX);
        let revisions = (after.0 + 1..).map(Revision);
        let entries = self.entries.iter().skip(skipped).take(max);
        let record = |(revision, bytes): (_, &Arc<[u8]>)| LogRecord {
            revision,
            bytes: Arc::clone(bytes),
        };
        Ok(revisions.zip(entries).map(record).collect())
    }
}

impl CommitLog for Memory {
    fn open(&mut self, identity: Identity) -> Result<LogState, LogError> {
        let history = match self.identity {
            Some(found) => {
                found.admit(identity)?;
                found.history
            }
            None => {
                self.trimmed = self.trimmed.max(identity.history.base);
                identity.history
            }
        };
        self.identity = Some(Identity { history, ..identity });
        Ok(LogState {
            last: self.last(),
            history,
            trimmed: self.trimmed,
            bytes: self.entries.iter().map(|entry| entry.len() as u64).sum(),
        })
    }

    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<AppendResult, LogError> {
        if entry.len() > ENTRY_BYTES_MAX {
            return Err(LogError::EntryTooLong { len: entry.len() });
        }
        if last != self.last() {
            return Ok(AppendResult::Lost { last: self.last() });
        }
        self.entries.push_back(entry.into());
        Ok(AppendResult::At(self.last()))
    }

    fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError> {
        let records = self.after(after, max)?;
        Ok(Stretch {
            records,
            last: self.last(),
        })
    }

    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<LogRecord>, LogError> {
        self.after(after, max)
    }

    fn trim(&mut self, upto: Revision) -> Result<(), LogError> {
        let upto = upto.min(self.last());
        let gone = usize::try_from(upto.0.saturating_sub(self.trimmed.0)).unwrap_or(usize::MAX);
        self.entries.drain(..gone.min(self.entries.len()));
        self.trimmed = self.trimmed.max(upto);
        Ok(())
    }
}
