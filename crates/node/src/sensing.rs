//! Temporal data of a node: readings that its clients set, and those that other nodes send.
//!
//! The node at which a client sets an object is the object's source. A feed per peer (`federation::temporal`) holds
//! the newest reading of each object until the peer acknowledges it. Readings are installed by the event loop itself:
//! that is a copy in memory, and calls neither engine nor log. Peers send stamps with each heartbeat and each
//! acknowledgement, so a peer that has joined is sent all that its sources know.

use std::collections::{BTreeMap, HashMap};

use punctual_federation::ids::NodeId;
use punctual_federation::message::Key;
use punctual_federation::replica::Replica;
use punctual_federation::temporal::{
    Feed, FeedBounds, Heard, Inbox, InboxBounds, InboxCounts, Received, Report, Stamp, Together, sampled_at,
    true_at_most,
};
use punctual_os::Os;
use punctual_store::StoreError;
use punctual_store::engine::Engine;
use punctual_store::temporal::ObjectSpec;
use punctual_store::updates::Counts;
use punctual_units::{Made, Nanos, Seq, Time};

use crate::ages::Ages;

/// The most readings under way to one peer: a link of 100,000 a second carries them in 10 ms.
const UNDER_WAY_MAX: usize = 1024;
/// The most acknowledgements that wait for one peer; what comes on top is sent again by its source.
const TAKEN_MAX: usize = 4096;
/// The most readings, or acknowledgements, of one message.
pub const TOGETHER_MAX: usize = 128;

/// What temporal objects are here, on all nodes of a federation alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Temporal {
    /// How long a reading is believed.
    pub validity: Nanos,
    /// The longest value in bytes.
    pub max_len: usize,
    /// The most objects of the federation.
    pub objects_max: usize,
    /// The number of this start of the node, above those of all starts before (`Replica::count_boot`).
    pub boot: u64,
}

impl Default for Temporal {
    /// A second, 1 KiB, 1,024 objects.
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
    /// The object with this key.
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

/// What became of a reading that a client has set.
#[derive(Debug)]
pub enum Set {
    /// It is the newest here, and on its way to the others.
    Done,
    /// A younger one is there: nothing has changed.
    Younger,
    /// The object is not this node's, or is not there yet: have it made.
    Unmade,
    /// The store refused.
    Refused(StoreError),
}

/// What is here of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latest<'r> {
    /// There is no such object.
    NoObject,
    /// It has no reading yet.
    NoReading,
    /// How old its reading is at most ([`Nanos::MAX`]: not known), and its value.
    Reading(Nanos, &'r [u8]),
}

/// An object whose source this node is, or wants to be.
#[derive(Clone, Copy, Debug)]
struct Own {
    made: Made,
    /// The number of its last reading.
    seq: u64,
}

/// What is to be told to one peer.
#[derive(Clone, Debug, Default)]
struct Taken {
    is_due: bool,
    readings: Vec<(Made, Seq)>,
}

/// What reports were not taken, since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turned {
    /// Of objects that are not there, or have another source by now: sent again until that shows.
    pub unmade: u64,
    /// Of objects of other nodes than the one that sent them, too many, or too long.
    pub refused: u64,
}

/// What was sent to a peer and taken from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// Of readings for the peer.
    pub sent: Counts,
    /// Of readings from the peer.
    pub came: InboxCounts,
}

/// A node's temporal data.
#[derive(Debug)]
pub struct Sensing {
    me: NodeId,
    kind: Temporal,
    own: HashMap<Key, Own>,
    feeds: BTreeMap<NodeId, Feed>,
    /// What goes to all peers at once, where there is such a way: the feeds follow it up.
    group: Option<Feed>,
    /// Room for the stamps that go with it.
    stamps: Vec<(NodeId, Stamp)>,
    inboxes: BTreeMap<NodeId, Inbox>,
    taken: BTreeMap<NodeId, Taken>,
    /// Reports that have come before the entry that creates their object: at most one each. Their sources send them
    /// again, but not soon.
    early: BTreeMap<Made, (NodeId, Report)>,
    /// What feeds came to that are no more.
    past: BTreeMap<NodeId, Counts>,
    /// A feed had no room for an object: names of the past are in it.
    is_crowded: bool,
    /// Bounds of the ages of readings from peers, as they came.
    pub ages: Ages,
    /// Readings that clients have set.
    pub sets: u64,
    /// See [`Turned`].
    pub turned: Turned,
    value: Vec<u8>,
    /// Room for the numbers of readings that go out together.
    numbers: Vec<u32>,
}

