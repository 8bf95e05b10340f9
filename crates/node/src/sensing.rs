//! Temporal data of a node: readings that its clients set, and those that other nodes send.
//!
//! The node at which a client sets an object is the object's source. A feed per peer (`federation::temporal`) holds the
//! newest reading of each object until the peer acknowledges it. The event loop installs readings itself: that is a
//! copy in memory, and calls neither engine nor log. Peers send stamps with each heartbeat and each acknowledgement, so
//! a peer that has joined gets all readings that its sources have.

use std::collections::{BTreeMap, HashMap};

use punctual_federation::ids::NodeId;
use punctual_federation::message::Key;
use punctual_federation::replica::Replica;
use punctual_federation::temporal::{
    DRIFT_PPM_MAX, Feed, FeedBounds, Inbox, InboxBounds, InboxCounts, ReadingReport, ReportOutcome, Stamp,
    StampOutcome, Together, sampled_at, true_at_most,
};
use punctual_os::Os;
use punctual_store::StoreError;
use punctual_store::engine::Engine;
use punctual_store::temporal::ObjectSpec;
use punctual_store::updates::UpdateCounts;
use punctual_units::{Nanos, ObjectName, Seq, Time};

use crate::ages::Ages;

/// The most readings under way to one peer: a link of 100,000 a second carries them in 10 ms.
const UNDER_WAY_MAX: usize = 1024;
/// The most acknowledgements that wait for one peer; readings beyond it are sent again by their source.
const TAKEN_MAX: usize = 4096;
/// The most readings, or acknowledgements, in one message.
pub const TOGETHER_MAX: usize = 128;

/// Settings of temporal objects, the same on all nodes of a federation, and this start's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Temporal {
    /// Age up to which a reading counts as fresh.
    pub validity: Nanos,
    /// Length of the longest value, in bytes.
    pub max_len: usize,
    /// The most objects of the federation.
    pub objects_max: usize,
    /// Number of this start of the node, above those of all starts before (`Replica::count_boot`).
    pub boot: u64,
}

impl Default for Temporal {
    /// Validity of 1 s, values of 1 KiB, 1,024 objects.
    fn default() -> Temporal {
        Temporal {
            validity: Nanos::from_secs(1),
            max_len: 1024,
            objects_max: 1024,
            boot: 1,
        }
    }
}

impl Temporal {
    /// The specification of the object with this key.
    pub fn spec(&self, key: &[u8]) -> ObjectSpec {
        ObjectSpec {
            key: key.to_vec(),
            avi: self.validity,
            period: Nanos(self.validity.0 / 2),
            max_len: self.max_len,
            history: 1,
        }
    }
}

/// Outcome of a client's `TSET` on this node.
#[derive(Debug)]
pub enum Set {
    /// The reading is the newest here, and on its way to the other nodes.
    Done,
    /// A younger reading exists, so nothing has changed.
    Younger,
    /// The object has another source or does not exist yet; it has to be created.
    Unmade,
    /// The store refused the reading.
    Refused(StoreError),
}

/// The present reading of an object on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latest<'r> {
    /// There is no object with this key.
    NoObject,
    /// The object has no reading yet.
    NoReading,
    /// Upper bound of the reading's age ([`Nanos::MAX`]: unknown), and its value.
    Reading(Nanos, &'r [u8]),
}

/// An object whose source this node is, or is about to be.
#[derive(Clone, Copy, Debug)]
struct Own {
    made: ObjectName,
    /// Number of the last reading; 0 before the first.
    seq: u64,
}

/// Stamp and acknowledgements to send to one peer.
#[derive(Clone, Debug, Default)]
struct Acknowledgements {
    is_due: bool,
    readings: Vec<(ObjectName, Seq)>,
}

/// Reports that were not taken, since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RejectedReports {
    /// Reports of objects that do not exist here, or have another source by now; repeated until that shows.
    pub unmade: u64,
    /// Reports of other nodes' objects, of too many objects, or with too long a value.
    pub refused: u64,
}

/// Counts of readings sent to a peer and received from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeCounts {
    /// Readings that were offered to the peer.
    pub sent: UpdateCounts,
    /// Readings that came from the peer.
    pub came: InboxCounts,
}

/// The temporal data of a node.
#[derive(Debug, Default)]
pub struct Sensing {
    me: NodeId,
    kind: Temporal,
    own: HashMap<Key, Own>,
    feeds: BTreeMap<NodeId, Feed>,
    inboxes: BTreeMap<NodeId, Inbox>,
    taken: BTreeMap<NodeId, Acknowledgements>,
    /// Reports that came before the entry that creates their object, at most one for each object. Their sources send
    /// them again, but not soon.
    early: BTreeMap<ObjectName, (NodeId, ReadingReport)>,
    /// Counts of the feeds that have ended, by peer.
    past: BTreeMap<NodeId, UpdateCounts>,
    /// Whether a feed had no room for an object, because it still holds former names.
    is_crowded: bool,
    /// Upper bounds of the ages of peers' readings on arrival.
    pub ages: Ages,
    /// Number of readings that clients have set.
    pub sets: u64,
    /// Reports from peers that were not taken.
    pub rejected: RejectedReports,
    value: Vec<u8>,
    /// Reused memory for the numbers of readings that are sent together.
    numbers: Vec<u32>,
}

