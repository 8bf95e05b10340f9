//! The event loop of a node: its state machine, all of its sockets, and nothing that waits.

mod clients;
mod link;
mod log;
mod peers;
mod telling;
mod temporal;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use punctual_federation::action::{Action, Ask, Event, Ticket};
use punctual_federation::ids::{NodeId, Revision};
use punctual_federation::message::{Message, Reply, Request, Standing, Stop};
use punctual_federation::node::{Node, Setup};
use punctual_federation::replica::Replica;
use punctual_os::Os;
use punctual_server::metrics::Page;
use punctual_store::StoreError;
use punctual_store::engine::Engine;
use punctual_units::{Nanos, Time};

use self::clients::{Client, Wanted};
use self::log::LogLink;
use self::peers::{PeerGone, PeerIn, PeerOut};
use self::temporal::{Here, Waiting};
use crate::figures::{Bytes, Figures, Tally};
use crate::making::Maker;
use crate::seen::{Seen, What};
use crate::sensing::{Sensing, Temporal};
use crate::spans::Spans;
use crate::stores::{Failed, Stores, Task};
use crate::wire::Packet;

/// The first wait before a connection that failed is tried again; each next one is twice as long, up to [`RETRY_MAX`].
pub const RETRY_FIRST: Nanos = Nanos::from_millis(10);
/// See [`RETRY_FIRST`].
pub const RETRY_MAX: Nanos = Nanos::from_millis(250);
/// The most clients at a time.
pub const CLIENTS_MAX: usize = 1024;
/// The most connections of peers at a time: two for each node that there may be.
pub const PEERS_MAX: usize = 128;
/// How long one that calls may be silent before it says which node it is.
const NAME_WITHIN: Nanos = Nanos::from_secs(2);
/// How often the loop looks for connections that stall.
const LOOK_EVERY: Nanos = Nanos::from_millis(500);
/// Watches of the log have numbers above those of the state machine's questions.
const WATCHES: Ticket = 1 << 63;
/// How long a watch rests that was refused: the state machine reads the log meanwhile, or asks for a copy.
const WATCH_AGAIN: Nanos = Nanos::from_millis(50);

/// The ticket of requests for objects that clients have set; those of clients begin at 1.
const MAKER: u64 = 0;

const WAKER: Token = Token(0);
const CLIENTS: Token = Token(1);
const PEERS: Token = Token(2);
const ASK: Token = Token(3);
const WATCH: Token = Token(4);
/// The ways to peers, by node number; node numbers are 32 bits.
const OUT: usize = 1 << 33;
/// Connections that came.
const FIRST: usize = 16;

/// What the process that started a node wants of it.
#[derive(Clone, Debug)]
pub enum Control {
    /// These are its peers' addresses.
    Peers(BTreeMap<NodeId, SocketAddr>),
    /// To take nothing new (`federation::action::Event::Pause`).
    Pause,
    /// To go on.
    Resume,
    /// To finish what it has, and end.
    Leave,
    /// To end at once.
    End,
}

/// Why a node did not start, or has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Other machines would reach it.
    #[error("{0}: there are no users and no TLS between nodes yet: listen on 127.0.0.1 or [::1]")]
    NotLoopback(SocketAddr),
    /// Another program has the port.
    #[error("{0}: another program listens there: end it, or choose another port (0 takes a free one)")]
    InUse(SocketAddr),
    /// The system refused.
    #[error("{action}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A call of the store has failed.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The state machine has stopped.
    #[error(transparent)]
    Stopped(#[from] Stop),
}

fn io(action: &'static str) -> impl Fn(io::Error) -> NodeError {
    move |source| NodeError::Io { action, source }
}

/// What a node has beside its state machine.
#[derive(Debug, Default)]
pub struct Beside {
    /// Its temporal objects; the number of this start is at least `boot`.
    pub temporal: Temporal,
    /// A page of figures for Prometheus.
    pub page: Option<Page>,
}

/// The sockets of a node that has yet to begin.
#[derive(Debug)]
pub struct Listening {
    poll: Poll,
    waker: Arc<Waker>,
    clients: TcpListener,
    peers: TcpListener,
}

