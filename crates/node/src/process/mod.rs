//! The event loop of a node: its state machine and all of its sockets, without a blocking call. The loop of a balancer
//! ([`balance`]) is made of the same parts.

mod access;
pub mod balance;
mod claim;
mod clients;
mod incoming;
mod lane;
mod listening;
mod log;
mod peers;
mod reports;
mod requests;
mod telling;
mod temporal;
mod way;

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use mio::Token;
use punctual_federation::action::{Action, Ask, Event, Ticket};
use punctual_federation::entry::Entry;
use punctual_federation::ids::NodeId;
use punctual_federation::liveness::HEARTBEAT;
use punctual_federation::message::{FOUND_BYTES_MAX, Message};
use punctual_federation::node::{Node, Setup};
use punctual_federation::replica::Replica;
use punctual_logs::frame;
use punctual_os::Os;
use punctual_server::door::Door;
use punctual_server::listening::ServeError;
use punctual_server::metrics::PublishedFigures;
use punctual_server::net::{self, Net};
use punctual_server::stream::Ready;
use punctual_server::tasks::Tasks;
use punctual_store::engine::Engine;
use punctual_units::{Nanos, Time};

pub use self::access::{Access, PeerAddress};
use self::claim::ProcessorClaim;
use self::clients::Clients;
use self::lane::{RequestLane, TURN_MAX};
pub use self::listening::{Listening, NodeError};
use self::log::LogLinks;
use self::peers::{PeerOut, Peers, Trouble};
use self::reports::LastReport;
use self::requests::Requests;
use self::temporal::TemporalObjects;
use crate::bound::{Bound, Outcome};
use crate::figures::Figures;
use crate::seen::{TimedNotice, What};
use crate::stores::Stores;
use crate::wire::{Packet, Readings};

/// The first wait before a connection that failed is tried again; each next one is twice as long, up to [`RETRY_MAX`].
pub const RETRY_FIRST: Nanos = Nanos::from_millis(10);
/// The longest wait before a connection that failed is tried again.
pub const RETRY_MAX: Nanos = Nanos::from_millis(250);
/// The most clients at a time.
pub const CLIENTS_MAX: usize = 1024;
/// The most connections of peers and balancers at a time: two for each node that a federation may have.
pub const PEERS_MAX: usize = 128;
/// Time for which a node that has left stays: requests sent before its last heartbeat arrived are refused, not lost.
pub const LEAVES_AFTER: Nanos = Nanos(2 * HEARTBEAT.0);
/// Interval between looks for stalled connections, and the longest wait for events.
const LOOK_EVERY: Nanos = Nanos::from_millis(500);
/// First ticket of watches of the log, above those of the state machine's questions.
const WATCHES: Ticket = 1 << 63;
/// The most bytes of answers that wait for one balancer's socket: four of the longest. The sum for all balancers has
/// the same bound as that for all clients. An answer that does not fit is dropped, see [`clients::REPLIES_MAX`].
const FRONT_REPLIES_MAX: usize = 4 * FOUND_BYTES_MAX;
/// A balancer gets no further heartbeats while this many bytes wait for its socket.
const BEATS_MAX: usize = 1 << 20;
/// Interval of reports on the progress of a copy that the node receives.
const COPY_TOLD_EVERY: Nanos = Nanos::from_secs(5);
/// Pause after a refused watch: the state machine reads the log meanwhile, or asks for a copy.
const WATCH_AGAIN: Nanos = Nanos::from_millis(50);

/// Ticket of requests to create objects that clients have set; clients' tickets begin at 1.
const MAKER: u64 = 0;
/// Ticket of requests to remove expired records.
const SWEEPER: u64 = u64::MAX;
/// Time limit for the master to remove some expired records.
const SWEEP_WITHIN: Nanos = Nanos::from_secs(1);

const PEERS: Token = Token(net::FIRST);
const ASK: Token = Token(net::FIRST + 1);
const WATCH: Token = Token(net::FIRST + 2);
/// First token of connections that clients have dialled.
const FIRST_CLIENT: usize = 1 << 16;
/// First token of connections that peers and balancers have dialled.
const FIRST_PEER: usize = 1 << 32;
/// First token of connections to peers; the peer's number, of 32 bits, is added.
const OUT: usize = 1 << 33;

