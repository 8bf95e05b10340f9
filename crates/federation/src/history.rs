//! Whether a node's store and the log have the same history.

use punctual_logs::{HistoryId, LogError, Revision};

use crate::action::LogAnswer;
use crate::entry::Body;
use crate::message::{Reign, Stop};
use crate::node::Core;

impl Core {
    /// Checks by the log's answer whether the store and the log have the same history, also where an older version made
    /// either, and named no history. A federation that has lost its log begins anew from a backup; a store that goes
    /// further than the backup has entries that differ from the new log's. Each entry names a process and a term, and
    /// two histories share no such name behind the backup. If the log has trimmed the store's last entry, the next one
    /// must follow it; if it has trimmed that one as well, only the numbers of the histories are left to compare.
    ///
    /// # Errors
    /// [`Stop::OtherHistory`], [`Stop::UnknownHistory`].
    pub(crate) fn compare(&mut self, answer: &Result<LogAnswer, LogError>) -> Result<(), Stop> {
        let Some(at) = self.to_compare else {
            return Ok(());
        };
        let Reign { epoch, master, .. } = self.reign;
        let is_ours = match answer {
            Ok(LogAnswer::Read { entries, last }) => match entries.first() {
                // A part of the records may lack the record of the term.
                _ if *last >= at && master.is_none() => true,
                Some((revision, entry)) if *revision > at && matches!(entry.body, Body::Reign(_)) => {
                    entry.id.epoch > epoch
                }
                Some((_, entry)) => (epoch, master) == (entry.id.epoch, Some(entry.id.member)),
                // An answer without the entry, although the log has it, decides nothing.
                None if *last > at => return Ok(()),
                None => *last == at,
            },
            // A copy will replace all records.
            Err(LogError::Compacted { trimmed }) if *trimmed > at => match self.may_copy_over(at) {
                true => true,
                false => return Err(Stop::UnknownHistory { at }),
            },
            _ => return Ok(()),
        };
        self.to_compare = None;
        is_ours.then_some(()).ok_or(Stop::OtherHistory { at })
    }

    /// Whether a copy may replace the records of a store with all entries up to `at`, which the log has trimmed. A
    /// store of an older version has no number, and adopts the log's, once. But behind the backup with which a history
    /// began, all stores of that history have its number. A base of 0 is also that of a log which an older version
    /// made, perhaps with a backup: there is nothing to tell these by. A store with a number follows no log without one
    /// whose entries it cannot compare. A part of a copy is a copy's already.
    fn may_copy_over(&self, at: Revision) -> bool {
        match (self.reign.history, self.history) {
            _ if !self.copying.is_whole() => true,
            (HistoryId(0), log) => log.base == Revision::ZERO || at <= log.base,
            (_, log) => log.id != HistoryId(0),
        }
    }
}
