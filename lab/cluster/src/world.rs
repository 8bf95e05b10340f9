//! The cluster and its future events, which are handled one after the other, in the order of their instants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_federation::action::{Ask, Ticket};
use punctual_federation::entry::Entry;
use punctual_federation::ids::{BatchId, Boot, FederationId, NodeId, RequestId, Revision};
use punctual_federation::message::{Answer, Key, Message, Reply, Request, Value};
use punctual_federation::temporal::{ReadingReport, Stamp};
use punctual_logs::{AppendResult, LogError, LogRecord, Stretch};
use punctual_store::batch::Image;
use punctual_units::{Nanos, ObjectName, Seq, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::client::SimulatedClient;
use super::front::FrontPlace;
use super::history::{History, NodeImage};
use super::host::Host;
use super::log::LogPlace;
use super::nemesis::Weather;
use super::{ClusterSettings, EventTrace, Mark, Plant, TraceMode, Violation};

/// Least delay of a slow packet.
const SLOW: Nanos = Nanos::from_millis(1);

/// Identity of the simulated federation.
pub(super) const FEDERATION: FederationId = FederationId(0x70_756e_6374_7561);

/// A sender or receiver of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Endpoint {
    /// A host, by its number.
    Host(usize),
    Log,
    Front(usize),
    Client(usize),
}

/// A message between two places.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    /// From node to node.
    Peer(NodeId, Message),
    /// A connection to this node was reset.
    Reset(NodeId),
    /// From a client or a front, with the sender's number of the request.
    Request(u64, Request),
    /// A node's answer to a front, with the request's number.
    Reply(u64, Reply),
    /// An answer to a client.
    Answer(RequestId, Answer),
    /// A client's connection was reset, or refused.
    Broken(RequestId),
    /// From a node to the log.
    Ask(Boot, Ticket, Question),
    /// Answer to an append.
    Appended(Boot, Ticket, Result<AppendResult, LogError>),
    /// Answer to a read.
    Read(Boot, Ticket, Result<Stretch, LogError>),
    /// New entry that the log announces to all nodes.
    Watched(LogRecord),
    /// A node's stamp, for the readings of its peers' sensors.
    Stamp(NodeId, Stamp),
    /// A reading, from its source.
    Report(NodeId, ReadingReport),
    /// Acknowledgement of a reading.
    Taken(NodeId, ObjectName, Seq),
}

/// Request to the log, with entries as bytes.
#[derive(Clone, Debug)]
pub(super) enum Question {
    Append(Revision, Arc<[u8]>),
    Read(Revision, usize),
    Trim(Revision),
}

impl Question {
    pub(super) fn of(ask: &Ask) -> Question {
        match ask {
            Ask::Append { last, entry } => Question::Append(*last, entry.encode(FEDERATION).into()),
            Ask::Read { after, max } => Question::Read(*after, *max),
            Ask::Trim { upto } => Question::Trim(*upto),
        }
    }
}

/// Work of a node's store.
#[derive(Clone, Debug)]
pub(super) enum StoreWork {
    Execute(BatchId, Revision, Vec<Request>),
    Apply(Revision, Arc<Entry>),
    /// With the values read too early, if that fault is planted.
    Query(Ticket, Vec<Key>, Nanos, Option<(Revision, Vec<Option<Value>>)>),
    Sync,
    Copy(NodeId, Option<Key>),
    Install(Arc<Image>),
}

/// Future event of the simulation.
#[derive(Clone, Debug)]
pub(super) enum FutureEvent {
    Arrives(Endpoint, Endpoint, Packet),
    /// A node's clock reaches the node's next wake-up.
    Wake(usize, Boot),
    /// A node's store has finished its work.
    Worked(usize, Boot, StoreWork),
    /// A node that stood still resumes.
    Resumes(usize),
    /// A node starts again.
    Starts(usize),
    /// A paused node is ordered to resume.
    GoesOn(usize),
    /// A front starts again.
    FrontStarts(usize),
    /// A front's clock reaches its next wake-up, if the front was not restarted since.
    FrontWakes(usize, u64),
    /// A client begins its next request.
    Turn(usize),
    /// A client stops waiting for an answer.
    GivesUp(usize, RequestId),
    /// A node's sensor makes a reading.
    Senses(usize),
    /// The restless node crashes once more.
    EndsAgain,
    /// The next fault begins.
    Fault,
    /// The records of all nodes are recorded.
    Look,
    /// Timeout of a planted fault.
    Planted(usize, Boot, Ticket),
}

