//! Sensors in the cluster: each node has one, and every other node gets its readings with a bound of their age.
//!
//! After each of its starts, a node's object is created by a transaction. Readings are then in every node's store,
//! where transactions and queries read them.
//!
//! The value of a reading is the instant of the simulation at which it was made, so that its true age is known here,
//! and only here.

use std::collections::BTreeMap;

use punctual_federation::action::{Event, Execution};
use punctual_federation::ids::NodeId;
use punctual_federation::message::Key;
use punctual_federation::temporal::{
    Feed, FeedBounds, Inbox, InboxBounds, ReadingReport, ReportOutcome, Stamp, StampOutcome, sampled_at,
};
use punctual_store::batch::TemporalRead;
use punctual_store::temporal::{Creation, ObjectSpec};
use punctual_units::{Nanos, ObjectName, Seq, Time};

use super::Plant;
use super::history::is_sensor;
use super::world::{Endpoint, FutureEvent, Packet, World};

/// Period of a sensor's readings and of a node's stamps.
const EVERY: Nanos = Nanos::from_millis(90);
/// Validity of a reading: a store bounds its age up to this, and no older reading counts.
pub(super) const HORIZON: Nanos = Nanos::from_millis(500);

/// Sensor state of one process.
#[derive(Debug, Default)]
pub(super) struct Sensing {
    readings: u64,
    feeds: BTreeMap<NodeId, Feed>,
    inboxes: BTreeMap<NodeId, Inbox>,
}

impl World {
    /// Makes a reading of a node's sensor, and sends the readings that its peers lack.
    pub(super) fn senses(&mut self, number: usize) {
        self.after(EVERY, FutureEvent::Senses(number));
        if self.paused(number) {
            return;
        }
        let (now, local) = (self.now, self.hosts[number].clock.local(self.now));
        let Some(up) = &mut self.hosts[number].up else {
            return;
        };
        let (node, boot) = (up.node.member().node, up.node.member().boot.0);
        let (made, value) = (object(node, boot), now.0.to_be_bytes());
        let sensing = &mut up.sensing;
        let seq = Seq(sensing.readings + 1);
        let at = sampled_at(Some(Nanos::ZERO), local, HORIZON, self.settings.drift_ppm_max);
        let mut reports = Vec::new();
        // A sensor starts once its object exists.
        if matches!(up.replica.install_reading(made, seq, at, &value), Ok(true)) {
            sensing.readings += 1;
            for (peer, feed) in &mut sensing.feeds {
                let _ = feed.offer(made, seq, Nanos::ZERO, &value);
                reports.extend(feed.next(local).map(|sent| (*peer, sent.report())));
            }
            let sampled = self.history.sampled.entry(sensor_key(node.0)).or_default();
            sampled.insert(value.to_vec());
        }
        let stamp = Stamp { boot, at: local };
        for (peer, report) in reports {
            self.send_sensed(number, peer, Packet::Report(node, report));
        }
        for peer in (0..self.hosts.len()).filter(|peer| *peer != number) {
            self.send(Endpoint::Host(number), Endpoint::Host(peer), Packet::Stamp(node, stamp));
        }
    }

    fn send_sensed(&mut self, number: usize, peer: NodeId, packet: Packet) {
        for host in self.named(peer) {
            self.send(Endpoint::Host(number), Endpoint::Host(host), packet.clone());
        }
    }

    /// Handles a peer's stamp at a source.
    pub(super) fn stamped(&mut self, number: usize, peer: NodeId, stamp: Stamp) {
        let Some(up) = &mut self.hosts[number].up else {
            return;
        };
        let known = up.sensing.feeds.get_mut(&peer).map(|feed| feed.heard(stamp));
        if known.is_none_or(|heard| heard == StampOutcome::Restarted) {
            let bounds = FeedBounds {
                objects: 1,
                value_bytes: 8,
                ..FeedBounds::default()
            };
            up.sensing.feeds.insert(peer, Feed::new(bounds, stamp));
        }
    }

