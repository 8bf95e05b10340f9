//! The event loop of a node: its state machine, all of its sockets, and nothing that waits. That of a balancer
//! ([`balance`]) is made of the same parts.

mod access;
pub mod balance;
mod clients;
mod group;
mod link;
mod log;
mod peers;
mod places;
mod telling;
mod temporal;
mod way;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use punctual_federation::action::{Action, Ask, Event, Ticket};
use punctual_federation::entry::Entry;
use punctual_federation::ids::{Member, NodeId, RequestId, Revision};
use punctual_federation::liveness::HEARTBEAT;
use punctual_federation::message::{Answer, FOUND_BYTES_MAX, Heartbeat, Message, Reply, Request, Standing, Stop, Work};
use punctual_federation::node::{Node, Setup};
use punctual_federation::replica::Replica;
use punctual_logs::frame;
use punctual_os::Os;
use punctual_platform::Machine;
use punctual_server::metrics::Page;
use punctual_server::stream::Ready;
use punctual_server::subscribers::Told;
use punctual_server::tasks::Tasks;
use punctual_store::StoreError;
use punctual_store::batch::Image;
use punctual_store::engine::Engine;
use punctual_units::{Nanos, Time};

pub use self::access::{Access, PeerAddress};
use self::clients::{Clients, SHORT_MAX, Wanted, fits, unkept};
use self::group::{Group, Speaker};
use self::log::LogLink;
use self::peers::{Heard, Named, PeerGone, PeerIn, PeerOut, Trouble};
use self::places::Places;
use self::temporal::{Letters, Waiting};
use crate::bound::{Asked, Bound, Outcome};
use crate::changes;
use crate::datagram::Multicast;
use crate::figures::{Bytes, Figures};
use crate::letterbox::Letterbox;
use crate::making::Maker;
use crate::own::OwnReading;
use crate::seen::{Seen, What};
use crate::sensing::{Sensing, Temporal};
use crate::spans::{Place, Spans};
use crate::stores::{Failed, Stores, Task};
use crate::wire::{Packet, Readings, VERSION};

/// The first wait before a connection that failed is tried again; each next one is twice as long, up to [`RETRY_MAX`].
pub const RETRY_FIRST: Nanos = Nanos::from_millis(10);
/// See [`RETRY_FIRST`].
pub const RETRY_MAX: Nanos = Nanos::from_millis(250);
/// Handshakes of TLS that go on before others have their turn: each costs a signature, some tenths of a millisecond.
const HANDSHAKES_TURN: usize = 8;
/// The most clients at a time.
pub const CLIENTS_MAX: usize = 1024;
/// The most connections of peers and fronts at a time: two for each node that there may be.
pub const PEERS_MAX: usize = 128;
/// How long a node goes on that has left: what was sent to it before its last word was heard is refused, not lost.
pub const LEAVES_AFTER: Nanos = Nanos(2 * HEARTBEAT.0);
/// How often the loop looks for connections that stall.
const LOOK_EVERY: Nanos = Nanos::from_millis(500);
/// Watches of the log have numbers above those of the state machine's questions.
const WATCHES: Ticket = 1 << 63;
/// The most bytes of answers that wait for one front's socket: four of the longest. Those of all fronts are bounded as
/// those of all clients are. An answer for which there is no room is not kept, see [`clients::REPLIES_MAX`].
const FRONT_REPLIES_MAX: usize = 4 * FOUND_BYTES_MAX;
/// A front that leaves so many bytes untaken is not told of further beats.
const BEATS_MAX: usize = 1 << 20;
/// How often a node says how far the copy is that it is given.
const COPY_TOLD_EVERY: Nanos = Nanos::from_secs(5);
/// How long a watch rests that was refused: the state machine reads the log meanwhile, or asks for a copy.
const WATCH_AGAIN: Nanos = Nanos::from_millis(50);

/// The ticket of requests for objects that clients have set; those of clients begin at 1.
const MAKER: u64 = 0;
/// The ticket of requests to remove records whose terms have ended.
const SWEEPER: u64 = u64::MAX;
/// How long the master is given to remove some.
const SWEEP_WITHIN: Nanos = Nanos::from_secs(1);

