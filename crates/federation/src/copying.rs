//! Copying the records of a peer, image by image, to a node whose next entry the log no longer has.
//!
//! **Problem.** A store may be larger than a message, a node's memory, or a peer's patience can hold, and the log goes
//! on meanwhile. A snapshot that is held until all of it is sent keeps the peer's store from reusing pages, and when it
//! has arrived, the log may have been trimmed beyond it once more.
//!
//! **Method.** Each image covers a range of keys, begins where the one before ended, and is a snapshot of its own. In
//! between, the node follows the log with the records that it has:
//!
//! 1. At any time, its records are those of the applied revision, of all keys up to `upto`.
//! 2. The node asks a peer for the records behind `upto` at the applied revision or a later one, and applies nothing
//!    until they come. The peer answers when it has reached that revision.
//! 3. The node applies the entries up to the image's revision, of keys up to `upto` alone, then installs the image in
//!    one commit. After that, 1 holds with the image's end as `upto`. An image that ends with the last record ends the
//!    copy.
//!
//! So the log must keep only the entries since the last image, not since the first; a peer reads and sends little at a
//! time; each image may come from another peer; and after a crash the node continues where it was, because `upto` is in
//! the same commit as the records. Until the end the node takes no requests and is no candidate for the next term
//! ([`Standing::Copying`]).
//!
//! [`Standing::Copying`]: crate::message::Standing::Copying

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_store::batch::Image;
use punctual_units::{Nanos, Time};

use crate::ids::{NodeId, Revision};
use crate::liveness::NODES_MAX;
use crate::message::{Key, RecordsRequest};

/// Approximate bytes of records in an image, so that no loop of a node works on one for longer than a millisecond or
/// two.
pub const IMAGE_BYTES_MAX: usize = 1 << 20;
/// Interval between a node's requests for images: 50 MiB in a second, which leave its peer time for its clients.
pub const COPY_EVERY: Nanos = Nanos::from_millis(20);
/// Wait for an image before the node asks another peer.
pub const COPY_MAX: Nanos = Nanos::from_millis(500);

/// The node's copy of a peer's records, if it needs one.
#[derive(Clone, Debug, Default)]
pub struct Copying {
    /// Revision up to which the log is trimmed: if fewer entries are applied, the copy must begin with the first
    /// record.
    trimmed: Revision,
    /// Last key up to which records are here; `None`: all of them are.
    upto: Option<Key>,
    /// The peer that was asked, and when; its image has not arrived.
    asked: Option<(NodeId, Time)>,
    /// No request is made before this instant.
    rests_until: Time,
    /// An image that has arrived, and waits for the entries up to its revision.
    came: Option<Arc<Image>>,
    installing: Option<Arc<Image>>,
}

impl Copying {
    /// State of a node that starts with records up to this key; `None`: with all of them.
    pub fn new(upto: Option<Key>) -> Copying {
        let copying = Copying::default();
        Copying { upto, ..copying }
    }

    /// Whether all records of the applied revision are here.
    pub fn is_whole(&self) -> bool {
        self.upto.is_none() && self.installing.is_none()
    }

    /// Whether the node needs records of a peer.
    pub fn is_needed(&self, applied: Revision) -> bool {
        self.begins_anew(applied) || !self.is_whole()
    }

    /// Whether the log no longer has the next entry, so that reading it is useless and the copy begins with the first
    /// record.
    pub fn begins_anew(&self, applied: Revision) -> bool {
        applied < self.trimmed
    }

    /// Revision up to which the log is known to be trimmed.
    pub fn trimmed(&self) -> Revision {
        self.trimmed
    }

    /// Notes that the log is trimmed up to `trimmed`.
    pub fn log_trimmed(&mut self, trimmed: Revision, applied: Revision) {
        self.trimmed = self.trimmed.max(trimmed);
        if self.begins_anew(applied) {
            self.asked = None;
            self.came.take_if(|image| image.after.is_some());
        }
    }

    /// Forgets what was found in a log that another one has replaced.
    pub fn begin_anew(&mut self) {
        self.trimmed = Revision::ZERO;
        self.asked = None;
        self.came = None;
    }