    /// Handles a reading at a peer of its source.
    pub(super) fn reported(&mut self, number: usize, source: NodeId, mut report: ReadingReport) {
        let local = self.hosts[number].clock.local(self.now);
        let drift_ppm = self.settings.drift_ppm_max;
        let Some(up) = &mut self.hosts[number].up else {
            return;
        };
        let (node, boot) = (up.node.member().node, up.node.member().boot.0);
        if self.plant == Some(Plant::AgeWithoutTheWay) {
            report.stamp = Stamp { boot, at: local };
        }
        // Before the entry that creates the object, a reading is not accepted; it will be sent again.
        if !up.replica.has_object(report.object) {
            return;
        }
        let bounds = InboxBounds { objects: 4, drift_ppm };
        let inbox = up.sensing.inboxes.entry(source).or_insert_with(|| Inbox::new(bounds));
        let received = inbox.receive(&report, boot, local);
        if let Ok(ReportOutcome::Newer { age_at_most }) = received {
            let kept = match self.plant {
                Some(Plant::StoredWithoutTheWay) => Some(report.age),
                _ => age_at_most,
            };
            let at = sampled_at(kept, local, HORIZON, drift_ppm);
            if let Err(error) = up.replica.install_reading(report.object, report.seq, at, &report.value) {
                self.store_failed("install a reading", error);
                return;
            }
            self.readings += 1;
            if let Some(bound) = age_at_most {
                self.check_age(node, source, &report, bound);
            }
        }
        let taken = Packet::Taken(node, report.object, report.seq);
        self.send_sensed(number, source, taken);
    }

    fn check_age(&mut self, node: NodeId, source: NodeId, report: &ReadingReport, bound: Nanos) {
        let age = self.true_age(&report.value);
        if bound < age {
            self.broken(format!(
                "node {node} takes a reading of node {source} to be {bound} old, and it is {age}"
            ));
        }
    }

    /// Handles an acknowledgement at a source.
    pub(super) fn taken(&mut self, number: usize, peer: NodeId, object: ObjectName, seq: Seq) {
        let up = self.hosts[number].up.as_mut();
        if let Some(feed) = up.and_then(|up| up.sensing.feeds.get_mut(&peer)) {
            feed.acknowledged(object, seq);
        }
    }
}

impl World {
    fn true_age(&self, value: &[u8]) -> Nanos {
        let made = value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        self.now.since(Time(made))
    }

    /// Checks that readings are no older than the store reports, at the instant at which a transaction or a query reads
    /// them. `read`: keys and age bound of a query.
    pub(super) fn check_readings(&mut self, number: usize, event: &Event, read: Option<(Vec<Key>, Nanos)>) {
        let node = self.hosts[number].node;
        let mut wrong = None;
        if let Event::Executed(_, performed) = event {
            for read in performed.iter().flat_map(reads) {
                let age = read.value.as_deref().map_or(Nanos::ZERO, |value| self.true_age(value));
                if read.age < HORIZON && age > read.age {
                    wrong = Some(format!(
                        "a transaction on node {node} reads {} as {} old, and it is {age}",
                        read.key.escape_ascii(),
                        read.age
                    ));
                }
            }
        }
        if let (Event::Queried(_, _, values), Some((keys, max_age))) = (event, read) {
            let sensed = keys.iter().zip(values).filter(|(key, _)| is_sensor(key));
            for (key, value) in sensed {
                let age = value.as_deref().map_or(Nanos::ZERO, |value| self.true_age(value));
                if age > max_age.min(HORIZON) {
                    let key = key.escape_ascii();
                    wrong = Some(format!(
                        "a query on node {node} finds {key} not older than {max_age}, and it is {age}"
                    ));
                }
            }
        }
        if let Some(what) = wrong {
            self.broken(what);
        }
    }

    /// A temporal object that does not exist yet, of a running node.
    pub(super) fn lacking(&self) -> Option<Creation> {
        let members = self
            .hosts
            .iter()
            .filter_map(|host| Some(host.up.as_ref()?.node.member()));
        let wanted = members.map(|member| (member.node, object(member.node, member.boot.0)));
        let (node, made) = wanted.into_iter().find(|(_, made)| !self.log.created.contains(made))?;
        let spec = ObjectSpec {
            key: sensor_key(node.0),
            avi: HORIZON,
            period: EVERY,
            max_len: 8,
            history: 1,
        };
        Some(Creation { made, spec })
    }
}

fn reads(performed: &Execution) -> &[TemporalRead] {
    match performed {
        Execution::Done { set, .. } => &set.read,
        Execution::Refused(_) | Execution::NotRun => &[],
    }
}

/// Key of a node's temporal object.
pub(super) fn sensor_key(node: u32) -> Key {
    format!("sensor {node}").into_bytes()
}

/// The only object of a process.
fn object(node: NodeId, boot: u64) -> ObjectName {
    ObjectName {
        source: node.0,
        boot,
        sequence: 1,
    }
}
