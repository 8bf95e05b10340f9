//! Nodes, balancers and a log, with clients whose whole history is checked: by the checker of the simulated cluster,
//! which replays the log.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use punctual_cluster_sim::check::check;
use punctual_cluster_sim::history::{Deed, History};
use punctual_engines::Memory;
use punctual_federation::admission::Gate;
use punctual_federation::balancer::Home;
use punctual_federation::entry::Body;
use punctual_federation::ids::{Boot, FederationId, Member, NodeId, RequestId, Revision, SessionId};
use punctual_federation::message::{Answer, Operation, Output, Position, Reason, Request, Work};
use punctual_federation::node::Setup;
use punctual_federation::replica::Replica;
use punctual_node::process::balance::{BalancerLoop, Balancing};
use punctual_node::process::{Access, Listening, NodeControl, NodeLoop, PeerAddress};
use punctual_node::seen::TimedNotice;
use punctual_server::net::Net;
use punctual_server::resp::Reply;
use punctual_store::{Store, StoreOptions};
use punctual_testing::campaign;
use punctual_units::{Nanos, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::log::{Entries, LogHost};
use super::net::{Host, HostNet, NetSettings, Network};
use super::os::{HostOs, WorldClock};
use super::serving::{Client, Line};
use super::world::{Actor, Sim};

const FEDERATION: FederationId = FederationId(7);
const CLIENTS: u16 = 6379;
const PEERS: u16 = 7379;
/// How long a temporal object is valid.
const VALIDITY: Nanos = Nanos::from_secs(3600);
/// Milliseconds of the wall clock at the beginning of a world.
const WALL_CLOCK: u64 = 1_700_000_000_000;
/// How long a client waits for a reply.
const PATIENCE: Nanos = Nanos::from_secs(3);
/// Time without clients and faults, in which nodes come to have all entries.
const CALM: Nanos = Nanos::from_millis(700);
/// Number of registers that all clients share.
const KEYS: u32 = 4;

type Tell = Box<dyn FnMut(TimedNotice)>;
type Note = Box<dyn FnMut(String)>;

/// The event loop of a node.
struct NodeHost(NodeLoop<Memory, HostOs, Tell>);

impl Actor for NodeHost {
    fn turn(&mut self) -> Option<Nanos> {
        match self.0.turn(Nanos::ZERO) {
            None => Some(self.0.wait()),
            Some(ended) => {
                ended.expect("a node that ends by itself");
                None
            }
        }
    }
}

/// The event loop of a balancer.
struct BalancerHost(BalancerLoop<HostOs, Note>);

impl Actor for BalancerHost {
    fn turn(&mut self) -> Option<Nanos> {
        self.0.turn(Nanos::ZERO).expect("events");
        Some(self.0.wait())
    }
}

/// A federation in a world of its own.
pub struct Cluster {
    pub sim: Sim,
    pub log: Host,
    pub nodes: Vec<Host>,
    pub balancers: Vec<Host>,
    entries: Entries,
    deeds: Rc<RefCell<Vec<Deed>>>,
    sessions: Rc<RefCell<u32>>,
    clients: Vec<Host>,
    boots: u64,
    /// Ends of the channels to nodes and balancers, which keep them open.
    controls: Vec<Sender<NodeControl>>,
    addresses: Vec<Sender<BTreeMap<u32, PeerAddress>>>,
}

impl Cluster {
    /// Starts nodes and balancers.
    pub fn new(seed: u64, settings: NetSettings, nodes: u32, balancers: u32) -> Cluster {
        let sim = Sim::new(seed, settings);
        let (log, _, net) = sim.host();
        let entries = Entries::default();
        let clock = sim.with(|world| world.clock.clone());
        let host = LogHost::new(net, clock, Path::new("/log"), FEDERATION, &entries);
        sim.run(log, Box::new(host));
        let mut cluster = Cluster {
            nodes: (0..nodes).map(|_| sim.host().0).collect(),
            balancers: (0..balancers).map(|_| sim.host().0).collect(),
            sim,
            log,
            entries,
            deeds: Rc::default(),
            sessions: Rc::default(),
            clients: Vec::new(),
            boots: 0,
            controls: Vec::new(),
            addresses: Vec::new(),
        };
        (0..nodes).for_each(|node| cluster.start(node));
        (0..balancers).for_each(|balancer| cluster.balance(balancer));
        cluster
    }

    /// Starts a node with an empty store.
    pub fn start(&mut self, node: u32) {
        let host = self.nodes[node as usize];
        let (os, net) = self.sim.boot(host);
        self.boots += 1;
        let access = Access::default();
        let (clients, peers) = (Network::address(host, CLIENTS), Network::address(host, PEERS));
        let listening = Listening::on(Some(Box::new(net)), clients, peers, access).expect("ports");
        let options = StoreOptions {
            replicated: true,
            created_max: 64,
            ..StoreOptions::default()
        };
        let store = Store::open(Memory::default(), os.clone(), options).expect("a store");
        let clock = self.sim.with(|world| world.clock.clone());
        let wall = move || WALL_CLOCK + clock.now().0 / 1_000_000;
        let replica = Replica::new(store, VALIDITY).with_clock(wall).expect("a store");
        let all = (0..self.nodes.len() as u32).map(NodeId);
        let setup = Setup {
            me: Member {
                node: NodeId(node),
                boot: Boot(self.boots),
            },
            federation: FEDERATION,
            peers: all.collect(),
            log_entries_max: 1000,
            executors: 2,
            gate: Gate::Open,
        };
        let (control, orders) = channel();
        let peer = |(node, host): (usize, &Host)| {
            let address = PeerAddress::of(Network::address(*host, PEERS));
            (NodeId(node as u32), address)
        };
        let peers = self.nodes.iter().enumerate().map(peer).collect();
        control.send(NodeControl::Peers(peers)).expect("it listens");
        let tell: Tell = Box::new(|_| {});
        let turned = listening.event_loop(&setup, "/log".into(), replica, os, orders, tell);
        self.controls.push(control);
        self.sim.run(host, Box::new(NodeHost(turned.expect("a node"))));
    }

    /// Starts a balancer.
    pub fn balance(&mut self, balancer: u32) {
        let host = self.balancers[balancer as usize];
        let (os, net) = self.sim.boot(host);
        let at = Network::address(host, CLIENTS);
        let balancing = Balancing::on(Some(Box::new(net)), at, Access::default()).expect("a port");
        let (found, nodes): (_, Receiver<BTreeMap<u32, PeerAddress>>) = channel();
        let address = |(node, host): (usize, &Host)| {
            let address = PeerAddress::of(Network::address(*host, PEERS));
            (node as u32, address)
        };
        let addresses = self.nodes.iter().enumerate().map(address).collect();
        found.send(addresses).expect("it listens");
        let draw = self.sim.with(|world| world.random.random());
        let note: Note = Box::new(|_| {});
        let turned = balancing.event_loop(nodes, Box::new(Home::default()), draw, os, note);
        self.addresses.push(found);
        self.sim.run(host, Box::new(BalancerHost(turned.expect("a balancer"))));
    }

    /// A client of a node or a balancer.
    pub fn client(&self, host: Host) -> Client {
        Client::to(&self.sim, Network::address(host, CLIENTS))
    }

    /// The node that is the master by the log, if there was one.
    pub fn master(&self) -> Option<usize> {
        let entries = self.entries.borrow();
        let reign = entries
            .iter()
            .rev()
            .find(|(_, entry)| matches!(entry.body, Body::Reign(_)));
        reign.map(|(_, entry)| entry.id.member.node.0 as usize)
    }

    /// All hosts of the federation but one.
    fn others(&self, host: Host) -> Vec<Host> {
        let all = self.nodes.iter().chain(&self.balancers).chain([&self.log]);
        all.copied().filter(|other| *other != host).collect()
    }

    /// Number of terms so far.
    pub fn terms(&self) -> usize {
        let entries = self.entries.borrow();
        let terms = entries.iter().filter(|(_, entry)| matches!(entry.body, Body::Reign(_)));
        terms.count()
    }

    /// Starts clients whose requests are checked.
    pub fn load(&mut self, clients: u32) {
        let places: Vec<SocketAddr> = self
            .nodes
            .iter()
            .chain(&self.balancers)
            .map(|host| Network::address(*host, CLIENTS))
            .collect();
        for _ in 0..clients {
            let (host, os, net) = self.sim.host();
            let client = HistoryClient {
                net,
                clock: self.sim.with(|world| world.clock.clone()),
                random: ChaCha8Rng::seed_from_u64(punctual_os::Os::random(&os)),
                places: places.clone(),
                line: None,
                number: 0,
                session: RequestId::default(),
                stage: ClientStage::Opening,
                ends: Time::MAX,
                replies: Vec::new(),
                values: u64::from(host) << 32,
                deeds: Rc::clone(&self.deeds),
                sessions: Rc::clone(&self.sessions),
            };
            self.clients.push(host);
            self.sim.run(host, Box::new(client));
        }
    }

    /// Ends the clients, and lets the federation come to rest; checks the whole history. Returns the number of requests
    /// that were carried out, and of the others.
    pub fn finish(&mut self) -> (usize, usize) {
        for client in std::mem::take(&mut self.clients) {
            self.sim.kill(client);
        }
        while self.sim.with(|world| world.network.holds()) {
            self.sim.step();
        }
        self.sim.pass(CALM);
        let entries = self.entries.borrow();
        let places: BTreeMap<RequestId, Position> = places(&entries);
        let deeds = self
            .deeds
            .borrow()
            .iter()
            .map(|deed| placed(deed, &places))
            .collect::<Vec<_>>();
        let done = deeds
            .iter()
            .filter(|deed| matches!(deed.returned, Some((_, Answer::Done { .. }))))
            .count();
        let history = History {
            log: entries.iter().map(|(_, entry)| Arc::clone(entry)).collect(),
            logged: entries.iter().map(|(at, _)| *at).collect(),
            deeds,
            ..History::default()
        };
        let last = history.last();
        let others = history.deeds.len() - done;
        if let Err(violation) = check(&history) {
            panic!("{violation} at {:?}", violation.at);
        }
        drop(entries);
        // All nodes have all entries, and agree about the master.
        for host in self.nodes.clone() {
            let info = self.client(host).text("INFO");
            let applied = format!("applied:{}\r\n", last.0);
            assert!(info.contains(&applied), "{applied} {info}");
        }
        (done, others)
    }
}

/// Where the log has each request.
fn places(entries: &[(Time, Arc<punctual_federation::entry::Entry>)]) -> BTreeMap<RequestId, Position> {
    let mut places = BTreeMap::new();
    for (revision, (_, entry)) in (1..).map(Revision).zip(entries) {
        if let Body::Batch(batch) = &entry.body {
            for (index, logged) in (0..).zip(batch) {
                places.insert(logged.id, Position { revision, index });
            }
        }
    }
    places
}

/// A transaction that was acknowledged, with its position: clients are not told it. One that the log does not have gets
/// a position that it never has.
fn placed(deed: &Deed, places: &BTreeMap<RequestId, Position>) -> Deed {
    let mut deed = deed.clone();
    if let (Work::Transaction(_), Some((_, Answer::Done { position, revision, .. }))) =
        (&deed.request.work, &mut deed.returned)
    {
        let nowhere = Position {
            revision: Revision(u64::MAX),
            index: 0,
        };
        *position = places.get(&deed.request.id).copied().unwrap_or(nowhere);
        *revision = position.revision;
    }
    deed
}

/// What a client waits for.
enum ClientStage {
    /// The session of a new connection.
    Opening,
    /// Nothing: the next request is sent at the end of the wait.
    Thinking,
    /// The replies to a transaction, and its deed.
    Transaction(usize),
    /// The reply to a query, and the revision that it showed.
    Query(usize),
}

/// A client that reads and writes registers, one request after the other.
struct HistoryClient {
    net: HostNet,
    clock: WorldClock,
    random: ChaCha8Rng,
    places: Vec<SocketAddr>,
    line: Option<Line>,
    /// Number of its present session, for the check.
    number: u32,
    /// The last request of the session.
    session: RequestId,
    stage: ClientStage,
    /// When it goes on, or gives up.
    ends: Time,
    replies: Vec<Reply>,
    values: u64,
    deeds: Rc<RefCell<Vec<Deed>>>,
    sessions: Rc<RefCell<u32>>,
}

impl HistoryClient {
    fn connect(&mut self) {
        let place = self.places[self.random.random_range(0..self.places.len())];
        self.line = None;
        let mut line = Line::to(&mut self.net, place);
        line.send(&[b"SESSION"]);
        self.line = Some(line);
        self.replies.clear();
        self.waits(ClientStage::Opening, PATIENCE);
    }

    fn waits(&mut self, stage: ClientStage, span: Nanos) {
        (self.stage, self.ends) = (stage, self.clock.now() + span);
    }

    fn thinks(&mut self) {
        let span = Nanos::from_micros(self.random.random_range(100..20_000));
        self.waits(ClientStage::Thinking, span);
    }

    fn asks(&mut self) {
        let key = format!("register {}", self.random.random_range(0..KEYS)).into_bytes();
        let is_query = self.random.random_bool(0.3);
        let work = match is_query {
            true => Work::Query {
                keys: vec![key],
                latest: false,
                max_age: Nanos::MAX,
            },
            false => {
                self.values += 1;
                let other = format!("register {}", self.random.random_range(0..KEYS)).into_bytes();
                let value = self.values.to_string().into_bytes();
                Work::Transaction(vec![Operation::Get(key), Operation::Put(other, value)])
            }
        };
        let Some(line) = &mut self.line else { return };
        match &work {
            Work::Transaction(operations) => {
                line.send(&[b"MULTI"]);
                for operation in operations {
                    match operation {
                        Operation::Put(key, value) => line.send(&[b"SET", key, value]),
                        Operation::Get(key) => line.send(&[b"GET", key]),
                        _ => {}
                    }
                }
                line.send(&[b"EXEC"]);
                self.session.number += 1;
            }
            Work::Query { keys, .. } => {
                line.send(&[b"GET", &keys[0]]);
                line.send(&[b"SESSION"]);
            }
            _ => {}
        }
        let id = if is_query { RequestId::default() } else { self.session };
        let mut deeds = self.deeds.borrow_mut();
        let at = deeds.len();
        deeds.push(Deed {
            client: self.number,
            node: None,
            request: Request {
                id,
                work,
                time_left: Nanos::from_secs(1),
                seen: Revision::ZERO,
            },
            invoked: self.clock.now(),
            returned: None,
        });
        drop(deeds);
        let stage = if is_query {
            ClientStage::Query(at)
        } else {
            ClientStage::Transaction(at)
        };
        self.waits(stage, PATIENCE);
    }

    fn answered(&mut self, deed: usize, answer: Answer) {
        self.deeds.borrow_mut()[deed].returned = Some((self.clock.now(), answer));
        self.replies.clear();
        self.thinks();
    }

    /// Looks at the replies that have come; returns whether there was something to do.
    fn reads(&mut self) -> bool {
        match (&self.stage, self.replies.as_slice()) {
            (ClientStage::Opening, [Reply::Array(numbers)]) => {
                let [Reply::Integer(id), Reply::Integer(number), _] = numbers[..] else {
                    panic!("{numbers:?}")
                };
                self.session = RequestId {
                    session: SessionId(id as u64),
                    number: number as u64,
                };
                let mut sessions = self.sessions.borrow_mut();
                *sessions += 1;
                self.number = *sessions;
                drop(sessions);
                self.replies.clear();
                self.thinks();
            }
            // No session: another place may have a master.
            (ClientStage::Opening, [Reply::Error(_)]) => {
                self.line = None;
                self.thinks();
            }
            (ClientStage::Transaction(deed), [_, _, _, end]) => {
                let answer = match end {
                    Reply::Array(values) => done(vec![found(&values[0])], Revision::ZERO),
                    Reply::Error(error) if error.starts_with("LATE ") => late(),
                    Reply::Error(error) if error.starts_with("UNKNOWN ") => Answer::Unknown,
                    other => panic!("{other:?}"),
                };
                self.answered(*deed, answer);
            }
            (ClientStage::Query(deed), [end, Reply::Array(session)]) => {
                let Reply::Integer(seen) = session[2] else {
                    panic!("{session:?}")
                };
                let answer = match end {
                    Reply::Error(error) if error.starts_with("LATE ") => late(),
                    Reply::Error(error) => panic!("{error}"),
                    value => done(vec![found(value)], Revision(seen as u64)),
                };
                self.answered(*deed, answer);
            }
            _ => return false,
        }
        true
    }
}

fn found(value: &Reply) -> Option<Vec<u8>> {
    match value {
        Reply::Bulk(value) => Some(value.clone()),
        Reply::Null => None,
        other => panic!("{other:?}"),
    }
}

fn late() -> Answer {
    Answer::late(Reason::Expired, None)
}

/// An answer from the records at `revision`.
fn done(values: Vec<Option<Vec<u8>>>, revision: Revision) -> Answer {
    Answer::Done {
        output: Output::Values(values),
        position: Position::after(revision),
        revision,
    }
}

impl Actor for HistoryClient {
    fn turn(&mut self) -> Option<Nanos> {
        self.net.poll(&mut Vec::new(), Nanos::ZERO).expect("events");
        if let Some(line) = &mut self.line {
            match line.turn() {
                Some(replies) => self.replies.extend(replies),
                // What was asked is open for ever.
                None => self.line = None,
            }
        }
        while self.reads() {}
        if self.line.is_none() && !matches!(self.stage, ClientStage::Thinking) {
            self.thinks();
        }
        if self.ends <= self.clock.now() {
            match (&self.stage, &self.line) {
                (ClientStage::Thinking, Some(_)) => self.asks(),
                _ => self.connect(),
            }
            if let Some(line) = &mut self.line
                && line.turn().is_none()
            {
                self.line = None;
            }
        }
        Some(self.ends.since(self.clock.now()))
    }
}

#[test]
fn what_clients_are_told_is_one_serial_order() {
    let mut cluster = Cluster::new(1, NetSettings::default(), 3, 2);
    cluster.load(6);
    cluster.sim.pass(Nanos::from_secs(1));
    let (done, others) = cluster.finish();
    assert!(done > 100 && others < 50, "{done} {others}");
}

/// Twice the master is cut off from all others, and comes back; all that was acknowledged is in the log, nothing
/// that was late, and every read is of that order.
#[test]
fn a_master_that_is_cut_off_and_comes_back_loses_nothing() {
    for seed in 0..campaign(1, 50) {
        let mut cluster = Cluster::new(seed, NetSettings::default(), 3, 2);
        cluster.load(6);
        let mut unserved = Nanos::ZERO;
        for _ in 0..2 {
            let span = cluster.sim.with(|world| world.random.random_range(100..1000));
            cluster.sim.pass(Nanos::from_millis(700));
            let (terms, begin) = (cluster.terms(), cluster.sim.now());
            let master = cluster.nodes[cluster.master().expect("a master")];
            let others = cluster.others(master);
            let network = cluster.sim.with(|world| world.network.clone());
            others.iter().for_each(|other| network.cut(master, *other));
            let sim = cluster.sim.clone();
            sim.wait_for("another master", || (cluster.terms() > terms).then_some(()));
            unserved = unserved.max(sim.now().since(begin));
            sim.pass(Nanos::from_millis(span));
            others.iter().for_each(|other| network.heal(master, *other));
        }
        let (done, others) = cluster.finish();
        assert!(done > 50, "seed {seed}: {done} done, {others} others");
        assert!(unserved < Nanos::from_secs(2), "seed {seed}: {unserved}");
    }
}

/// Nodes are killed one after the other, and begin anew with empty stores; balancers, too.
#[test]
fn nodes_that_begin_anew_lose_nothing() {
    for seed in 0..campaign(1, 50) {
        let mut cluster = Cluster::new(seed, NetSettings::default(), 3, 2);
        cluster.load(6);
        for round in 0..2 {
            cluster.sim.pass(Nanos::from_millis(400));
            let node = cluster.sim.with(|world| world.random.random_range(0..3));
            match round % 2 {
                0 => cluster.sim.kill(cluster.nodes[node as usize]),
                _ => cluster.sim.switch_off(cluster.nodes[node as usize]),
            }
            let balancer = node % 2;
            cluster.sim.kill(cluster.balancers[balancer as usize]);
            cluster.sim.pass(Nanos::from_millis(300));
            cluster.start(node);
            cluster.balance(balancer);
        }
        let (done, others) = cluster.finish();
        assert!(done > 20, "seed {seed}: {done} done, {others} others");
    }
}

/// Small buffers and small pieces: each connection is full most of the time.
#[test]
fn full_buffers_between_nodes_lose_nothing() {
    let settings = NetSettings {
        delay_max: Nanos::from_millis(2),
        piece_max: 100,
        buffer: 600,
    };
    let mut cluster = Cluster::new(3, settings, 3, 1);
    cluster.load(4);
    cluster.sim.pass(Nanos::from_millis(1500));
    let (done, others) = cluster.finish();
    assert!(done > 20, "{done} done, {others} others");
}

/// One seed is one run, to the last step.
#[test]
fn a_run_follows_from_its_seed() {
    let run = |seed| {
        let mut cluster = Cluster::new(seed, NetSettings::default(), 3, 1);
        cluster.load(3);
        cluster.sim.pass(Nanos::from_millis(300));
        (cluster.sim.digest(), cluster.finish())
    };
    let first = run(5);
    assert_eq!(first, run(5));
    assert_ne!(first.0, run(6).0);
}