const WAKER: Token = Token(0);
const CLIENTS: Token = Token(1);
const PEERS: Token = Token(2);
const ASK: Token = Token(3);
const WATCH: Token = Token(4);
const GROUP: Token = Token(5);
/// Connections that clients have dialled.
const FIRST_CLIENT: usize = 1 << 16;
/// Connections that peers and fronts have dialled.
const FIRST_PEER: usize = 1 << 32;
/// The ways to peers, by node number; node numbers are 32 bits.
const OUT: usize = 1 << 33;

/// What the process that started a node wants of it.
#[derive(Clone, Debug)]
pub enum Control {
    /// These are its peers' addresses.
    Peers(BTreeMap<NodeId, PeerAddress>),
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
    #[error(
        "{0}: without users, any machine that reaches this address could read and change all records: add a [[user]] \
         to the node's file, or have clients come to 127.0.0.1 or [::1]"
    )]
    OpenToClients(SocketAddr),
    /// Other machines could take part as nodes.
    #[error(
        "{0}: without TLS between nodes, any machine that reaches this address could take part as a node: add \
         [federation.tls] to the node's file, or have nodes listen on 127.0.0.1 or [::1]"
    )]
    OpenToPeers(SocketAddr),
    /// Other machines could tell readings.
    #[error(
        "{0}: without TLS between nodes, any machine that reaches this interface could tell readings: add \
         [federation.tls] to the node's file, or multicast_interface = \"127.0.0.1\""
    )]
    OpenToGroup(Ipv4Addr),
    /// Datagrams cannot be heard there.
    #[error(
        "{at}: cannot be heard at the interface with address {interface} (0.0.0.0: the system's choice): {source}; name \
         the address of an interface of this machine that carries multicast as federation.multicast_interface \
         (`ip address`)"
    )]
    Group {
        /// The group.
        at: SocketAddrV4,
        /// The interface's address.
        interface: Ipv4Addr,
        /// The system's answer.
        source: io::Error,
    },
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

/// Takes an address; port 0 takes a free one.
fn listen(registry: &Registry, address: SocketAddr, token: Token) -> Result<TcpListener, NodeError> {
    let mut listener = TcpListener::bind(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => NodeError::InUse(address),
        _ => io("cannot listen")(source),
    })?;
    let registered = registry.register(&mut listener, token, Interest::READABLE);
    registered.map_err(io("the event loop"))?;
    Ok(listener)
}

fn io(action: &'static str) -> impl Fn(io::Error) -> NodeError {
    move |source| NodeError::Io { action, source }
}

/// The sockets of a node that has yet to begin.
#[derive(Debug)]
pub struct Listening {
    poll: Poll,
    waker: Arc<Waker>,
    clients: TcpListener,
    peers: TcpListener,
    access: Access,
    /// What each request takes of its thread's processor time beside what it needs: 0 but for a load that is stated.
    pub work: Nanos,
    /// The temporal objects; the number of this start is at least `boot`.
    pub temporal: Temporal,
    /// A page of figures for Prometheus.
    pub page: Option<Page>,
    group: Option<Group>,
    /// What turns the bound of the node's backlog, and where it leaves what it has learned and decided.
    pub bound: Option<(Asked, Arc<Mutex<Outcome>>)>,
    /// What tasks of this process have come to, if there are any: told with the node's own figures.
    pub tasks: Option<Arc<Tasks>>,
    /// Objects that tasks of this process set; the loop looks at them as it wakes, at each beat at the latest.
    pub own: Vec<Arc<OwnReading>>,
    /// Where readings wait that come by another way; it wakes the loop.
    pub letterbox: Option<Arc<Letterbox>>,
}

