//! Whether a node's store and the log have the same history.

use punctual_logs::LogError;

use crate::action::LogAnswer;
use crate::entry::Body;
use crate::message::{Reign, Stop};
use crate::node::Core;

impl Core {
    /// Checks by the log's answer whether the store and the log have the same history, also where an older version made
    /// either, and named no history. A federation that has lost its log begins anew from a backup; a store that goes
    /// further than the backup has entries that differ from the new log's. Each entry names a process and a term, and
    /// two histories share no such name behind the backup. If the log has trimmed the store's last entry, the next one
    /// must follow it.
    ///
    /// # Errors
    /// [`Stop::OtherHistory`].
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
            // A copy will replace all records, which are of the log's history as far as that is known.
            Err(LogError::Compacted { trimmed }) if *trimmed > at => true,
            _ => return Ok(()),
        };
        self.to_compare = None;
        is_ours.then_some(()).ok_or(Stop::OtherHistory { at })
    }
}