/// State of the simulated cluster.
pub(super) struct World {
    pub(super) settings: ClusterSettings,
    pub(super) plant: Option<Plant>,
    pub(super) now: Time,
    pub(super) random: ChaCha8Rng,
    coming: BTreeMap<(Time, u64), FutureEvent>,
    numbers: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) fronts: Vec<FrontPlace>,
    pub(super) clients: Vec<SimulatedClient>,
    pub(super) log: LogPlace,
    pub(super) weather: Weather,
    pub(super) history: History,
    pub(super) violation: Option<Violation>,
    pub(super) trace: Option<EventTrace>,
    pub(super) faults: BTreeMap<&'static str, u64>,
    pub(super) copies: u64,
    pub(super) images: u64,
    pub(super) parts: u64,
    pub(super) readings: u64,
    /// Connections that nodes have accepted from clients and fronts.
    pub(super) connections: u64,
    /// When a master was seen last, and the longest span without one.
    master_seen: Time,
    pub(super) without_master: Nanos,
    /// Faults and new requests end at this instant.
    pub(super) calm_from: Time,
}

/// Time without faults at the end of a run, within which the cluster must come to rest.
pub(super) const CALM: Nanos = Nanos::from_millis(2500);
/// Period of recording the nodes' records.
const LOOK_EVERY: Nanos = Nanos::from_millis(300);
/// Bound on the events of a run: far more than any run takes that does not loop.
const EVENTS_MAX: u64 = 20_000_000;