impl Listening {
    /// Takes two addresses of this machine, for clients and for peers; port 0 takes a free one.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn bind(clients: SocketAddr, peers: SocketAddr) -> Result<Listening, NodeError> {
        let poll = Poll::new().map_err(io("the event loop"))?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(io("the event loop"))?;
        let bind = |address: SocketAddr, token| {
            if !address.ip().is_loopback() {
                return Err(NodeError::NotLoopback(address));
            }
            let mut listener = TcpListener::bind(address).map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => NodeError::InUse(address),
                _ => io("cannot listen")(source),
            })?;
            let registered = poll.registry().register(&mut listener, token, Interest::READABLE);
            registered.map_err(io("the event loop"))?;
            Ok(listener)
        };
        let (clients, peers) = (bind(clients, CLIENTS)?, bind(peers, PEERS)?);
        Ok(Listening {
            poll,
            waker: Arc::new(waker),
            clients,
            peers,
        })
    }

    /// Where it listens for clients and for peers.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn addresses(&self) -> Result<(SocketAddr, SocketAddr), NodeError> {
        let [clients, peers] = [&self.clients, &self.peers].map(|listener| listener.local_addr());
        Ok((clients.map_err(io("the address"))?, peers.map_err(io("the address"))?))
    }

    /// What has the loop look at its [`Control`].
    pub fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Runs a node until it is told to end, has left, or must stop. `tell` must not wait.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn run<E: Engine + 'static, O: Os>(
        self,
        setup: &Setup,
        log: PathBuf,
        replica: Replica<E, O>,
        os: O,
        beside: Beside,
        control: Receiver<Control>,
        tell: impl FnMut(Seen),
    ) -> Result<(), NodeError> {
        let replica = Arc::new(replica);
        let temporal = Temporal {
            boot: replica.count_boot(beside.temporal.boot)?,
            ..beside.temporal
        };
        let waker = self.waker();
        // A waker that fails leaves the loop to its next beat.
        let wake = move || drop(waker.wake());
        let stores = Stores::start(&replica, &os, setup.executors, &wake).map_err(io("the store's threads"))?;
        let now = os.now();
        let node = Node::new(setup, replica.revision(), replica.reign()?, now);
        let (federation, me) = (setup.federation, setup.me);
        let (published, stop) = (Arc::new(Mutex::new(None::<Figures>)), Arc::new(AtomicBool::new(false)));
        let page_at = beside
            .page
            .as_ref()
            .map(Page::address)
            .transpose()
            .map_err(io("the address"))?;
        let page = beside.page.map(|page| {
            let published = Arc::clone(&published);
            let text = move || {
                let figures = published.lock().unwrap_or_else(PoisonError::into_inner);
                figures.as_ref().map(Figures::metrics).unwrap_or_default()
            };
            page.serve(text, Arc::clone(&stop))
                .map_err(io("the thread for figures"))
        });
        let page = page.transpose()?;
        let process = Process {
            poll: self.poll,
            clients: self.clients,
            peers_in: self.peers,
            ask: LogLink::new(log.clone(), federation, ASK),
            watch: LogLink::new(log, federation, WATCH),
            watched: replica.revision(),
            watches: WATCHES,
            watch_at: Time::ZERO,
            setup: setup.clone(),
            node,
            os,
            stores,
            peers: BTreeMap::new(),
            latest: BTreeMap::new(),
            connections: Vec::new(),
            free: Vec::new(),
            begun: 0,
            open: (0, 0),
            tickets: BTreeMap::new(),
            asked: 0,
            events: VecDeque::from([Event::Wake]),
            again: Vec::new(),
            control,
            trusts: None,
            reigned: false,
            served: false,
            ends: None,
            scratch: Vec::new(),
            replica,
            sensing: Sensing::new(me.node, temporal),
            maker: Maker::new(me.node, temporal, me.boot.0),
            waiting: Vec::new(),
            spans: Spans::default(),
            batch: Vec::new(),
            querying: BTreeMap::new(),
            queries: Tally::default(),
            transactions: Tally::default(),
            client_bytes: Bytes::default(),
            peer_bytes: Bytes::default(),
            started: now,
            published,
            page: page_at,
            tell,
        };
        let ended = process.run();
        stop.store(true, Ordering::SeqCst);
        page.map(|page| drop(page.join()));
        ended
    }
}