impl Sensing {
    /// Makes the data of a node without feeds and readings.
    pub fn new(me: NodeId, kind: Temporal) -> Sensing {
        Sensing {
            me,
            kind,
            ..Sensing::default()
        }
    }

    fn bounds(&self) -> FeedBounds {
        FeedBounds {
            objects: self.kind.objects_max as u32,
            value_bytes: self.kind.max_len as u32,
            under_way: UNDER_WAY_MAX,
            ..FeedBounds::default()
        }
    }

    /// Number of objects whose source is this node.
    pub fn own(&self) -> usize {
        self.own.values().filter(|own| own.seq > 0).count()
    }

    /// Takes note of the name that a requested creation gives to an object.
    pub fn names(&mut self, key: Key, made: ObjectName) {
        let before = self.own.insert(key, Own { made, seq: 0 });
        self.is_crowded |= before.is_some_and(|own| own.seq > 0);
    }

    /// Sets an object to a client's reading, which is `age` old at `now`, on this node's clock.
    pub fn set<E: Engine, O: Os>(
        &mut self,
        replica: &Replica<E, O>,
        key: &[u8],
        value: &[u8],
        age: Nanos,
        now: Time,
    ) -> Set {
        let len = value.len();
        let max_len = self.kind.max_len;
        if len > max_len {
            let key = key.to_vec();
            return Set::Refused(StoreError::ValueTooLong { key, len, max_len });
        }
        let Some(own) = self.own.get_mut(key) else {
            return Set::Unmade;
        };
        match replica.age(key) {
            Ok(Some(known)) if known < age => return Set::Younger,
            Ok(_) => {}
            Err(error) => return Set::Refused(error),
        }
        let at = sampled_at(
            Some(true_at_most(age, DRIFT_PPM_MAX)),
            now,
            self.kind.validity,
            DRIFT_PPM_MAX,
        );
        let seq = Seq(own.seq + 1);
        match replica.install_reading(own.made, seq, at, value) {
            Ok(true) => {}
            // The object does not exist yet, or another node has taken it over.
            Ok(false) => return Set::Unmade,
            Err(error) => return Set::Refused(error),
        }
        own.seq = seq.0;
        self.sets += 1;
        let made = own.made;
        for feed in self.feeds.values_mut() {
            self.is_crowded |= feed.offer(made, seq, age, value).is_err();
        }
        Set::Done
    }

    /// Takes a peer's stamp, and the acknowledgements sent with it.
    pub fn heard<E: Engine, O: Os>(
        &mut self,
        replica: &Replica<E, O>,
        peer: NodeId,
        stamp: Stamp,
        taken: &[(ObjectName, Seq)],
    ) {
        let heard = self.feeds.get_mut(&peer).map(|feed| feed.heard(stamp));
        if heard.is_none_or(|heard| heard == StampOutcome::Restarted) {
            self.begin(replica, peer, Feed::new(self.bounds(), stamp));
        }
        if let Some(feed) = self.feeds.get_mut(&peer) {
            taken.iter().for_each(|(made, seq)| feed.acknowledged(*made, *seq));
        }
    }

    /// Begins a feed for a peer, with the readings that this node has.
    fn begin<E: Engine, O: Os>(&mut self, replica: &Replica<E, O>, peer: NodeId, mut feed: Feed) {
        for (key, own) in self.own.iter().filter(|(_, own)| own.seq > 0) {
            let found = replica.latest(key, &mut self.value);
            if let (true, Ok(Some(Some(age)))) = (replica.has_object(own.made), found) {
                self.is_crowded |= feed.offer(own.made, Seq(own.seq), age, &self.value).is_err();
            }
        }
        if let Some(before) = self.feeds.insert(peer, feed) {
            let (past, before) = (self.past.entry(peer).or_default(), before.counts());
            add(past, &before);
            // Readings that the former feed had not delivered count as superseded by those of the new one.
            past.superseded += before.pending + before.in_flight;
        }
    }

