//! The event loop of a balancer: a [`Front`] between clients of Redis and nodes.
//!
//! A balancer keeps no state that another one would need: its knowledge of nodes is from the last heartbeats, and a
//! client that comes back through another balancer brings its session along.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use mio::Token;
use punctual_federation::balancer::Balancer;
use punctual_federation::front::{Front, FrontAction, FrontEvent};
use punctual_federation::ids::{FederationId, NodeId};
use punctual_federation::message::{self, Answer, Message, Reason, Reply, Report};
use punctual_os::Os;
use punctual_server::commands::Verb;
use punctual_server::door::{Asker, Backend, Door, DoorState};
use punctual_server::listening::{Listening, ServeError};
use punctual_server::metrics::{Page, PublishedFigures};
use punctual_server::net::{Net, Waker};
use punctual_server::resp::{Resp, Writer};
use punctual_server::session::late;
use punctual_server::stream::Ready;
use punctual_server::subscribers::KeyNotice;
use punctual_server::work::{Handle, JobReply, Work};
use punctual_units::{Nanos, Time};

use super::clients::{self, Clients, READINGS_MAX, is_run};
use super::lane::{RequestLane, TURN_MAX};
use super::way::{LinkEnd, Way};
use super::{Access, LOOK_EVERY, NodeError, OUT, PeerAddress};
use crate::changes::{self, StreamPosition};
use crate::figures::BalancerFigures;
use crate::spans::{SpanStage, Spans};
use crate::wire::{FRAME_BYTES_MAX, Packet};

/// A node is sent no further request while this many bytes wait for its socket.
const UNSENT_MAX: usize = 4 << 20;
/// The longest wait of a subscription until changes can be reported, whatever its client's deadline.
const HEARING_MAX: Nanos = Nanos::from_secs(1);

/// The bound socket and the settings of a balancer that does not run yet.
#[derive(Debug)]
pub struct Balancing {
    clients: Listening,
    access: Access,
    page: Option<Page>,
}

impl Balancing {
    /// Binds an address for clients; port 0 takes a free one. `access` has the users, and the protocol between nodes.
    ///
    /// # Errors
    /// Any [`NodeError`], as for a port in use.
    pub fn bind(clients: SocketAddr, access: Access) -> Result<Balancing, NodeError> {
        Balancing::on(None, clients, access)
    }

    /// As [`bind`](Balancing::bind), on a network of the caller's in place of the system's.
    ///
    /// # Errors
    /// Those of [`bind`](Balancing::bind).
    pub fn on(net: Option<Box<dyn Net>>, clients: SocketAddr, access: Access) -> Result<Balancing, NodeError> {
        let clients = access.listen(net, clients)?;
        Ok(Balancing {
            clients,
            access,
            page: None,
        })
    }

    /// Adds a page of figures for Prometheus.
    pub fn page(self, page: Page) -> Balancing {
        Balancing {
            page: Some(page),
            ..self
        }
    }

    /// The address for clients, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.clients.address()
    }

    /// Has the loop look whether it is to end.
    pub fn waker(&self) -> Waker {
        self.clients.waker()
    }

    /// Passes requests on until `ends`, to the nodes at the newest addresses of each number: those at which they listen
    /// for peers. `balancer` distributes queries; `draw` is a random number. `note` gets messages for the operator, and
    /// must not wait.
    ///
    /// # Errors
    /// The event loop, or a thread of the balancer, has failed.
    pub fn run<O: Os>(
        self,
        nodes: Receiver<BTreeMap<u32, PeerAddress>>,
        balancer: Box<dyn Balancer>,
        draw: u64,
        os: O,
        ends: &AtomicBool,
        note: impl FnMut(String),
    ) -> Result<(), NodeError> {
        let mut turned = self.event_loop(nodes, balancer, draw, os, note)?;
        while !ends.load(Ordering::SeqCst) {
            turned.turn(turned.wait())?;
        }
        turned.door.say_goodbye();
        Ok(())
    }

    /// Makes the event loop, before its first turn; as [`run`](Balancing::run).
    ///
    /// # Errors
    /// A thread of the balancer could not begin.
    pub fn event_loop<O: Os, N: FnMut(String)>(
        self,
        nodes: Receiver<BTreeMap<u32, PeerAddress>>,
        balancer: Box<dyn Balancer>,
        draw: u64,
        os: O,
        note: N,
    ) -> Result<BalancerLoop<O, N>, NodeError> {
        let started = os.now();
        let (door, net) = clients::open(self.clients, &self.access, &os)?;
        let page = PublishedFigures::serve(self.page, BalancerFigures::metrics);
        let process = Process {
            net,
            clients: Clients::new(draw),
            access: self.access,
            front: Front::new(balancer, draw.rotate_left(32)),
            nodes,
            ways: BTreeMap::new(),
            named: BTreeMap::new(),
            federation: None,
            events: VecDeque::new(),
            lane: RequestLane::default(),
            told_by: None,
            heard: StreamPosition::default(),
            is_told: false,
            parked: Vec::new(),
            spans: Spans::default(),
            started,
            page: page.map_err(ServeError::of("the thread for figures"))?,
            os,
            scratch: Vec::new(),
            note,
        };
        process.publish(&door.state(started), started);
        Ok(BalancerLoop {
            process,
            door,
            ready: Vec::new(),
            looked: started,
        })
    }
}