/// A connection that came.
enum Connection {
    Client(Box<Client>),
    /// With the number of the connection.
    Peer(Box<PeerIn>, u32),
}

struct Process<E: Engine, O: Os, T: FnMut(Seen)> {
    poll: Poll,
    clients: TcpListener,
    peers_in: TcpListener,
    ask: LogLink,
    watch: LogLink,
    /// All up to here has been watched.
    watched: Revision,
    watches: Ticket,
    /// No watch is asked for before.
    watch_at: Time,
    setup: Setup,
    node: Node,
    os: O,
    stores: Stores,
    peers: BTreeMap<NodeId, PeerOut>,
    /// The newest connection of each peer, by its number: only the end of that one tells that the peer is gone.
    latest: BTreeMap<NodeId, u32>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// So many connections have come.
    begun: u32,
    /// Clients and peers that are connected.
    open: (usize, usize),
    /// Where the answer to each of the node's requests goes.
    tickets: BTreeMap<u64, usize>,
    asked: u64,
    events: VecDeque<Event>,
    /// Connections that have more to do without an event.
    again: Vec<usize>,
    control: Receiver<Control>,
    trusts: Option<NodeId>,
    reigned: bool,
    served: bool,
    /// Why the loop is to end.
    ends: Option<Result<(), NodeError>>,
    scratch: Vec<u8>,
    /// For readings of temporal objects alone, which are in memory: all else of the store is for its threads.
    replica: Arc<Replica<E, O>>,
    sensing: Sensing,
    maker: Maker,
    /// Readings whose objects are being made.
    waiting: Vec<Waiting>,
    spans: Spans,
    /// The tickets of the master's batch, as far as clients of this node ask.
    batch: Vec<u64>,
    /// The ticket of each query that the store is asked for.
    querying: BTreeMap<Ticket, u64>,
    queries: Tally,
    transactions: Tally,
    client_bytes: Bytes,
    peer_bytes: Bytes,
    started: Time,
    /// For the page's thread; and where that is, if it is.
    published: Arc<Mutex<Option<Figures>>>,
    page: Option<SocketAddr>,
    tell: T,
}

