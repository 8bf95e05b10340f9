//! Reports of the loop to the process that started the node: outages, copies, notes.

use punctual_federation::ids::NodeId;
use punctual_federation::message::{Reign, Standing};
use punctual_logs::HistoryId;
use punctual_os::Os;
use punctual_store::batch::Image;
use punctual_store::engine::Engine;
use punctual_units::Time;

use super::{COPY_TOLD_EVERY, Process};
use crate::seen::{TimedNotice, What};

/// The state of the node that was reported last.
#[derive(Default)]
pub(super) struct LastReport {
    master: Option<NodeId>,
    is_master: bool,
    is_serving: bool,
    reign: Reign,
    /// Bytes of records received with the last copy.
    pub(super) copied: u64,
    /// When the progress of a copy was reported.
    copy_at: Time,
}

impl<E: Engine + 'static, O: Os, T: FnMut(TimedNotice)> Process<E, O, T> {
    /// Reports the copy that the node receives: at its beginning, and every `COPY_TOLD_EVERY`.
    pub(super) fn tell_of_copy(&mut self, image: &Image, now: Time) {
        if image.after.is_none() {
            self.last_report.copied = 0;
        }
        let bytes = image.records.iter().map(|(key, value)| key.len() + value.len());
        self.last_report.copied += bytes.sum::<usize>() as u64;
        if image.after.is_none() || now.since(self.last_report.copy_at) >= COPY_TOLD_EVERY {
            self.last_report.copy_at = now;
            self.seen(What::Copying(self.last_report.copied));
        }
    }

    /// Reports changes of master, role and standing, of which outages consist, and the history that a store adopts.
    pub(super) fn observe(&mut self, now: Time) {
        let trusts = self.node.master(now);
        if trusts != self.last_report.master {
            self.last_report.master = trusts;
            self.seen(trusts.map_or(What::Suspects, What::Trusts));
        }
        let reigns = self.node.is_master();
        if reigns != self.last_report.is_master {
            self.last_report.is_master = reigns;
            let epoch = self.node.reign().epoch;
            self.seen(if reigns { What::Reigns(epoch) } else { What::Cedes });
        }
        let now_known = self.node.reign().history;
        let Reign { master, history, .. } = std::mem::replace(&mut self.last_report.reign, self.node.reign());
        if master.is_some() && history != now_known && history == HistoryId::default() {
            let number = now_known.0;
            self.note(format!(
                "an older version made the store, without a number of the log's history: it has adopted {number:016x}, \
                 the log's, and is refused by any other log from now on"
            ));
        }
        match self.node.standing() {
            Standing::Serving if !self.last_report.is_serving => {
                self.last_report.is_serving = true;
                self.seen(What::Serves);
            }
            Standing::Copying => self.last_report.is_serving = false,
            _ => {}
        }
    }

    pub(super) fn seen(&mut self, what: What) {
        let at = self.os.now();
        (self.tell)(TimedNotice { at, what });
    }

    pub(super) fn note(&mut self, text: String) {
        self.seen(What::Note(text));
    }
}