impl Listening {
    /// Takes two addresses of this machine, for clients and for peers; port 0 takes a free one.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn bind(clients: SocketAddr, peers: SocketAddr, access: Access) -> Result<Listening, NodeError> {
        access.check(clients, peers)?;
        let poll = Poll::new().map_err(io("the event loop"))?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(io("the event loop"))?;
        let clients = listen(poll.registry(), clients, CLIENTS)?;
        let peers = listen(poll.registry(), peers, PEERS)?;
        Ok(Listening {
            poll,
            waker: Arc::new(waker),
            clients,
            peers,
            access,
            work: Nanos::ZERO,
            temporal: Temporal::default(),
            page: None,
            group: None,
            bound: None,
            tasks: None,
            own: Vec::new(),
            letterbox: None,
        })
    }

    /// Tells readings to all peers at once, and hears theirs: the same group on all nodes.
    ///
    /// # Errors
    /// [`NodeError`]: without TLS between nodes, the interface is to be of this machine alone.
    pub fn join(&mut self, at: Multicast) -> Result<(), NodeError> {
        let is_sealed = self.access.has_tls_of_nodes();
        if !is_sealed && !self.access.is_private && !at.interface.is_loopback() {
            return Err(NodeError::OpenToGroup(at.interface));
        }
        self.group = Some(Group::join(at, is_sealed, self.poll.registry(), GROUP)?);
        Ok(())
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
        replica: impl Into<Arc<Replica<E, O>>>,
        os: O,
        control: Receiver<Control>,
        tell: impl FnMut(Seen),
    ) -> Result<(), NodeError> {
        let replica = replica.into();
        let temporal = Temporal {
            boot: replica.count_boot(self.temporal.boot)?,
            ..self.temporal
        };
        let waker = self.waker();
        // A waker that fails leaves the loop to its next beat.
        let wake = move || drop(waker.wake());
        let stores =
            Stores::start(&replica, &os, setup.executors, self.work, &wake).map_err(io("the store's threads"))?;
        let clients = Clients::new(self.clients, setup.me.boot.0, self.access.clone(), wake)
            .map_err(io("the thread that checks passwords"))?;
        let now = os.now();
        let mut node = Node::new(setup, replica.revision(), replica.upto(), replica.reign()?, now);
        let turned = self.bound.map(|(asked, outcome)| Turned {
            bound: Bound::new(asked, node.machine(now).offers(), now),
            cpu: Nanos::ZERO,
            outcome,
        });
        let me = setup.me;
        let hello = Packet::Hello {
            federation: setup.federation,
            from: me,
            clients: clients.address().map_err(io("the address"))?,
        };
        let federation = setup.federation;
        let (published, stop) = (Arc::new(Mutex::new(None::<Figures>)), Arc::new(AtomicBool::new(false)));
        let page_at = self.page.as_ref().map(Page::address).transpose();
        let page_at = page_at.map_err(io("the address"))?;
        let page = self.page.map(|page| {
            let published = Arc::clone(&published);
            let text = move || {
                let figures = published.lock().unwrap_or_else(PoisonError::into_inner);
                figures.as_ref().map(Figures::metrics).unwrap_or_default()
            };
            page.serve(text, Arc::clone(&stop))
                .map_err(io("the thread for figures"))
        });
        let page = page.transpose()?;
        let mut sensing = Sensing::new(me.node, temporal);
        if self.group.is_some() {
            sensing.gather();
        }
        let process = Process {
            poll: self.poll,
            group: self.group,
            speaker: Speaker {
                federation,
                node: me.node,
                boot: temporal.boot,
            },
            access: self.access,
            clients,
            listener: self.peers,
            peers_in: Places::new(PEERS_MAX, FIRST_PEER),
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
            found_at: BTreeMap::new(),
            hello,
            passed: BTreeMap::new(),
            asked: 0,
            events: VecDeque::from([Event::Wake]),
            again: Vec::new(),
            control,
            trusts: None,
            reigned: false,
            served: false,
            copied: 0,
            copy_told: Time::ZERO,
            left: None,
            ends: None,
            scratch: Vec::new(),
            replica,
            sensing,
            maker: Maker::new(me.node, temporal, me.boot.0),
            waiting: Vec::new(),
            spans: Spans::default(),
            batch: Vec::new(),
            querying: BTreeMap::new(),
            peer_bytes: Bytes::default(),
            unkept: 0,
            applying: None,
            sweeps: false,
            started: now,
            published,
            page: page_at,
            turned,
            tasks: self.tasks,
            own: self.own,
            letters: self.letterbox.map(Letters::of),
            tell,
        };
        let ended = process.run();
        stop.store(true, Ordering::SeqCst);
        if let Some(page) = page {
            // It has told all that it could.
            drop(page.join());
        }
        ended
    }
}