impl Sensing {
    /// Nothing yet.
    pub fn new(me: NodeId, kind: Temporal) -> Sensing {
        Sensing {
            me,
            kind,
            own: HashMap::new(),
            feeds: BTreeMap::new(),
            group: None,
            stamps: Vec::new(),
            inboxes: BTreeMap::new(),
            taken: BTreeMap::new(),
            early: BTreeMap::new(),
            past: BTreeMap::new(),
            is_crowded: false,
            ages: Ages::default(),
            sets: 0,
            turned: Turned::default(),
            value: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// From now on readings are also for [`Sensing::tells_all`].
    pub fn gather(&mut self) {
        // What goes with its readings are the stamps of their feeds.
        let none = Stamp {
            boot: 0,
            at: Time::ZERO,
        };
        self.group = Some(Feed::new(self.bounds(), none));
    }

    fn bounds(&self) -> FeedBounds {
        FeedBounds {
            objects: self.kind.objects_max as u32,
            value_bytes: self.kind.max_len as u32,
            under_way: UNDER_WAY_MAX,
            ..FeedBounds::default()
        }
    }

    /// How many objects have this node as their source.
    pub fn own(&self) -> usize {
        self.own.values().filter(|own| own.seq > 0).count()
    }

    /// A creation that was asked for names the object so.
    pub fn names(&mut self, key: Key, made: Made) {
        let before = self.own.insert(key, Own { made, seq: 0 });
        self.is_crowded |= before.is_some_and(|own| own.seq > 0);
    }

    /// Takes a reading of a client: it is `age` old at `now`, this node's time.
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
            Some(true_at_most(age, drift_ppm())),
            now,
            self.kind.validity,
            drift_ppm(),
        );
        let seq = Seq(own.seq + 1);
        match replica.install_reading(own.made, seq, at, value) {
            Ok(true) => {}
            // It is not there yet, or another node has taken it over.
            Ok(false) => return Set::Unmade,
            Err(error) => return Set::Refused(error),
        }
        own.seq = seq.0;
        self.sets += 1;
        let made = own.made;
        for feed in self.feeds.values_mut().chain(&mut self.group) {
            self.is_crowded |= feed.offer(made, seq, age, value).is_err();
        }
        Set::Done
    }

    /// A peer's stamp; what it has acknowledged with it.
    pub fn heard<E: Engine, O: Os>(
        &mut self,
        replica: &Replica<E, O>,
        peer: NodeId,
        stamp: Stamp,
        taken: &[(Made, Seq)],
    ) {
        let heard = self.feeds.get_mut(&peer).map(|feed| feed.heard(stamp));
        if heard.is_none_or(|heard| heard == Heard::Restarted) {
            self.begin(replica, peer, Feed::new(self.bounds(), stamp));
        }
        if let Some(feed) = self.feeds.get_mut(&peer) {
            taken.iter().for_each(|(made, seq)| feed.acknowledged(*made, *seq));
        }
    }