/// A command to the node from the process that started it.
#[derive(Clone, Debug)]
pub enum NodeControl {
    /// Addresses of peers, by node number; replaces known ones.
    Peers(BTreeMap<NodeId, PeerAddress>),
    /// Take no new requests (`federation::action::Event::Pause`).
    Pause,
    /// Take requests again after a pause.
    Resume,
    /// Finish the requests that the node has, then end.
    Leave,
    /// End without finishing requests.
    End,
}

/// The control law that sets the backlog's bound, and where its decisions are left.
struct BoundControl {
    bound: Bound,
    /// CPU time spent on closing periods so far.
    cpu: Nanos,
    outcome: Arc<Mutex<Outcome>>,
}

/// The event loop of a node, which its thread turns, or the world of a test.
pub struct NodeLoop<E: Engine, O: Os, T: FnMut(TimedNotice)> {
    /// Before `process`, whose drop waits for the store's threads: clients learn of the end without waiting for them.
    door: Door,
    process: Process<E, O, T>,
    claim: ProcessorClaim,
    /// Sockets that are ready, in a turn.
    ready: Vec<(Token, Ready)>,
    looked: Time,
}

struct Process<E: Engine, O: Os, T: FnMut(TimedNotice)> {
    net: Box<dyn Net>,
    access: Access,
    clients: Clients,
    peers: Peers,
    log: LogLinks,
    setup: Setup,
    node: Node,
    os: O,
    stores: Stores<O>,
    requests: Requests,
    /// Events but the requests in `lane`, which come after them.
    events: VecDeque<Event>,
    lane: RequestLane,
    control: Receiver<NodeControl>,
    last_report: LastReport,
    /// When the node, which has left, ends.
    left: Option<Time>,
    /// The loop ends with this result once it is set.
    ends: Option<Result<(), NodeError>>,
    scratch: Vec<u8>,
    /// Used for readings of temporal objects only, which are in memory; all other calls of the store are left to its
    /// threads.
    replica: Arc<Replica<E, O>>,
    objects: TemporalObjects,
    /// The entry that the store is applying.
    applying: Option<Arc<Entry>>,
    started: Time,
    page: PublishedFigures<Figures>,
    /// The control law that sets the backlog's bound, if there is one.
    turned: Option<BoundControl>,
    /// Figures of tasks in this process.
    tasks: Option<Arc<Tasks>>,
    tell: T,
}

impl<E: Engine + 'static, O: Os, T: FnMut(TimedNotice)> NodeLoop<E, O, T> {
    /// Time until the next turn, unless an event comes before.
    pub fn wait(&self) -> Nanos {
        match self.process.ends.is_some() {
            true => Nanos::ZERO,
            false => self.process.wait(&self.door),
        }
    }

    /// Waits at most this long for events, and goes on as far as it can at present. Returns the result of the node once
    /// it has ended.
    pub fn turn(&mut self, wait: Nanos) -> Option<Result<(), NodeError>> {
        let (process, door) = (&mut self.process, &mut self.door);
        if let Some(end) = process.ends.take() {
            process.leave_decisions();
            // Clients get the answers that are there.
            door.close(&mut *process.net);
            door.serve(process);
            door.say_goodbye();
            process.peers.incoming.say_goodbye();
            return Some(end);
        }
        if let Err(error) = process.net.poll(&mut self.ready, wait) {
            return Some(Err(ServeError::of("the event loop")(error).into()));
        }
        process.obey();
        for (token, ready) in self.ready.drain(..) {
            match token {
                PEERS => process.accept(),
                ASK => process.log.ask.ready(ready),
                WATCH => process.log.watch.ready(ready),
                Token(out) if out >= OUT => {
                    if let Some(peer) = process.peers.outgoing.get_mut(&NodeId((out - OUT) as u32)) {
                        peer.way.ready(ready);
                    }
                }
                token if token.0 >= FIRST_PEER => process.peers.incoming.ready(token, ready),
                token => door.ready(token, ready),
            }
        }
        for place in process.peers.incoming.due() {
            process.peer_turn(place);
        }
        process.serve(door);
        let now = process.os.now();
        if now.since(self.looked) >= LOOK_EVERY {
            self.looked = now;
            self.claim.review(&process.os, now);
            door.look(process, now);
            process.look(now);
            process.publish(&door.state(now), now);
        }
        process.carry_on();
        None
    }
}