impl<E: Engine + 'static, O: Os, T: FnMut(Seen)> Process<E, O, T> {
    fn run(mut self) -> Result<(), NodeError> {
        let mut events = Events::with_capacity(1024);
        let mut looked = self.os.now();
        loop {
            self.carry_on();
            if let Some(end) = self.ends.take() {
                self.say_goodbye();
                return end;
            }
            let wait = self.wait();
            if let Err(error) = self.poll.poll(&mut events, Some(wait.into()))
                && error.kind() != io::ErrorKind::Interrupted
            {
                return Err(io("the event loop")(error));
            }
            let mut turn = std::mem::take(&mut self.again);
            for event in &events {
                let is_readable = event.is_readable() || event.is_error() || event.is_read_closed();
                let is_writable = event.is_writable() || event.is_error();
                match event.token() {
                    WAKER => self.obey(),
                    CLIENTS => self.accept(true),
                    PEERS => self.accept(false),
                    ASK => self.ask.ready(is_readable, is_writable),
                    WATCH => self.watch.ready(is_readable, is_writable),
                    Token(out) if out >= OUT => {
                        if let Some(peer) = self.peers.get_mut(&NodeId((out - OUT) as u32)) {
                            peer.ready(is_readable, is_writable);
                        }
                    }
                    Token(token) => {
                        let place = token - FIRST;
                        let link = match self.connections.get_mut(place).and_then(Option::as_mut) {
                            Some(Connection::Client(client)) => &mut client.link,
                            Some(Connection::Peer(peer, _)) => &mut peer.link,
                            None => continue,
                        };
                        link.is_readable |= is_readable;
                        link.is_writable |= is_writable;
                        turn.push(place);
                    }
                }
            }
            turn.sort_unstable();
            turn.dedup();
            turn.into_iter().for_each(|place| self.turn(place));
            let now = self.os.now();
            if now.since(looked) >= LOOK_EVERY {
                looked = now;
                self.look(now);
            }
        }
    }

    /// Until when there is nothing to do unless something comes.
    fn wait(&self) -> Nanos {
        if !self.again.is_empty() {
            return Nanos::ZERO;
        }
        let now = self.os.now();
        let links = [self.ask.next_due(), self.watch.next_due()];
        let peers = self.peers.values().map(PeerOut::next_due);
        let local = [self.maker.next_due(), self.settle_by()];
        let due = links.into_iter().chain(local).chain(peers).min().unwrap_or(Time::MAX);
        due.min(self.node.wake_at(now)).since(now).min(LOOK_EVERY)
    }

    /// Passes on all that has happened, and sends what came of it.
    fn carry_on(&mut self) {
        let now = self.os.now();
        self.ask.connect(self.poll.registry(), now);
        self.watch.connect(self.poll.registry(), now);
        let (federation, me) = (self.setup.federation, self.setup.me);
        for peer in self.peers.values_mut() {
            peer.connect(self.poll.registry(), federation, me, now);
        }
        loop {
            while let Some(done) = self.stores.done() {
                self.worked(&done);
                match done.result {
                    Ok(event) => self.events.push_back(event),
                    Err(failed) => _ = self.ends.get_or_insert(Err(failed.into())),
                }
            }
            while self.ask.turn(&mut self.scratch, &mut self.events) {}
            while self.watch.turn(&mut self.scratch, &mut self.events) {}
            let now = self.os.now();
            if self.node.wake_at(now) <= now {
                self.events.push_back(Event::Wake);
            }
            self.make(now);
            if self.events.is_empty() || self.ends.is_some() {
                break;
            }
            while let Some(event) = self.events.pop_front() {
                self.step(event);
            }
        }
        let now = self.os.now();
        if !self.waiting.is_empty() {
            self.settle(now);
        }
        let mut too_long = None;
        let (sensing, os) = (&mut self.sensing, &self.os);
        for (node, peer) in &mut self.peers {
            let mut more = || match sensing.tells(*node, os.since_boot()) {
                Some((stamp, taken)) => Some(Packet::Taken(stamp, taken)),
                None => Some(sensing.reports(*node, now))
                    .filter(|reports| !reports.is_empty())
                    .map(Packet::Readings),
            };
            let (len, written) = peer.turn(&mut self.scratch, now, &mut more);
            self.peer_bytes.written += written;
            too_long = len.map(|len| (*node, len)).or(too_long);
        }
        if let Some((node, len)) = too_long {
            self.note(format!(
                "a copy for node {node} has {len} bytes, more than one message: have the log keep more entries"
            ));
        }
        self.watches += 1;
        let (watched, applied) = (self.watched, self.node.applied());
        if self.watch_at <= now && self.watch.watch(self.watches, watched, applied) {
            while self.watch.turn(&mut self.scratch, &mut self.events) {}
        }
    }

    fn step(&mut self, event: Event) {
        match &event {
            Event::Watched(entries) => {
                let last = entries.last().map(|(revision, _)| *revision);
                self.watched = self.watched.max(last.unwrap_or_default());
            }
            Event::Log(ticket, _) if *ticket >= WATCHES => {
                self.watch_at = self.os.now() + WATCH_AGAIN;
                return;
            }
            Event::Message(_, Message::Answered(id, answer)) => {
                let now = self.os.now();
                if let Some(refused) = self.maker.answered(*id, answer, now) {
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
        let actions = self.node.step(event, now);
        if applies {
            self.sensing.applied(&self.replica, now, self.os.since_boot());
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
                    self.sensing.beats(to);
                }
                if let Some(peer) = self.peers.get_mut(&to) {
                    peer.outgoing.push(message, now);
                }
            }
            Action::Reply(ticket, reply) => self.reply(ticket, reply, now),
            Action::Tell(_) => {} // no balancer is connected
            Action::Log(ticket, ask) => {
                if let Ask::Append { last, .. } = &ask
                    && !self.node.is_master()
                {
                    self.seen(What::CaughtUp(*last));
                }
                self.ask.ask(ticket, &ask, &mut self.events);
            }
            Action::Execute(batch, revision, requests) => self.stores.take(Task::Execute(batch, revision, requests)),
            Action::Apply(revision, entry) => self.stores.take(Task::Apply(revision, entry)),
            Action::Query(ticket, keys, max_age) => self.stores.take(Task::Query(ticket, keys, max_age)),
            Action::Sync => self.stores.take(Task::Sync),
            Action::Copy(peer) => self.stores.take(Task::Copy(peer)),
            Action::Install(image) => self.stores.take(Task::Install(image)),
            Action::Left => {
                self.seen(What::Left);
                self.ends.get_or_insert(Ok(()));
            }
            Action::Stop(stop) => _ = self.ends.get_or_insert(Err(stop.into())),
        }
    }

    /// Tells what has changed of what an outage is made of.
    fn observe(&mut self, now: Time) {
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
        if !self.served && self.node.standing() == Standing::Serving {
            self.served = true;
            self.seen(What::Serves);
        }
    }

    fn seen(&mut self, what: What) {
        let at = self.os.now();
        (self.tell)(Seen { at, what });
    }

    fn note(&mut self, text: String) {
        self.seen(What::Note(text));
    }

    fn obey(&mut self) {
        while let Ok(control) = self.control.try_recv() {
            match control {
                Control::Peers(addresses) => {
                    for (node, address) in addresses {
                        if node != self.setup.me.node {
                            let token = Token(OUT + node.0 as usize);
                            let new = || PeerOut::new(address, token);
                            self.peers.entry(node).or_insert_with(new).moves(address);
                        }
                    }
                }
                Control::Pause => self.events.push_back(Event::Pause),
                Control::Resume => self.events.push_back(Event::Resume),
                Control::Leave => self.events.push_back(Event::Leave),
                Control::End => self.ends = Some(Ok(())),
            }
        }
    }

    fn accept(&mut self, is_client: bool) {
        let now = self.os.now();
        loop {
            let listener = if is_client { &self.clients } else { &self.peers_in };
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let room = match is_client {
                true => self.open.0 < CLIENTS_MAX,
                false => self.open.1 < PEERS_MAX,
            };
            if !room {
                refuse(&mut stream, is_client);
                continue;
            }
            let place = self.free.pop().unwrap_or(self.connections.len());
            let both = Interest::READABLE | Interest::WRITABLE;
            let registered = self.poll.registry().register(&mut stream, Token(place + FIRST), both);
            if place == self.connections.len() {
                self.connections.push(None);
            }
            if registered.is_err() || stream.set_nodelay(true).is_err() {
                self.free.push(place);
                continue;
            }
            self.begun = self.begun.wrapping_add(1);
            self.connections[place] = Some(match is_client {
                true => Connection::Client(Box::new(Client::new(stream, self.setup.me.boot.0, self.begun, now))),
                false => Connection::Peer(Box::new(PeerIn::new(stream, now)), self.begun),
            });
            let count = if is_client { &mut self.open.0 } else { &mut self.open.1 };
            *count += 1;
        }
    }

    /// Does all that can be done for a connection now.
    fn turn(&mut self, place: usize) {
        match self.connections.get_mut(place).and_then(Option::take) {
            Some(Connection::Client(client)) => self.client_turn(place, client),
            Some(Connection::Peer(peer, number)) => self.peer_turn(place, peer, number),
            None => {}
        }
    }

    fn client_turn(&mut self, place: usize, mut client: Box<Client>) {
        let now = self.os.now();
        loop {
            let mut here = Here {
                replica: &self.replica,
                sensing: &mut self.sensing,
                maker: &mut self.maker,
                waiting: &mut self.waiting,
                place,
                applied: self.node.applied(),
                now,
            };
            let wanted = client.turn(&mut self.scratch, now, &mut |number, local, out| {
                here.answer(number, local, out)
            });
            let bytes = std::mem::take(&mut client.link.bytes);
            self.client_bytes.read += bytes.read;
            self.client_bytes.written += bytes.written;
            match wanted {
                Wanted::Nothing => break,
                Wanted::Ask(request, arrived) => {
                    client.arrived = arrived;
                    client.ticket = Some(self.request(place, request, arrived));
                }
                Wanted::Info(sections) => client.described(&self.figures(now).info(&sections)),
                Wanted::Over => {
                    if let Some(ticket) = client.ticket {
                        self.tickets.remove(&ticket);
                    }
                    self.open.0 -= 1;
                    self.free.push(place);
                    return;
                }
            }
        }
        if client.has_more() {
            self.again.push(place);
        }
        self.connections[place] = Some(Connection::Client(client));
    }

    /// Asks the node for a client; the number of the request.
    fn request(&mut self, place: usize, request: Request, arrived: Time) -> u64 {
        self.asked += 1;
        self.tickets.insert(self.asked, place);
        self.begins(self.asked, &request, arrived);
        self.events.push_back(Event::Request(self.asked, request));
        self.asked
    }

    fn reply(&mut self, ticket: u64, reply: Reply, now: Time) {
        if ticket == MAKER {
            let answered = self.maker.answered(reply.id, &reply.answer, now);
            if let Some((key, refusal)) = answered.flatten() {
                self.unmade(&key, &refusal.to_string());
            }
            return;
        }
        self.ends(ticket, &reply.answer, now);
        let Some(place) = self.tickets.remove(&ticket) else {
            return; // its client has gone
        };
        let Some(Some(Connection::Client(client))) = self.connections.get_mut(place) else {
            return;
        };
        if let Some(request) = client.answered(reply.answer, now) {
            let arrived = client.arrived;
            let ticket = self.request(place, request, arrived);
            if let Some(Some(Connection::Client(client))) = self.connections.get_mut(place) {
                client.ticket = Some(ticket);
            }
        }
        self.again.push(place);
    }

    fn peer_turn(&mut self, place: usize, mut peer: Box<PeerIn>, number: u32) {
        let (events, sensing, replica, os) = (&mut self.events, &mut self.sensing, &self.replica, &self.os);
        let was_named = peer.from.is_some();
        let turn = peer.turn(&mut self.scratch, self.setup.federation, |from, packet| match packet {
            Packet::Message(message) => events.push_back(Event::Message(from.node, message)),
            Packet::Readings(reports) => sensing.received(replica, from.node, &reports, os.now(), os.since_boot()),
            Packet::Taken(stamp, taken) => sensing.heard(replica, from.node, stamp, &taken),
            Packet::Hello { .. } => {}
        });
        self.peer_bytes.read += std::mem::take(&mut peer.link.bytes).read;
        if let Some(from) = peer.from.filter(|_| !was_named) {
            self.latest.insert(from.node, number);
        }
        match turn {
            Ok(more) => {
                if more {
                    self.again.push(place);
                }
                self.connections[place] = Some(Connection::Peer(peer, number));
            }
            Err(gone) => {
                self.open.1 -= 1;
                self.free.push(place);
                if !matches!(gone, PeerGone::Io(_) | PeerGone::Ended) {
                    self.note(format!("a connection of a peer was ended: {gone}"));
                }
                let node = peer.from.map(|from| from.node);
                if let Some(node) = node.filter(|node| self.latest.get(node) == Some(&number)) {
                    self.latest.remove(&node);
                    self.events.push_back(Event::Reset(node));
                }
            }
        }
    }

    /// Ends connections that stall.
    fn look(&mut self, now: Time) {
        for place in 0..self.connections.len() {
            match &self.connections[place] {
                Some(Connection::Client(client)) if client.is_stalled(now) => {
                    if let Some(ticket) = client.ticket {
                        self.tickets.remove(&ticket);
                    }
                    self.open.0 -= 1;
                }
                Some(Connection::Peer(peer, _)) if peer.from.is_none() && now.since(peer.began) > NAME_WITHIN => {
                    self.open.1 -= 1;
                }
                _ => continue,
            }
            self.connections[place] = None;
            self.free.push(place);
        }
        self.sensing.look(&self.replica);
        self.publish(now);
        // A listener without descriptors to give tells nothing further by itself.
        self.accept(true);
        self.accept(false);
    }

    /// What is answered is sent, as far as sockets take it at once.
    fn say_goodbye(&mut self) {
        for place in 0..self.connections.len() {
            if let Some(Some(Connection::Client(client))) = self.connections.get_mut(place) {
                client.link.is_writable = true;
                // The connection ends in any case.
                drop(client.link.flush());
            }
        }
    }
}

fn refuse(stream: &mut TcpStream, is_client: bool) {
    if is_client {
        // As far as the socket takes it at once.
        drop(io::Write::write(stream, b"-ERR max number of clients reached\r\n"));
    }
}