    /// A feed begins, with what this node knows.
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
            // What it had not delivered is given up for what the next one is offered.
            past.superseded += before.pending + before.in_flight;
        }
    }

    /// Readings that a peer sends, at `now`, this node's time, and that on the clock of stamps.
    pub fn received<E: Engine, O: Os>(
        &mut self,
        replica: &Replica<E, O>,
        from: NodeId,
        reports: &[Report],
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
                self.turned.refused += 1;
                continue;
            }
            // Before the entry that creates the object, a reading is not taken: it is sent again.
            if !replica.has_object(report.object) {
                self.turned.unmade += 1;
                if self.early.len() < self.kind.objects_max {
                    self.early.insert(report.object, (from, report.clone()));
                }
                continue;
            }
            match inbox.receive(report, self.kind.boot, since_boot) {
                Ok(Received::Newer { age_at_most }) => {
                    let at = sampled_at(age_at_most, now, self.kind.validity, drift_ppm());
                    let installed = replica.install_reading(report.object, report.seq, at, &report.value);
                    self.turned.refused += u64::from(installed.is_err());
                    self.ages.add(age_at_most.unwrap_or(Nanos::MAX));
                }
                Ok(Received::Older) => {}
                Err(_) => {
                    self.turned.refused += 1;
                    continue;
                }
            }
            if taken.readings.len() < TAKEN_MAX {
                taken.readings.push((report.object, report.seq));
            }
        }
    }

    /// An entry was applied: it may have created objects whose reports were early.
    pub fn applied<E: Engine, O: Os>(&mut self, replica: &Replica<E, O>, now: Time, since_boot: Time) {
        let is_made = |(made, _): &(&Made, &(NodeId, Report))| replica.has_object(**made);
        let made: Vec<Made> = self.early.iter().filter(is_made).map(|(made, _)| *made).collect();
        for (from, report) in made
            .iter()
            .filter_map(|made| self.early.remove(made))
            .collect::<Vec<_>>()
        {
            self.received(replica, from, &[report], now, since_boot);
        }
    }

    /// A heartbeat goes to that peer: a stamp goes with it.
    pub fn beats(&mut self, peer: NodeId) {
        self.taken.entry(peer).or_default().is_due = true;
    }

    /// What to tell a peer: a stamp, and what was taken of it.
    pub fn tells(&mut self, peer: NodeId, since_boot: Time) -> Option<(Stamp, Vec<(Made, Seq)>)> {
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

    /// Readings to send to a peer now.
    pub fn reports(&mut self, peer: NodeId, now: Time) -> Option<Together<'_>> {
        self.feeds
            .get_mut(&peer)?
            .together(now, TOGETHER_MAX, &mut self.numbers)
    }

    /// Readings to send to all peers at once, together about `bytes_max` long, and for each peer the newest stamp that
    /// had been heard of it before the first of them was taken. To the feed of each peer they are under way.
    pub fn tells_all(&mut self, now: Time, bytes_max: usize) -> Option<(&[(NodeId, Stamp)], Together<'_>)> {
        let together = self.group.as_mut()?.given(bytes_max, &mut self.numbers)?;
        self.stamps.clear();
        for (peer, feed) in &mut self.feeds {
            let sent = together
                .iter()
                .map(|sent| feed.sent_otherwise(sent.object, sent.seq, sent.age, now));
            // A feed that lacks one of them tells its peer itself.
            let oldest = sent.reduce(|oldest, stamp| Some(oldest?.min(stamp?)));
            self.stamps.extend(oldest.flatten().map(|stamp| (*peer, stamp)));
        }
        Some((&self.stamps, together))
    }

    /// Now and then: objects that other nodes have taken over are this one's no more.
    pub fn look<E: Engine, O: Os>(&mut self, replica: &Replica<E, O>) {
        let before = self.own.len();
        self.own.retain(|_, own| own.seq == 0 || replica.has_object(own.made));
        if self.own.len() < before || std::mem::take(&mut self.is_crowded) {
            // A peer never acknowledges a reading under a name of the past.
            let emptied: Vec<(NodeId, Feed)> = self.feeds.iter().map(|(peer, feed)| (*peer, feed.emptied())).collect();
            for (peer, feed) in emptied {
                self.begin(replica, peer, feed);
            }
            // Its peers' feeds have what waited there.
            self.group = self.group.take().map(|group| group.emptied());
        }
        // Sent again since, if they are worth anything.
        self.early.clear();
        for inbox in self.inboxes.values_mut() {
            inbox.keep(|made| replica.has_object(made));
        }
    }

    /// What is here of an object.
    ///
    /// # Errors
    /// Those of the store.
    pub fn latest<E: Engine, O: Os>(&mut self, replica: &Replica<E, O>, key: &[u8]) -> Result<Latest<'_>, StoreError> {
        Ok(match replica.latest(key, &mut self.value)? {
            None => Latest::NoObject,
            Some(None) => Latest::NoReading,
            Some(Some(Nanos::MAX)) => Latest::Reading(Nanos::MAX, &self.value),
            Some(Some(shown)) => Latest::Reading(true_at_most(shown, drift_ppm()), &self.value),
        })
    }

    /// What was sent to a peer and taken from it.
    pub fn exchanged(&self, peer: NodeId) -> Exchanged {
        let mut sent = self.past.get(&peer).copied().unwrap_or_default();
        if let Some(feed) = self.feeds.get(&peer) {
            let now = feed.counts();
            add(&mut sent, &now);
            (sent.pending, sent.in_flight) = (now.pending, now.in_flight);
        }
        Exchanged {
            sent,
            came: self.inboxes.get(&peer).map(Inbox::counts).unwrap_or_default(),
        }
    }

    /// The node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// What its objects are.
    pub fn kind(&self) -> &Temporal {
        &self.kind
    }
}

/// By how much a node's clock may be off.
fn drift_ppm() -> u32 {
    InboxBounds::default().drift_ppm
}

fn add(sum: &mut Counts, part: &Counts) {
    sum.offered += part.offered;
    sum.installed += part.installed;
    sum.superseded += part.superseded;
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