impl World {
    pub(super) fn new(settings: &ClusterSettings, seed: u64, plant: Option<Plant>, keep: TraceMode) -> World {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let calm_from = Time::ZERO + settings.duration;
        let namesake = settings.namesake.then_some(0);
        let names = (0..settings.nodes + settings.joiners).chain(namesake);
        let hosts: Vec<_> = names.map(|name| Host::new(name, settings, &mut random)).collect();
        let clients: Vec<_> = (0..settings.clients)
            .map(|number| SimulatedClient::new(number, settings))
            .collect();
        let front = |_| FrontPlace::new(settings, &mut random);
        let fronts: Vec<_> = (0..settings.fronts).map(front).collect();
        let trace = || EventTrace::new(columns(hosts.len(), fronts.len(), clients.len()));
        let trace = match keep {
            TraceMode::Nothing => None,
            TraceMode::Trace => Some(trace()),
            TraceMode::TraceUntil(until) => Some(trace().until(until)),
        };
        let mut world = World {
            settings: settings.clone(),
            plant,
            now: Time::ZERO,
            random,
            coming: BTreeMap::new(),
            numbers: 0,
            hosts,
            fronts,
            clients,
            log: LogPlace::new(settings.entry_bytes_max),
            weather: Weather::default(),
            history: History::default(),
            violation: None,
            trace,
            faults: BTreeMap::new(),
            copies: 0,
            images: 0,
            parts: 0,
            readings: 0,
            connections: 0,
            master_seen: Time::ZERO,
            without_master: Nanos::ZERO,
            calm_from,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for host in 0..self.settings.nodes as usize {
            self.start(host);
        }
        for front in 0..self.fronts.len() {
            self.front_starts(front);
        }
        for joiner in self.settings.nodes as usize..self.hosts.len() {
            let span = Nanos(self.random.random_range(0..self.settings.duration.0.max(1)));
            self.after(span, FutureEvent::Starts(joiner));
        }
        for client in 0..self.clients.len() {
            self.after(Nanos::from_millis(1 + client as u64), FutureEvent::Turn(client));
        }
        for host in 0..self.hosts.len() {
            self.after(Nanos::from_millis(10 + host as u64), FutureEvent::Senses(host));
        }
        if self.settings.restless {
            self.after(Nanos::from_millis(300), FutureEvent::EndsAgain);
        }
        if let Some(from) = self.settings.log_gone_from {
            self.log.gone = Some((Time::ZERO + from, self.calm_from));
        }
        self.after(LOOK_EVERY, FutureEvent::Look);
        self.next_fault();
    }

    /// Runs to the end, or to the first violation that is detected at once.
    pub(super) fn run(&mut self) {
        let end = self.calm_from + CALM;
        while let Some(((at, _), happening)) = self.coming.pop_first() {
            if at > end || self.violation.is_some() {
                break;
            }
            if self.numbers > EVENTS_MAX {
                self.broken("the simulation goes round in circles".to_owned());
                break;
            }
            self.now = at;
            self.happen(happening);
            self.watch_master();
        }
        self.now = self.now.max(end);
        self.look();
    }

    fn happen(&mut self, happening: FutureEvent) {
        match happening {
            FutureEvent::Arrives(from, to, packet) => self.arrives(from, to, packet),
            FutureEvent::Wake(host, boot) => self.wakes(host, boot),
            FutureEvent::Worked(host, boot, work) => self.worked(host, boot, work),
            FutureEvent::Resumes(host) => self.resumes(host),
            FutureEvent::Starts(host) => self.start(host),
            FutureEvent::GoesOn(host) => self.goes_on(host),
            FutureEvent::FrontStarts(front) => self.front_starts(front),
            FutureEvent::FrontWakes(front, starts) => self.front_wakes(front, starts),
            FutureEvent::Turn(client) => self.turn(client),
            FutureEvent::GivesUp(client, id) => self.gives_up(client, id),
            FutureEvent::Senses(host) => self.senses(host),
            FutureEvent::EndsAgain => self.ends_again(),
            FutureEvent::Fault => self.fault(),
            FutureEvent::Look => {
                self.look();
                self.after(LOOK_EVERY, FutureEvent::Look);
            }
            FutureEvent::Planted(host, boot, ticket) => self.planted_timeout(host, boot, ticket),
        }
    }

    /// Schedules an event after a span.
    pub(super) fn after(&mut self, span: Nanos, happening: FutureEvent) {
        self.at(self.now + span, happening);
    }

    /// Schedules an event at an instant.
    pub(super) fn at(&mut self, at: Time, happening: FutureEvent) {
        self.numbers += 1;
        self.coming.insert((at, self.numbers), happening);
    }

    /// Whether faults are over.
    pub(super) fn calm(&self) -> bool {
        self.now >= self.calm_from
    }

    /// Draws a span from a range, in microseconds.
    pub(super) fn micros(&mut self, from: u64, to: u64) -> Nanos {
        Nanos::from_micros(self.random.random_range(from..to))
    }

    /// Returns true with a probability of `times` in 1000.
    pub(super) fn per_mille(&mut self, times: u32) -> bool {
        self.random.random_range(0..1000) < times
    }

    /// Sends a packet. Between nodes, and to the log, packets get lost, overtake each other and arrive twice.
    /// Connections of clients and fronts lose packets only when they are cut.
    pub(super) fn send(&mut self, from: Endpoint, to: Endpoint, packet: Packet) {
        let connected = |place| matches!(place, Endpoint::Client(_) | Endpoint::Front(_));
        let (loss, repeat) = match connected(from) || connected(to) || self.calm() {
            true => (0, 0),
            false => (
                self.settings.loss_per_mille.max(self.weather.loss(self.now)),
                self.settings.repeat_per_mille,
            ),
        };
        if self.weather.cut(from, to, self.now) || self.per_mille(loss) {
            self.trace_sent(from, to, None, &packet);
            return;
        }
        if self.per_mille(repeat) {
            self.send_once(from, to, packet.clone());
        }
        self.send_once(from, to, packet);
    }

    fn send_once(&mut self, from: Endpoint, to: Endpoint, packet: Packet) {
        let slow = !self.calm() && self.per_mille(self.settings.slow_per_mille);
        let delay = match slow {
            true => self.micros(SLOW.0 / 1000, 60_000),
            false => self.micros(100, 700),
        };
        self.trace_sent(from, to, Some(self.now + delay), &packet);
        self.after(delay, FutureEvent::Arrives(from, to, packet));
    }

    fn arrives(&mut self, from: Endpoint, to: Endpoint, packet: Packet) {
        match to {
            Endpoint::Log => self.log_arrives(from, packet),
            Endpoint::Front(front) => self.front_hears(front, from, packet),
            Endpoint::Client(client) => self.client_hears(client, packet),
            Endpoint::Host(host) => self.host_hears(host, from, packet),
        }
    }

    /// The hosts with this name.
    pub(super) fn named(&self, node: NodeId) -> Vec<usize> {
        (0..self.hosts.len())
            .filter(|host| self.hosts[*host].node == node)
            .collect()
    }

    /// Records a violation, unless there is one already.
    pub(super) fn broken(&mut self, what: String) {
        let at = self.now;
        self.violation.get_or_insert(Violation { at, what });
    }

    /// Records the records of all nodes for the check.
    fn look(&mut self) {
        let at = self.now;
        let mut seen = BTreeSet::new();
        for host in &self.hosts {
            if let Some(up) = &host.up
                && let Ok(image) = up.replica.image()
                && seen.insert((host.node, image.revision))
            {
                let node = host.node;
                self.history.looks.push(NodeImage { node, at, image });
            }
        }
    }

    fn watch_master(&mut self) {
        let paused = |host: &Host| host.paused_until > self.now;
        let reign = self.log.reign;
        let there = |host: &Host| {
            let up = host.up.as_ref();
            up.is_some_and(|up| up.node.is_master() && Some(up.node.member()) == reign) && !paused(host)
        };
        if self.hosts.iter().any(there) {
            self.without_master = self.without_master.max(self.now.since(self.master_seen));
            self.master_seen = self.now;
        }
    }

    /// Counts a fault, and adds it to the trace.
    pub(super) fn note_fault(&mut self, name: &'static str, place: Endpoint, mark: Mark) {
        *self.faults.entry(name).or_default() += 1;
        self.note(place, mark, || name.to_owned());
    }

    /// Adds an event to the trace, if there is one.
    pub(super) fn note(&mut self, place: Endpoint, mark: Mark, label: impl FnOnce() -> String) {
        let (at, column) = (self.now, self.column(place));
        if let Some(trace) = &mut self.trace {
            trace.noted(at, column, mark, label());
        }
    }

    fn trace_sent(&mut self, from: Endpoint, to: Endpoint, arrives: Option<Time>, packet: &Packet) {
        // Most messages are heartbeats and readings that arrive normally: in a chart they would hide the rest.
        let routine = match packet {
            Packet::Peer(_, Message::Heartbeat(_)) => arrives.is_some(),
            Packet::Stamp(..) | Packet::Report(..) | Packet::Taken(..) => {
                arrives.is_some_and(|arrives| arrives.since(self.now) < SLOW)
            }
            _ => false,
        };
        if routine {
            return;
        }
        let (at, from, to) = (self.now, self.column(from), self.column(to));
        if let Some(trace) = &mut self.trace {
            trace.sent(at, from, to, arrives, super::label::of(packet));
        }
    }

    fn column(&self, place: Endpoint) -> usize {
        match place {
            Endpoint::Host(host) => host,
            Endpoint::Log => self.hosts.len(),
            Endpoint::Front(front) => self.hosts.len() + 1 + front,
            Endpoint::Client(client) => self.hosts.len() + 1 + self.fronts.len() + client,
        }
    }

    /// Reports a failed store as a violation: a store in memory does not fail.
    pub(super) fn store_failed(&mut self, what: &str, error: impl std::fmt::Display) {
        self.broken(format!("a store failed to {what}: {error}"));
    }
}

fn columns(hosts: usize, fronts: usize, clients: usize) -> Vec<String> {
    let several = |name: &'static str, count| (0..count).map(move |number| format!("{name} {number}"));
    several("node", hosts)
        .chain(["log".to_owned()])
        .chain(several("front", fronts))
        .chain(several("client", clients))
        .collect()
}