/// What turns the bound of the backlog, and where that leaves its decisions.
struct Turned {
    bound: Bound,
    /// CPU time that closing its periods has taken.
    cpu: Nanos,
    outcome: Arc<Mutex<Outcome>>,
}

/// A front's request.
#[derive(Clone, Copy, Debug)]
struct Passed {
    place: usize,
    /// The number of the connection: places are used again.
    connection: u32,
    ticket: u64,
    /// Whether it may be called late after it was executed.
    leaves_nothing: bool,
}

struct Process<E: Engine, O: Os, T: FnMut(Seen)> {
    poll: Poll,
    access: Access,
    clients: Clients,
    listener: TcpListener,
    group: Option<Group>,
    /// This node in its datagrams.
    speaker: Speaker,
    peers_in: Places<Box<PeerIn>>,
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
    /// Where clients find each peer.
    found_at: BTreeMap<NodeId, SocketAddr>,
    /// What this node says first to each process that it meets.
    hello: Packet,
    /// Requests that fronts have passed on, by the numbers that they have here.
    passed: BTreeMap<u64, Passed>,
    asked: u64,
    events: VecDeque<Event>,
    /// Connections of peers that have more to do without an event.
    again: Vec<usize>,
    control: Receiver<Control>,
    trusts: Option<NodeId>,
    reigned: bool,
    served: bool,
    /// Bytes of records that others have given it, of the last copy.
    copied: u64,
    copy_told: Time,
    /// When it ends that has left.
    left: Option<Time>,
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
    /// The tickets of the master's batch, as far as they are of this node's clients and fronts.
    batch: Vec<u64>,
    /// The ticket of each query that the store is asked for.
    querying: BTreeMap<Ticket, u64>,
    peer_bytes: Bytes,
    /// Answers to fronts that were not kept, because there was no room.
    unkept: u64,
    /// The entry that the store applies.
    applying: Option<Arc<Entry>>,
    /// Whether it is removing records whose terms have ended.
    sweeps: bool,
    started: Time,
    /// For the page's thread; and where that is, if it is.
    published: Arc<Mutex<Option<Figures>>>,
    page: Option<SocketAddr>,
    /// What turns the bound of the backlog.
    turned: Option<Turned>,
    /// What tasks of this process have come to.
    tasks: Option<Arc<Tasks>>,
    /// Objects that they set.
    own: Vec<Arc<OwnReading>>,
    /// Readings that come by another way.
    letters: Option<Letters>,
    tell: T,
}