/// The event loop of a balancer, which its thread turns, or the world of a test.
pub struct BalancerLoop<O: Os, N: FnMut(String)> {
    door: Door,
    process: Process<O, N>,
    /// Sockets that are ready, in a turn.
    ready: Vec<(Token, Ready)>,
    looked: Time,
}

impl<O: Os, N: FnMut(String)> BalancerLoop<O, N> {
    /// Time until the next turn, unless an event comes before.
    pub fn wait(&self) -> Nanos {
        self.process.wait(&self.door)
    }

    /// Waits at most this long for events, and goes on as far as it can at present.
    ///
    /// # Errors
    /// The event loop has failed.
    pub fn turn(&mut self, wait: Nanos) -> Result<(), NodeError> {
        let (process, door) = (&mut self.process, &mut self.door);
        let polled = process.net.poll(&mut self.ready, wait);
        polled.map_err(ServeError::of("the event loop"))?;
        let now = process.os.now();
        for (token, ready) in self.ready.drain(..) {
            match token {
                Token(out) if out >= OUT => {
                    if let Some(node) = process.ways.get_mut(&((out - OUT) as u32)) {
                        node.way.ready(ready);
                    }
                }
                token => door.ready(token, ready),
            }
        }
        process.find();
        process.hear();
        process.serve(door);
        process.carry_on();
        // Sends the answers.
        process.serve(door);
        door.accept(&mut *process.net, now);
        if now.since(self.looked) >= LOOK_EVERY {
            self.looked = now;
            door.look(process, now);
            process.publish(&door.state(now), now);
        }
        Ok(())
    }
}

/// The connection to a node: requests go out on it, answers come back.
struct NodeWay {
    way: Way,
    /// The node at its other end, once it has sent its name.
    node: Option<NodeId>,
    /// The node's state and load, as last received.
    said: Report,
}

impl NodeWay {
    fn new(address: PeerAddress, token: Token) -> NodeWay {
        NodeWay {
            way: Way::new(address, token, FRAME_BYTES_MAX, true),
            node: None,
            said: Report::default(),
        }
    }

    /// Reads all packets that have arrived.
    fn turn(&mut self, scratch: &mut Vec<u8>, now: Time, mut take: impl FnMut(Packet)) -> Result<(), LinkEnd> {
        while self.way.turn(scratch, now, &mut take)? {}
        Ok(())
    }
}

struct Process<O: Os, N: FnMut(String)> {
    net: Box<dyn Net>,
    clients: Clients,
    access: Access,
    front: Front,
    nodes: Receiver<BTreeMap<u32, PeerAddress>>,
    /// Connections by the numbers of their addresses, which may differ from the nodes' own numbers.
    ways: BTreeMap<u32, NodeWay>,
    /// The number in `ways` of each node that has sent its name.
    named: BTreeMap<NodeId, u32>,
    /// Federation of the first node that sent its name.
    federation: Option<FederationId>,
    /// Events but the requests in `lane`, which come after them.
    events: VecDeque<FrontEvent>,
    lane: RequestLane,
    /// The node that was asked to report changes of keys, by its number in `ways`; and the position in its stream of
    /// changes.
    told_by: Option<u32>,
    heard: StreamPosition,
    /// Whether that node has begun to report.
    is_told: bool,
    /// Clients' subscriptions that wait until a node reports changes, and the ends of their waits.
    parked: Vec<(Handle, Resp, Time)>,
    spans: Spans,
    started: Time,
    page: PublishedFigures<BalancerFigures>,
    os: O,
    scratch: Vec<u8>,
    note: N,
}

impl<O: Os, N: FnMut(String)> Backend for Process<O, N> {
    const RUN_MAX: usize = READINGS_MAX;

    fn joins(first: Verb, next: Verb) -> bool {
        is_run(first, next)
    }

    fn now(&self) -> Time {
        self.os.now()
    }

    fn take(&mut self, work: Work, mut asker: Asker<'_>) -> bool {
        let (handle, session) = (asker.handle(), asker.session);
        if matches!(work, Work::Listen) && !self.is_told {
            let wait = session.time_left.unwrap_or(HEARING_MAX).min(HEARING_MAX);
            self.parked.push((handle, session.version, asker.now + wait));
            return true;
        }
        self.clients.take(work, &mut asker).unwrap_or_else(|inquiry| {
            // The balancer finds the master for each transaction, so it replies with its own address.
            inquiry.answer(asker.here(), &[], &mut asker.out());
            false
        })
    }