    /// The peer to ask now, and the records to ask it for. `source` names a peer, if possible not the one passed to it.
    pub fn ask(
        &mut self,
        source: impl Fn(Option<NodeId>) -> Option<NodeId>,
        applied: Revision,
        now: Time,
    ) -> Option<(NodeId, RecordsRequest)> {
        let waits = self.asked.is_some_and(|(_, at)| now.since(at) < COPY_MAX);
        let busy = self.came.is_some() || self.installing.is_some();
        if !self.is_needed(applied) || busy || waits || now < self.rests_until {
            return None;
        }
        self.rests_until = now + COPY_EVERY;
        let before = self.asked.map(|(node, _)| node);
        self.asked = source(before).or(source(None)).map(|node| (node, now));
        let (node, _) = self.asked?;
        let (after, revision) = (self.next(applied), applied.max(self.trimmed));
        Some((node, RecordsRequest { after, revision }))
    }

    /// Key behind which the next image begins.
    fn next(&self, applied: Revision) -> Option<Key> {
        self.upto.clone().filter(|_| !self.begins_anew(applied))
    }

    /// Takes an image from a peer, perhaps late or for a second time.
    pub fn comes(&mut self, image: Arc<Image>, applied: Revision) {
        let waits = self.is_needed(applied) && self.came.is_none() && self.installing.is_none();
        let goes_on = image.upto.is_none() || image.upto > image.after;
        let is_new = image.revision >= applied.max(self.trimmed);
        if waits && goes_on && is_new && image.after == self.next(applied) {
            self.asked = None;
            self.came = Some(image);
        }
    }

    /// Whether no entry may be applied now: an image of this revision or a later one is expected, or is here.
    pub fn holds(&self, applied: Revision) -> bool {
        match (&self.came, &self.installing) {
            (_, Some(_)) => true,
            (Some(image), None) => image.after.is_none() || image.revision <= applied,
            (None, None) => self.asked.is_some() && !self.begins_anew(applied),
        }
    }

    /// The image to install now: all entries up to its revision are applied, or it begins with the first record. Not
    /// all records count as present from here on.
    pub fn install(&mut self, applied: Revision) -> Option<Arc<Image>> {
        let (is_due, is_part) = (self.holds(applied), self.upto.is_some());
        let image = self.came.take_if(|_| is_due)?;
        // The entry being applied when it arrived may have been of its revision, or a later one.
        let is_of_use = image.revision > applied || (is_part && image.revision == applied);
        self.installing = is_of_use.then_some(image);
        self.installing.clone()
    }

    /// Notes that the image is installed.
    pub fn installed(&mut self) {
        if let Some(image) = self.installing.take() {
            self.upto.clone_from(&image.upto);
        }
    }

    /// The instant of the next request; [`Time::MAX`] if another event must come first.
    pub fn next_due(&self, applied: Revision) -> Time {
        match self.asked {
            _ if !self.is_needed(applied) || self.came.is_some() || self.installing.is_some() => Time::MAX,
            Some((_, at)) => at + COPY_MAX,
            None => self.rests_until,
        }
    }
}

/// The images that this node makes for peers.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    peers: BTreeMap<NodeId, Copy>,
}

/// State of one peer's copy.
#[derive(Clone, Debug, Default)]
struct Copy {
    wanted: Option<RecordsRequest>,
    /// Whether the store is making an image for the peer.
    under_way: bool,
}

impl Copies {
    /// Notes that a peer wants records. Only its last request counts, so a peer that asks again and again, or restarts
    /// repeatedly, occupies the store with one image at a time.
    pub fn want(&mut self, peer: NodeId, wanted: RecordsRequest) {
        if self.peers.contains_key(&peer) || self.peers.len() < NODES_MAX {
            self.peers.entry(peer).or_default().wanted = Some(wanted);
        }
    }

    /// The next image to make of a store at `applied`: the peer, and the key behind which it begins.
    pub fn start(&mut self, applied: Revision) -> Option<(NodeId, Option<Key>)> {
        self.peers.iter_mut().find_map(|(peer, copy)| {
            let is_due = |wanted: &mut RecordsRequest| wanted.revision <= applied;
            let wanted = copy.wanted.take_if(|wanted| !copy.under_way && is_due(wanted))?;
            copy.under_way = true;
            Some((*peer, wanted.after))
        })
    }

    /// Notes that the image for a peer is made.
    pub fn made(&mut self, peer: NodeId) {
        if let Some(copy) = self.peers.get_mut(&peer) {
            copy.under_way = false;
        }
        self.peers.retain(|_, copy| copy.under_way || copy.wanted.is_some());
    }
}