impl<E: Engine + 'static, O: Os, T: FnMut(Seen)> Process<E, O, T> {
    fn run(mut self) -> Result<(), NodeError> {
        let mut events = Events::with_capacity(1024);
        let mut looked = self.os.now();
        loop {
            self.carry_on();
            if let Some(end) = self.ends.take() {
                self.leave_decisions();
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
                let ready = Ready::from(event);
                match event.token() {
                    WAKER => self.obey(),
                    CLIENTS => self.clients.accept(self.poll.registry(), self.os.now()),
                    PEERS => self.accept(),
                    ASK => self.ask.ready(ready),
                    WATCH => self.watch.ready(ready),
                    GROUP => self.group.iter_mut().for_each(|group| group.is_readable = true),
                    Token(out) if out >= OUT => {
                        if let Some(peer) = self.peers.get_mut(&NodeId((out - OUT) as u32)) {
                            peer.way.ready(ready);
                        }
                    }
                    token if token.0 >= FIRST_PEER => {
                        let place = self.peers_in.of(token);
                        if let Some(peer) = self.peers_in.get_mut(place) {
                            peer.link.ready(ready);
                            turn.push(place);
                        }
                    }
                    token => self.clients.ready(token, ready),
                }
            }
            self.hear_group();
            turn.sort_unstable();
            turn.dedup();
            let mut handshakes = 0;
            for place in turn {
                let link = self.peers_in.get_mut(place).map(|peer| &peer.link);
                let is_handshaking = link.is_some_and(|link| link.stream.is_handshaking());
                handshakes += usize::from(is_handshaking);
                if is_handshaking && handshakes > HANDSHAKES_TURN {
                    self.again.push(place);
                } else {
                    self.peer_turn(place);
                }
            }
            self.serve();
            let now = self.os.now();
            if now.since(looked) >= LOOK_EVERY {
                looked = now;
                self.look(now);
            }
        }
    }

    /// Until when there is nothing to do unless something comes.
    fn wait(&self) -> Nanos {
        let hears = self.group.as_ref().is_some_and(|group| group.is_readable);
        if hears || !self.again.is_empty() || self.clients.has_more() {
            return Nanos::ZERO;
        }
        let now = self.os.now();
        let links = [self.ask.next_due(), self.watch.next_due()];
        let peers = self.peers.values().map(|peer| peer.way.next_due());
        let bound = self.turned.as_ref().map_or(Time::MAX, |turned| turned.bound.due());
        let local = [self.maker.next_due(), self.settle_by(), bound];
        let due = links.into_iter().chain(local).chain(peers).chain(self.left);
        let due = due.min().unwrap_or(Time::MAX);
        due.min(self.node.wake_at(now)).since(now).min(LOOK_EVERY)
    }

    /// Passes on all that has happened, and sends what came of it.
    fn carry_on(&mut self) {
        let now = self.os.now();
        self.turn_bound(now);
        self.set_own(now);
        self.set_letters(now);
        self.ask.connect(self.poll.registry(), now);
        self.watch.connect(self.poll.registry(), now);
        let mut troubles = Vec::new();
        for (node, peer) in &mut self.peers {
            let secret = self.group.as_ref().and_then(Group::secret);
            let trouble = peer.connect(self.poll.registry(), &self.access, &self.hello, secret, now);
            troubles.extend(trouble.map(|trouble| (*node, trouble)));
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
            if self.left.is_some_and(|at| at <= now) {
                self.ends.get_or_insert(Ok(()));
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
        for (place, front) in self.peers_in.iter_mut() {
            // Where the connection has ended, reading tells it.
            drop(front.flush(now));
            if front.has_more() {
                self.again.push(place); // it was not read while its answers waited
            }
        }
        if !self.waiting.is_empty() {
            self.settle(now);
        }
        let (sensing, os) = (&mut self.sensing, &self.os);
        // Before peers are told one by one: what goes to all of them is under way to each then.
        if let Some(group) = &mut self.group {
            group.speak(&self.speaker, sensing, now);
        }
        for (node, peer) in &mut self.peers {
            let mut more = |out: &mut Vec<u8>| {
                if let Some((stamp, taken)) = sensing.tells(*node, os.since_boot()) {
                    frame::write(out, VERSION, &Packet::Taken(stamp, taken));
                } else if let Some(together) = sensing.reports(*node, now) {
                    frame::write(out, VERSION, &Readings(together));
                } else {
                    return false;
                }
                true
            };
            let (trouble, written) = peer.turn(&mut self.scratch, now, &mut more);
            self.peer_bytes.written += written;
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
        self.tell_changes(&event);
        let actions = self.node.step(event, now);
        if applies {
            self.sensing.applied(&self.replica, now, self.os.since_boot());
        }
        for action in actions {
            self.act(action, now);
        }
        self.observe(now);
    }

    /// Tells clients and fronts that hear of what was applied.
    fn tell_changes(&mut self, event: &Event) {
        let revision = match event {
            Event::Applied(revision) => *revision,
            Event::Installed(revision, _) => {
                // Fronts find the gap by the revisions.
                let entries = revision.0.saturating_sub(self.node.applied().0);
                self.clients.tell([Told::Missed(entries)]);
                return;
            }
            _ => return,
        };
        let Some(entry) = self.applying.take() else { return };
        let has_room = |peer: &PeerIn| peer.hears && peer.link.unsent() < BEATS_MAX;
        let fronts = self
            .peers_in
            .iter_mut()
            .map(|(_, peer)| peer)
            .filter(|peer| has_room(peer));
        let mut fronts = fronts.peekable();
        if !self.clients.hear() && fronts.peek().is_none() {
            return;
        }
        let changes = changes::of(&entry);
        let packet = Packet::Changed(revision, changes);
        fronts.for_each(|front| front.push(&packet));
        if let Packet::Changed(_, changes) = packet {
            self.clients.tell(changes::told(changes));
        }
    }

    fn act(&mut self, action: Action, now: Time) {
        self.trace(&action, now);
        match action {
            Action::Send(to, message) => {
                if let Message::Heartbeat(_) = message {
                    self.sensing.beats(to);
                }
                if let Message::NameTaken(member) = message {
                    self.tell_namesake(member, &message);
                }
                if let Some(peer) = self.peers.get_mut(&to) {
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
                self.ask.ask(ticket, &ask, &mut self.events);
            }
            Action::Execute(batch, revision, requests) => self.stores.take(Task::Execute(batch, revision, requests)),
            Action::Apply(revision, entry) => {
                self.applying = Some(Arc::clone(&entry));
                self.stores.take(Task::Apply(revision, entry));
            }
            Action::Query(ticket, keys, max_age) => self.stores.take(Task::Query(ticket, keys, max_age)),
            Action::Look(ticket, command) => self.stores.take(Task::Look(ticket, command)),
            Action::Sync => self.stores.take(Task::Sync),
            Action::Copy(peer, after) => self.stores.take(Task::Copy(peer, after)),
            Action::Install(image) => {
                self.tell_of_copy(&image, now);
                self.stores.take(Task::Install(image));
            }
            Action::Left => {
                self.seen(What::Left);
                self.left.get_or_insert(now + LEAVES_AFTER);
            }
            Action::Stop(stop) => _ = self.ends.get_or_insert(Err(stop.into())),
        }
    }

    /// Tells that records are being given to it: when that begins, and now and then while it goes on.
    fn tell_of_copy(&mut self, image: &Image, now: Time) {
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

    /// The way to a name leads to the process that has it. One that has the same name is told where it has called.
    fn tell_namesake(&mut self, member: Member, message: &Message) {
        let is_it = |peer: &PeerIn| peer.from == Some(Named::Node(member)) && peer.link.unsent() == 0;
        for (_, peer) in self.peers_in.iter_mut().filter(|(_, peer)| is_it(peer)) {
            peer.push(&Packet::Message(message.clone()));
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
        match self.node.standing() {
            Standing::Serving if !self.served => {
                self.served = true;
                self.seen(What::Serves);
            }
            Standing::Copying => self.served = false,
            _ => {}
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
                            let new = || PeerOut::new(address.clone(), token);
                            self.peers.entry(node).or_insert_with(new).moves(&address);
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

    fn accept(&mut self) {
        let now = self.os.now();
        let access = &self.access;
        let take = |stream, number| Some(Box::new(PeerIn::new(access.accept(stream, false)?, number, now)));
        self.peers_in.accept(&self.listener, self.poll.registry(), take, drop);
    }

    /// Does all that can be done for clients now.
    fn serve(&mut self) {
        let now = self.os.now();
        self.clients.tell_some(now);
        for place in self.clients.due() {
            loop {
                match self.clients.turn(place, &mut self.scratch, now) {
                    Wanted::Nothing | Wanted::Over => break,
                    Wanted::Ask(request, arrived) => {
                        self.asked += 1;
                        self.clients.asked(place, self.asked);
                        self.begin(self.asked, request, arrived, now);
                    }
                    Wanted::Info(sections) => {
                        let text = self.figures(now).info(&sections);
                        self.clients.described(place, |out| out.bulk(text.as_bytes()));
                    }
                    Wanted::Wait(revision) => {
                        let count = self.node.have(revision, now);
                        self.clients.described(place, |out| out.integer(count as i64));
                    }
                    Wanted::Subscribe(words, patterns) => self.clients.subscribe(place, &words, patterns),
                    Wanted::Unsubscribe(words, patterns) => self.clients.unsubscribe(place, &words, patterns),
                    Wanted::Whereabouts(inquiry) => {
                        let (master, others) = self.whereabouts(place, now);
                        self.clients
                            .described(place, |out| inquiry.answer(master, &others, out));
                    }
                }
            }
        }
    }

    /// Begins with a request that was read at `arrived`, under its number.
    fn begin(&mut self, ticket: u64, request: Request, arrived: Time, now: Time) {
        if request.work.is_of_memory() {
            self.sense(ticket, request, now);
        } else {
            self.spans.begins(ticket, &request, Place::Queue, arrived);
            self.events.push_back(Event::Request(ticket, request));
        }
    }

    /// Where the client at `place` finds the master, if it is known, and the other nodes.
    fn whereabouts(&mut self, place: usize, now: Time) -> (Option<SocketAddr>, Vec<SocketAddr>) {
        let (me, master) = (self.setup.me.node, self.node.master(now));
        let mine = self.clients.reached_at(place).map(|address| (me, address));
        let live = self.node.live(now);
        let theirs = live.filter_map(|node| Some((node, *self.found_at.get(&node)?)));
        let (masters, others): (Vec<_>, Vec<_>) = mine
            .into_iter()
            .chain(theirs)
            .partition(|(node, _)| Some(*node) == master);
        let addresses = |nodes: Vec<(NodeId, SocketAddr)>| nodes.into_iter().map(|(_, address)| address);
        (addresses(masters).next(), addresses(others).collect())
    }

    /// Removes records whose terms have ended, as the master; where no client writes, that would not happen otherwise.
    fn sweep(&mut self) {
        if !self.sweeps && self.node.is_master() && self.replica.is_due() {
            self.sweeps = true;
            let request = Request {
                id: RequestId::default(),
                work: Work::Sweep,
                time_left: SWEEP_WITHIN,
                seen: Revision::ZERO,
            };
            self.events.push_back(Event::Request(SWEEPER, request));
        }
    }

    fn reply(&mut self, ticket: u64, reply: Reply, now: Time) {
        if ticket == SWEEPER {
            self.sweeps = false;
            if let Answer::Done { .. } = reply.answer {
                self.sweep();
            }
            return;
        }
        if ticket == MAKER {
            let answered = self.maker.answered(reply.id, &reply.answer, now);
            if let Some((key, refusal)) = answered.flatten() {
                self.unmade(&key, &refusal.to_string());
            }
            return;
        }
        self.ends(ticket, &reply.answer, now);
        let Some(passed) = self.passed.remove(&ticket) else {
            if let Some((place, request, arrived)) = self.clients.answered(ticket, reply.answer, now) {
                self.asked += 1;
                self.clients.asked(place, self.asked);
                self.begin(self.asked, request, arrived, now);
            }
            return;
        };
        let mut reply = reply;
        if !self.has_room_for(passed.place, &reply.answer) {
            self.unkept += 1;
            reply.answer = unkept(passed.leaves_nothing);
        }
        let front = self.peers_in.get_mut(passed.place);
        if let Some(front) = front.filter(|front| front.number == passed.connection) {
            reply.said.at = self.os.since_boot();
            front.push(&Packet::Reply(passed.ticket, reply));
        }
    }

    /// Whether an answer may wait for a front's socket.
    fn has_room_for(&mut self, place: usize, answer: &Answer) -> bool {
        let front = self.peers_in.get_mut(place);
        let unsent = front.map_or(0, |front| front.link.unsent());
        let bytes = match answer {
            Answer::Done { output, .. } => output.bytes(),
            _ => return true,
        };
        if bytes <= SHORT_MAX {
            return unsent <= FRONT_REPLIES_MAX;
        }
        let all = self.peers_in.iter_mut().map(|(_, peer)| peer.link.unsent()).sum();
        unsent + bytes <= FRONT_REPLIES_MAX && fits(answer, all)
    }

    /// What the node says of itself, for each front. One that takes nothing hears the next beat instead.
    fn tell_fronts(&mut self, mut heartbeat: Heartbeat) {
        heartbeat.said.at = self.os.since_boot();
        let is_front = |peer: &PeerIn| peer.from == Some(Named::Front) && peer.link.unsent() < BEATS_MAX;
        for (_, front) in self.peers_in.iter_mut().filter(|(_, peer)| is_front(peer)) {
            front.push(&Packet::Message(Message::Heartbeat(heartbeat)));
        }
    }

    /// Takes readings that peers have told all.
    fn hear_group(&mut self) {
        let (sensing, replica, os) = (&mut self.sensing, &self.replica, &self.os);
        if let Some(group) = self.group.as_mut().filter(|group| group.is_readable) {
            group.hear(&mut self.scratch, &self.speaker, |from, reports| {
                sensing.received(replica, from, reports, os.now(), os.since_boot());
            });
        }
    }

    fn peer_turn(&mut self, place: usize) {
        let Some(peer) = self.peers_in.get_mut(place) else {
            return;
        };
        let (number, was) = (peer.number, peer.from);
        let (asked, events, passed) = (&mut self.asked, &mut self.events, &mut self.passed);
        let (sensing, replica, os, spans) = (&mut self.sensing, &self.replica, &self.os, &mut self.spans);
        let group = &mut self.group;
        let (mut greets, mut begins_to_hear, mut readings) = (false, false, Vec::new());
        let turn = peer.turn(&mut self.scratch, self.setup.federation, |heard| match heard {
            Heard::Front => greets = true,
            Heard::Hear => begins_to_hear = true,
            Heard::Message(from, message) => events.push_back(Event::Message(from, message)),
            Heard::Readings(from, reports) => sensing.received(replica, from, &reports, os.now(), os.since_boot()),
            Heard::Taken(from, stamp, taken) => sensing.heard(replica, from, stamp, &taken),
            Heard::Key(from, secret) => group.iter_mut().for_each(|group| group.learns(from, &secret)),
            Heard::Request(ticket, request) => {
                *asked += 1;
                let connection = number;
                passed.insert(
                    *asked,
                    Passed {
                        place,
                        connection,
                        ticket,
                        leaves_nothing: request.work.leaves_nothing(),
                    },
                );
                if request.work.is_of_memory() {
                    readings.push((*asked, request));
                    return;
                }
                spans.begins(*asked, &request, Place::Queue, os.now());
                events.push_back(Event::Request(*asked, request));
            }
        });
        self.peer_bytes.read += std::mem::take(&mut peer.link.bytes.read);
        if greets {
            peer.push(&self.hello);
        }
        let clients = peer.clients;
        if begins_to_hear {
            peer.push(&Packet::Changed(self.node.applied(), Vec::new()));
        }
        let node = match peer.from {
            Some(Named::Node(from)) => Some(from.node),
            Some(Named::Front) | None => None,
        };
        if let Some(node) = node.filter(|_| was.is_none()) {
            self.latest.insert(node, number);
            self.peers
                .get_mut(&node)
                .into_iter()
                .for_each(|peer| peer.way.is_there());
            clients.and_then(|clients| self.found_at.insert(node, clients));
        }
        let now = self.os.now();
        for (ticket, request) in readings {
            self.sense(ticket, request, now);
        }
        match turn {
            Ok(true) => self.again.push(place),
            Ok(false) => {}
            Err(gone) => {
                self.peers_in.remove(place);
                let is_plain = match &gone {
                    PeerGone::Io(error) => error.kind() != io::ErrorKind::InvalidData,
                    gone => matches!(gone, PeerGone::Ended),
                };
                if !is_plain {
                    self.note(format!("a connection of a peer was ended: {gone}"));
                }
                if let Some(node) = node.filter(|node| self.latest.get(node) == Some(&number)) {
                    self.latest.remove(&node);
                    self.events.push_back(Event::Reset(node));
                }
            }
        }
    }

    /// Ends connections that stall.
    fn look(&mut self, now: Time) {
        self.clients.look(self.poll.registry(), now);
        let stalled = self.peers_in.iter_mut().filter(|(_, peer)| peer.is_stalled(now));
        let stalled: Vec<usize> = stalled.map(|(place, _)| place).collect();
        for place in stalled {
            self.peers_in.remove(place);
        }
        self.sensing.look(&self.replica);
        self.sweep();
        self.publish(now);
        // A listener without descriptors to give tells nothing further by itself.
        self.accept();
    }

    /// What is answered is sent, as far as sockets take it at once.
    fn say_goodbye(&mut self) {
        self.clients.say_goodbye();
        for (_, peer) in self.peers_in.iter_mut() {
            peer.link.is_writable = true;
            // The connection ends in any case.
            drop(peer.link.flush());
        }
    }
}