    fn next_done(&mut self, room: usize) -> Option<JobReply> {
        self.clients.next_done(room, self.os.now())
    }

    fn copies(&mut self, id: u64, now: Time) -> usize {
        let seen = self.clients.of(id).seen();
        let nodes = self.front.nodes(now);
        // The master is one of the nodes counted, so one is subtracted.
        let have = nodes.filter(|(heartbeat, _)| heartbeat.applied >= seen).count();
        have.saturating_sub(1)
    }

    fn info(&mut self, door: &DoorState, sections: &[String], now: Time) -> String {
        self.figures(door, now).info(sections)
    }

    fn resets(&mut self, id: u64) {
        self.clients.resets(id);
    }

    fn ends(&mut self, id: u64) -> bool {
        self.clients.ends(id);
        self.parked.retain(|(connection, ..)| connection.id != id);
        false
    }
}

impl<O: Os, N: FnMut(String)> Process<O, N> {
    /// Time until the next action, unless an event comes before.
    fn wait(&self, door: &Door) -> Nanos {
        if door.has_more() || self.clients.has_news() || !self.events.is_empty() || !self.lane.is_empty() {
            return Nanos::ZERO;
        }
        let ways = self.ways.values().map(|node| node.way.next_due());
        let parked = self.parked.iter().map(|(.., until)| *until).min();
        let due = ways.min().unwrap_or(Time::MAX).min(self.front.wake_at());
        let due = due.min(parked.unwrap_or(Time::MAX));
        due.since(self.os.now()).min(LOOK_EVERY)
    }

    /// Takes new addresses of nodes. A connection goes on while its node's address stays the same.
    fn find(&mut self) {
        while let Ok(found) = self.nodes.try_recv() {
            for (number, address) in found {
                if self.ways.get(&number).is_some_and(|node| node.way.address == address) {
                    continue;
                }
                self.lose(number, &LinkEnd::Ended);
                let token = Token(OUT + number as usize);
                self.ways.insert(number, NodeWay::new(address, token));
            }
        }
    }

    /// Passes all events to the state machine, carries out its actions, and sends what waits.
    fn carry_on(&mut self) {
        let now = self.os.now();
        self.hear_changes(now);
        for node in self.ways.values_mut() {
            let refused = node.way.connect(&mut *self.net, &self.access, &Packet::Front, now);
            if let Some(why) = refused {
                (self.note)(format!(
                    "the way to the node at {} is closed: {why}",
                    node.way.address.socket
                ));
            }
        }
        if self.front.wake_at() <= now {
            self.events.push_back(FrontEvent::Wake);
        }
        while let Some(event) = self.events.pop_front() {
            self.step(event);
        }
        for _ in 0..TURN_MAX {
            let Some((ticket, request)) = self.lane.next(self.os.now()) else {
                break;
            };
            self.step(FrontEvent::Request(ticket, request));
        }
        let flushed = self.ways.iter_mut().filter_map(|(number, node)| {
            let error = node.way.link.as_mut()?.flush().err()?;
            Some((*number, error))
        });
        for (number, error) in flushed.collect::<Vec<_>>() {
            self.lose(number, &error.into());
        }
    }

    fn step(&mut self, event: FrontEvent) {
        let now = self.os.now();
        for action in self.front.step(event, now) {
            self.act(action, now);
        }
    }

    /// Reads the packets of all nodes.
    fn hear(&mut self) {
        let now = self.os.now();
        for number in self.ways.keys().copied().collect::<Vec<_>>() {
            let Some(node) = self.ways.get_mut(&number) else {
                return;
            };
            let mut packets = Vec::new();
            let turn = node.turn(&mut self.scratch, now, |packet| packets.push(packet));
            let heard = packets.into_iter().try_for_each(|packet| self.heard(number, packet));
            if let Err(gone) = heard.and(turn) {
                self.lose(number, &gone);
            }
        }
    }

