//! Reports of the loop to the process that started the node: outages, copies, notes.

use punctual_federation::message::Standing;
use punctual_os::Os;
use punctual_store::batch::Image;
use punctual_store::engine::Engine;
use punctual_units::Time;

use super::{COPY_TOLD_EVERY, Process};
use crate::seen::{Seen, What};

impl<E: Engine + 'static, O: Os, T: FnMut(Seen)> Process<E, O, T> {
    /// Reports the copy that the node receives: at its beginning, and every `COPY_TOLD_EVERY`.
    pub(super) fn tell_of_copy(&mut self, image: &Image, now: Time) {
        if image.after.is_none() {
            self.copied = 0;
        }
        let bytes = image.records.iter().map(|(key, value)| key.len() + value.len());
        self.copied += bytes.sum::<usize>() as u64;
        if image.after.is_none() || now.since(self.copy_told) >= COPY_TOLD_EVERY {
            self.copy_told = now;
            self.seen(What::Copying(self.copied));
        }
    }

    /// Reports changes of master, role and standing, of which outages consist.
    pub(super) fn observe(&mut self, now: Time) {
        let trusts = self.node.master(now);
        if trusts != self.trusts {
            self.trusts = trusts;
            self.seen(trusts.map_or(What::Suspects, What::Trusts));
        }
        let reigns = self.node.is_master();
        if reigns != self.reigned {
            self.reigned = reigns;
            let epoch = self.node.reign().epoch;
            self.seen(if reigns { What::Reigns(epoch) } else { What::Cedes });
        }
        match self.node.standing() {
            Standing::Serving if !self.served => {
                self.served = true;
                self.seen(What::Serves);
            }
            Standing::Copying => self.served = false,
            _ => {}
        }
    }

    pub(super) fn seen(&mut self, what: What) {
        let at = self.os.now();
        (self.tell)(Seen { at, what });
    }

    pub(super) fn note(&mut self, text: String) {
        self.seen(What::Note(text));
    }
}