impl<E: Engine + 'static, O: Os, T: FnMut(TimedNotice)> Process<E, O, T> {
    /// Time until the next action, unless an event comes before.
    fn wait(&self, door: &Door) -> Nanos {
        if !self.lane.is_empty() || !self.peers.incoming.again.is_empty() || door.has_more() || self.clients.has_news()
        {
            return Nanos::ZERO;
        }
        let now = self.os.now();
        let links = [self.log.ask.next_due(), self.log.watch.next_due()];
        let peers = self.peers.outgoing.values().map(|peer| peer.way.next_due());
        let bound = self.turned.as_ref().map_or(Time::MAX, |turned| turned.bound.due());
        let local = [self.objects.maker.next_due(), self.settle_by(), bound];
        let due = links.into_iter().chain(local).chain(peers).chain(self.left);
        let due = due.min().unwrap_or(Time::MAX);
        due.min(self.node.wake_at(now)).since(now).min(LOOK_EVERY)
    }

    /// Passes all events to the state machine, carries out its actions, and sends what waits.
    fn carry_on(&mut self) {
        let now = self.os.now();
        self.turn_bound(now);
        self.set_own(now);
        if let Some(silent) = self.log.ask.connect(&mut *self.net, now) {
            self.note(silent);
        }
        _ = self.log.watch.connect(&mut *self.net, now);
        let mut troubles = Vec::new();
        for (node, peer) in &mut self.peers.outgoing {
            let trouble = peer.connect(&mut *self.net, &self.access, &self.peers.hello, now);
            troubles.extend(trouble.map(|trouble| (*node, trouble)));
        }
        let mut turn = TURN_MAX;
        loop {
            while let Some(done) = self.stores.done() {
                self.worked(&done);
                match done.result {
                    Ok(event) => self.events.push_back(event),
                    Err(failed) => _ = self.ends.get_or_insert(Err(failed.into())),
                }
            }
            while self.log.ask.turn(&mut self.scratch, &mut self.events) {}
            while self.log.watch.turn(&mut self.scratch, &mut self.events) {}
            let now = self.os.now();
            if self.node.wake_at(now) <= now {
                self.events.push_back(Event::Wake);
            }
            if self.left.is_some_and(|at| at <= now) {
                self.ends.get_or_insert(Ok(()));
            }
            self.make(now);
            if self.events.is_empty() {
                let asked = std::iter::from_fn(|| self.lane.next(now)).take(turn);
                self.events
                    .extend(asked.map(|(ticket, request)| Event::Request(ticket, request)));
                turn -= self.events.len();
            }
            if self.events.is_empty() || self.ends.is_some() {
                break;
            }
            while let Some(event) = self.events.pop_front() {
                self.step(event);
            }
        }
        let now = self.os.now();
        let mut more = Vec::new();
        for (place, front) in self.peers.incoming.iter_mut() {
            // If the connection has ended, reading shows that.
            drop(front.flush(now));
            if front.has_more() {
                more.push(place); // it was not read while its answers waited
            }
        }
        self.peers.incoming.again.extend(more);
        if !self.objects.waiting.is_empty() {
            self.settle(now);
        }
        let (sensing, os) = (&mut self.objects.sensing, &self.os);
        for (node, peer) in &mut self.peers.outgoing {
            let version = peer.way.version;
            let mut more = |out: &mut Vec<u8>| {
                if let Some((stamp, taken)) = sensing.tells(*node, os.since_boot()) {
                    frame::write(out, version, &Packet::Taken(stamp, taken));
                } else if let Some(together) = sensing.reports(*node, now) {
                    frame::write(out, version, &Readings(together));
                } else {
                    return false;
                }
                true
            };
            let (trouble, written) = peer.turn(&mut self.scratch, now, &mut more);
            self.peers.bytes.written += written;
            if let Some(member) = peer.taken.take() {
                self.events.push_back(Event::Message(*node, Message::NameTaken(member)));
            }
            troubles.extend(trouble.map(|trouble| (*node, trouble)));
        }
        for (node, trouble) in troubles {
            self.note(match trouble {
                Trouble::TooLong(len) => format!(
                    "a copy for node {node} has {len} bytes, more than one message: have the log keep more entries"
                ),
                Trouble::Refused(why) => format!("the way to node {node} is closed: {why}"),
            });
        }
        self.log.watches += 1;
        let (watched, applied) = (self.log.watched, self.node.applied());
        if self.log.watch_at <= now && self.log.watch.watch(self.log.watches, watched, applied) {
            while self.log.watch.turn(&mut self.scratch, &mut self.events) {}
        }
    }

    fn step(&mut self, event: Event) {
        match &event {
            Event::Watched(entries) => {
                let last = entries.last().map(|(revision, _)| *revision);
                self.log.watched = self.log.watched.max(last.unwrap_or_default());
            }
            Event::Opened(log) => self.log.watched = self.log.watched.min(log.last),
            Event::Log(ticket, _) if *ticket >= WATCHES => {
                self.log.watch_at = self.os.now() + WATCH_AGAIN;
                return;
            }
            Event::Message(_, Message::Answered(id, answer)) => {
                let now = self.os.now();
                if let Some(refused) = self.objects.maker.answered(*id, answer, now) {
                    if let Some((key, refusal)) = refused {
                        self.unmade(&key, &refusal.to_string());
                    }
                    return;
                }
            }
            _ => {}
        }
        let now = self.os.now();
        let applies = matches!(event, Event::Applied(_) | Event::Installed(..));
        self.tell_changes(&event);
        let actions = self.node.step(event, now);
        if applies {
            self.objects.sensing.applied(&self.replica, now, self.os.since_boot());
        }
        for action in actions {
            self.act(action, now);
        }
        self.observe(now);
    }

    fn act(&mut self, action: Action, now: Time) {
        self.trace(&action, now);
        match action {
            Action::Send(to, message) => {
                if let Message::Heartbeat(_) = message {
                    self.objects.sensing.beats(to);
                }
                if let Message::NameTaken(member) = message {
                    self.tell_namesake(member, &message);
                }
                if let Some(peer) = self.peers.outgoing.get_mut(&to) {
                    peer.outgoing.push(message, now);
                }
            }
            Action::Reply(ticket, reply) => self.reply(ticket, reply, now),
            Action::Tell(heartbeat) => self.tell_fronts(heartbeat),
            Action::Log(ticket, ask) => {
                if let Ask::Append { last, .. } = &ask
                    && !self.node.is_master()
                {
                    self.seen(What::CaughtUp(*last));
                }
                self.log.ask.ask(ticket, &ask, &mut self.events);
            }
            Action::Left => {
                self.seen(What::Left);
                self.left.get_or_insert(now + LEAVES_AFTER);
            }
            Action::Stop(stop) => _ = self.ends.get_or_insert(Err(stop.into())),
            of_store => {
                match &of_store {
                    Action::Apply(_, entry) => self.applying = Some(Arc::clone(entry)),
                    Action::Install(image) => self.tell_of_copy(image, now),
                    _ => {}
                }
                self.stores.take(of_store);
            }
        }
    }

    fn obey(&mut self) {
        while let Ok(control) = self.control.try_recv() {
            match control {
                NodeControl::Peers(addresses) => {
                    for (node, address) in addresses {
                        if node != self.setup.me.node {
                            let token = Token(OUT + node.0 as usize);
                            let new = || PeerOut::new(address.clone(), token);
                            self.peers.outgoing.entry(node).or_insert_with(new).moves(&address);
                        }
                    }
                }
                NodeControl::Pause => self.events.push_back(Event::Pause),
                NodeControl::Resume => self.events.push_back(Event::Resume),
                NodeControl::Leave => self.events.push_back(Event::Leave),
                NodeControl::End => self.ends = Some(Ok(())),
            }
        }
    }

    /// Ends stalled connections, and does other work of every `LOOK_EVERY`.
    fn look(&mut self, now: Time) {
        let stalled = self.peers.incoming.iter_mut().filter(|(_, peer)| peer.is_stalled(now));
        let stalled: Vec<usize> = stalled.map(|(place, _)| place).collect();
        for place in stalled {
            self.peers.incoming.remove(place);
        }
        self.objects.sensing.look(&self.replica);
        self.sweep();
        // A listener that had no descriptors sends no further event.
        self.accept();
    }
}