    fn heard(&mut self, number: u32, packet: Packet) -> Result<(), LinkEnd> {
        let Some(node) = self.ways.get_mut(&number) else {
            return Ok(());
        };
        match (packet, node.node) {
            (Packet::Hello { federation, from, .. }, None) => {
                let ours = *self.federation.get_or_insert(federation);
                if federation != ours {
                    let theirs = federation;
                    return Err(LinkEnd::OtherFederation { ours, theirs });
                }
                node.node = Some(from.node);
                self.named.insert(from.node, number);
            }
            (Packet::Message(Message::Heartbeat(heartbeat)), Some(_)) => {
                node.said = heartbeat.said;
                self.events.push_back(FrontEvent::Heartbeat(heartbeat));
            }
            (Packet::Reply(ticket, reply), Some(from)) => {
                node.said = reply.said;
                self.events.push_back(FrontEvent::Reply(from, ticket, reply));
            }
            (Packet::Changed(revision, keys, names), Some(_)) if self.told_by == Some(number) => {
                let missed = match std::mem::replace(&mut self.is_told, true) {
                    true => self.heard.entry(revision),
                    false => Some(self.heard.begins(revision)),
                };
                if let Some(missed) = missed {
                    let missed = (missed > 0).then_some(KeyNotice::Missed(missed));
                    let told = missed.into_iter().chain(changes::told(keys, names));
                    self.clients.told.extend(told);
                }
            }
            // A newer node may send more kinds of packets.
            _ => {}
        }
        Ok(())
    }

    /// Forgets a connection that has ended, and reports the reason once.
    fn lose(&mut self, number: u32, gone: &LinkEnd) {
        let now = self.os.now();
        let Some(node) = self.ways.get_mut(&number) else {
            return;
        };
        if self.told_by == Some(number) {
            (self.told_by, self.is_told) = (None, false);
        }
        let (reported, name) = (node.way.ended(gone, now), node.node.take());
        if let Some(why) = reported {
            (self.note)(format!("the node at {}: {why}", node.way.address.socket));
        }
        // Of two connections to one node the later one counts.
        if let Some(name) = name.filter(|name| self.named.get(name) == Some(&number)) {
            self.named.remove(&name);
            self.events.push_back(FrontEvent::Reset(name));
        }
    }

    fn act(&mut self, action: FrontAction, now: Time) {
        match action {
            FrontAction::Send(to, ticket, request) => {
                let id = request.id;
                if let Some(asked) = self.spans.ticket(id) {
                    self.spans.moves(asked, SpanStage::Network, now);
                }
                let node = self.named.get(&to).and_then(|number| self.ways.get_mut(number));
                let lost = (false, Report::default(), Reason::NoMaster);
                let (sent, said, reason) = node.map_or(lost, |node| {
                    let sent = node.way.push(UNSENT_MAX, || Packet::Request(ticket, request));
                    (sent, node.said, Reason::Backlog)
                });
                if !sent {
                    // The request was not sent, so it was not executed.
                    let answer = Answer::late(reason, None);
                    self.events
                        .push_back(FrontEvent::Reply(to, ticket, Reply { id, answer, said }));
                }
            }
            FrontAction::Answer(ticket, _, answer) => {
                self.spans.ends(ticket, &answer, now);
                self.clients.answered(ticket, answer);
            }
        }
    }

    /// Asks a node to report changes once a client subscribes, and ends the wait of subscriptions.
    fn hear_changes(&mut self, now: Time) {
        let wants = self.clients.hears || !self.parked.is_empty();
        if wants && self.told_by.is_none() {
            self.told_by = self.named.values().next().copied();
            let node = self.told_by.and_then(|number| self.ways.get_mut(&number));
            node.map(|node| node.way.push(usize::MAX, || Packet::Hear));
        }
        let is_told = self.is_told;
        let ended = self.parked.extract_if(.., |(.., until)| is_told || *until <= now);
        self.clients.done.extend(ended.map(|(connection, version, _)| {
            let mut reply = Vec::new();
            if !is_told {
                let reason = self.told_by.map_or(Reason::NoMaster, |_| Reason::Backlog);
                Writer::new(&mut reply, version).error(&late(&reason.to_string(), Nanos::from_millis(50)));
            }
            JobReply::of(connection, reply)
        }));
    }

    /// Reads, answers and sends whatever clients' connections can at present.
    fn serve(&mut self, door: &mut Door) {
        self.hear_changes(self.os.now());
        door.tell(self.clients.told.drain(..));
        door.serve(self);
        self.clients.hears = door.hears();
        let now = self.os.now();
        for (ticket, request, arrived) in std::mem::take(&mut self.clients.asks) {
            self.spans.begins(ticket, &request, SpanStage::Balancer, arrived);
            match &request.work {
                message::Work::Sample(_) => self.events.push_back(FrontEvent::Request(ticket, request)),
                _ => self.lane.push(ticket, request, now),
            }
        }
    }

    /// The figures for INFO and for the page.
    fn figures(&self, door: &DoorState, now: Time) -> BalancerFigures {
        BalancerFigures {
            federation: self.federation,
            page: self.page.address,
            at: now,
            uptime: now.since(self.started),
            master: self.front.master(),
            nodes: self.front.nodes(now).collect(),
            under_way: self.front.under_way(),
            account: self.spans.account.clone(),
            door: *door,
        }
    }

    /// Leaves figures for the page's thread.
    fn publish(&self, door: &DoorState, now: Time) {
        self.page.publish(|| self.figures(door, now));
    }
}