    /// Takes readings from a peer. `now` is on this node's clock, `since_boot` on the clock of stamps.
    pub fn received<E: Engine, O: Os>(
        &mut self,
        replica: &Replica<E, O>,
        from: NodeId,
        reports: &[ReadingReport],
        now: Time,
        since_boot: Time,
    ) {
        let bounds = InboxBounds {
            objects: self.kind.objects_max,
            ..InboxBounds::default()
        };
        let inbox = self.inboxes.entry(from).or_insert_with(|| Inbox::new(bounds));
        let taken = self.taken.entry(from).or_default();
        for report in reports {
            if report.object.source != from.0 {
                self.rejected.refused += 1;
                continue;
            }
            // A reading that comes before the entry that creates its object is not taken: its source sends it again.
            if !replica.has_object(report.object) {
                self.rejected.unmade += 1;
                if self.early.len() < self.kind.objects_max {
                    self.early.insert(report.object, (from, report.clone()));
                }
                continue;
            }
            match inbox.receive(report, self.kind.boot, since_boot) {
                Ok(ReportOutcome::Newer { age_at_most }) => {
                    let at = sampled_at(age_at_most, now, self.kind.validity, DRIFT_PPM_MAX);
                    let installed = replica.install_reading(report.object, report.seq, at, &report.value);
                    self.rejected.refused += u64::from(installed.is_err());
                    self.ages.add(age_at_most.unwrap_or(Nanos::MAX));
                }
                Ok(ReportOutcome::Older) => {}
                Err(_) => {
                    self.rejected.refused += 1;
                    continue;
                }
            }
            if taken.readings.len() < TAKEN_MAX {
                taken.readings.push((report.object, report.seq));
            }
        }
    }

    /// Takes the early reports whose objects exist now, after an entry was applied.
    pub fn applied<E: Engine, O: Os>(&mut self, replica: &Replica<E, O>, now: Time, since_boot: Time) {
        let is_made = |(made, _): &(&ObjectName, &(NodeId, ReadingReport))| replica.has_object(**made);
        let made: Vec<ObjectName> = self.early.iter().filter(is_made).map(|(made, _)| *made).collect();
        for (from, report) in made
            .iter()
            .filter_map(|made| self.early.remove(made))
            .collect::<Vec<_>>()
        {
            self.received(replica, from, &[report], now, since_boot);
        }
    }

    /// Has a stamp sent to the peer along with a heartbeat.
    pub fn beats(&mut self, peer: NodeId) {
        self.taken.entry(peer).or_default().is_due = true;
    }

    /// Returns the stamp and the acknowledgements to send to a peer, if any are due.
    pub fn tells(&mut self, peer: NodeId, since_boot: Time) -> Option<(Stamp, Vec<(ObjectName, Seq)>)> {
        let taken = self.taken.get_mut(&peer)?;
        if !taken.is_due && taken.readings.is_empty() {
            return None;
        }
        taken.is_due = false;
        let rest = taken.readings.split_off(taken.readings.len().min(TOGETHER_MAX));
        let stamp = Stamp {
            boot: self.kind.boot,
            at: since_boot,
        };
        Some((stamp, std::mem::replace(&mut taken.readings, rest)))
    }

    /// Returns readings to send to a peer now.
    pub fn reports(&mut self, peer: NodeId, now: Time) -> Option<Together<'_>> {
        self.feeds
            .get_mut(&peer)?
            .together(now, TOGETHER_MAX, &mut self.numbers)
    }

    /// Called now and then: gives up objects that other nodes have taken over.
    pub fn look<E: Engine, O: Os>(&mut self, replica: &Replica<E, O>) {
        let before = self.own.len();
        self.own.retain(|_, own| own.seq == 0 || replica.has_object(own.made));
        if self.own.len() < before || std::mem::take(&mut self.is_crowded) {
            // A peer never acknowledges a reading under a former name.
            let emptied: Vec<(NodeId, Feed)> = self.feeds.iter().map(|(peer, feed)| (*peer, feed.emptied())).collect();
            for (peer, feed) in emptied {
                self.begin(replica, peer, feed);
            }
        }
        // Sources have sent valuable ones again by now.
        self.early.clear();
        for inbox in self.inboxes.values_mut() {
            inbox.keep(|made| replica.has_object(made));
        }
    }

    /// Returns the present reading of an object.
    ///
    /// # Errors
    /// An error of the store.
    pub fn latest<E: Engine, O: Os>(&mut self, replica: &Replica<E, O>, key: &[u8]) -> Result<Latest<'_>, StoreError> {
        Ok(match replica.latest(key, &mut self.value)? {
            None => Latest::NoObject,
            Some(None) => Latest::NoReading,
            Some(Some(Nanos::MAX)) => Latest::Reading(Nanos::MAX, &self.value),
            Some(Some(shown)) => Latest::Reading(true_at_most(shown, DRIFT_PPM_MAX), &self.value),
        })
    }

    /// Returns counts of readings sent to a peer and received from it.
    pub fn exchanged(&self, peer: NodeId) -> ExchangeCounts {
        let mut sent = self.past.get(&peer).copied().unwrap_or_default();
        if let Some(feed) = self.feeds.get(&peer) {
            let now = feed.counts();
            add(&mut sent, &now);
            (sent.pending, sent.in_flight) = (now.pending, now.in_flight);
        }
        ExchangeCounts {
            sent,
            came: self.inboxes.get(&peer).map(Inbox::counts).unwrap_or_default(),
        }
    }

    /// Number of this node, the source of `own` objects.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// The settings of temporal objects on this node.
    pub fn kind(&self) -> &Temporal {
        &self.kind
    }
}

fn add(sum: &mut UpdateCounts, part: &UpdateCounts) {
    sum.offered += part.offered;
    sum.installed += part.installed;
    sum.superseded += part.superseded;
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
