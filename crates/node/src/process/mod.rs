//! The event loop of a node: its state machine and all of its sockets, without a blocking call. The loop of a balancer
//! ([`balance`]) is made of the same parts.

mod access;
pub mod balance;
mod clients;
mod link;
mod log;
mod peers;
mod places;
mod telling;
mod temporal;
mod way;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
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
use self::log::LogLink;
use self::peers::{Heard, Named, PeerGone, PeerIn, PeerOut, Trouble};
use self::places::Places;
use self::temporal::Waiting;
use crate::bound::{Asked, Bound, Outcome};
use crate::changes;
use crate::figures::{Bytes, Figures};
use crate::making::Maker;
use crate::own::OwnReading;
use crate::seen::{Seen, What};
use crate::sensing::{Sensing, Temporal};
use crate::spans::{Place, Spans};
use crate::stores::{Failed, Stores, Task};
use crate::wire::{Packet, Readings, VERSION};

/// The first wait before a connection that failed is tried again; each next one is twice as long, up to [`RETRY_MAX`].
pub const RETRY_FIRST: Nanos = Nanos::from_millis(10);
/// The longest wait before a connection that failed is tried again.
pub const RETRY_MAX: Nanos = Nanos::from_millis(250);
/// The most TLS handshakes that go on in one turn: each costs a signature, some tenths of a millisecond.
const HANDSHAKES_TURN: usize = 8;
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

const WAKER: Token = Token(0);
const CLIENTS: Token = Token(1);
const PEERS: Token = Token(2);
const ASK: Token = Token(3);
const WATCH: Token = Token(4);
/// First token of connections that clients have dialled.
const FIRST_CLIENT: usize = 1 << 16;
/// First token of connections that peers and balancers have dialled.
const FIRST_PEER: usize = 1 << 32;
/// First token of connections to peers; the peer's number, of 32 bits, is added.
const OUT: usize = 1 << 33;

/// A command to the node from the process that started it.
#[derive(Clone, Debug)]
pub enum Control {
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

/// The reason for which a node did not start, or has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Without users, no other machine may reach the clients' address.
    #[error(
        "{0}: without users, any machine that reaches this address could read and change all records: add a [[user]] \
         to the node's file, or have clients come to 127.0.0.1 or [::1]"
    )]
    OpenToClients(SocketAddr),
    /// Without TLS between nodes, other machines could take part as nodes.
    #[error(
        "{0}: without TLS between nodes, any machine that reaches this address could take part as a node: add \
         [federation.tls] to the node's file, or have nodes listen on 127.0.0.1 or [::1]"
    )]
    OpenToPeers(SocketAddr),
    /// Another program listens on the port.
    #[error("{0}: another program listens there: end it, or choose another port (0 takes a free one)")]
    InUse(SocketAddr),
    /// The system refused a call.
    #[error("{action}: {source}")]
    Io {
        /// The action that failed, for the message.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The store returned an error at the start.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A task of the store has failed.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The state machine has stopped the node.
    #[error(transparent)]
    Stopped(#[from] Stop),
}

/// Binds an address; port 0 takes a free one.
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

/// The bound sockets and the settings of a node that does not run yet.
#[derive(Debug)]
pub struct Listening {
    poll: Poll,
    waker: Arc<Waker>,
    clients: TcpListener,
    peers: TcpListener,
    access: Access,
    /// Processor time that each request takes beside what it needs: 0, except for a load of a given size.
    pub work: Nanos,
    /// Settings of temporal objects; the number of this start is at least `boot`.
    pub temporal: Temporal,
    /// The page of figures for Prometheus, if there is one.
    pub page: Option<Page>,
    /// Target of the control law that sets the backlog's bound, and where its model and decisions are left.
    pub bound: Option<(Asked, Arc<Mutex<Outcome>>)>,
    /// Figures of tasks in this process, if there are any; shown with the node's own.
    pub tasks: Option<Arc<Tasks>>,
    /// Objects that tasks of this process set; the loop takes their values whenever it wakes, at each heartbeat at the
    /// latest.
    pub own: Vec<Arc<OwnReading>>,
}

impl Listening {
    /// Binds two addresses of this machine, for clients and for peers; port 0 takes a free one.
    ///
    /// # Errors
    /// Any [`NodeError`], as for a port in use.
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
            bound: None,
            tasks: None,
            own: Vec::new(),
        })
    }

    /// The addresses for clients and for peers, with the ports that were taken.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn addresses(&self) -> Result<(SocketAddr, SocketAddr), NodeError> {
        let [clients, peers] = [&self.clients, &self.peers].map(|listener| listener.local_addr());
        Ok((clients.map_err(io("the address"))?, peers.map_err(io("the address"))?))
    }

    /// The waker that has the loop look at its [`Control`].
    pub fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Runs a node until it is ended, has left, or must stop. `tell` gets the notices, and must not wait.
    ///
    /// # Errors
    /// The reason for which the node had to stop.
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
        // If the waker fails, the loop notices the results at its next heartbeat.
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
        let process = Process {
            poll: self.poll,
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
            sensing: Sensing::new(me.node, temporal),
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
            tell,
        };
        let ended = process.run();
        stop.store(true, Ordering::SeqCst);
        if let Some(page) = page {
            // The page's thread ends at its next look; its result does not matter.
            drop(page.join());
        }
        ended
    }
}

/// The control law that sets the backlog's bound, and where its decisions are left.
struct Turned {
    bound: Bound,
    /// CPU time spent on closing periods so far.
    cpu: Nanos,
    outcome: Arc<Mutex<Outcome>>,
}

/// A request that a balancer has passed on.
#[derive(Clone, Copy, Debug)]
struct Passed {
    place: usize,
    /// Number of the connection, because slots are reused.
    connection: u32,
    ticket: u64,
    /// Whether the request may be called late although it was executed.
    leaves_nothing: bool,
}

struct Process<E: Engine, O: Os, T: FnMut(Seen)> {
    poll: Poll,
    access: Access,
    clients: Clients,
    listener: TcpListener,
    peers_in: Places<Box<PeerIn>>,
    ask: LogLink,
    watch: LogLink,
    /// Revision up to which the log has been watched.
    watched: Revision,
    watches: Ticket,
    /// No watch is requested before this instant.
    watch_at: Time,
    setup: Setup,
    node: Node,
    os: O,
    stores: Stores,
    peers: BTreeMap<NodeId, PeerOut>,
    /// Number of each peer's newest connection: only the end of that one shows that the peer is gone.
    latest: BTreeMap<NodeId, u32>,
    /// Address of each peer for clients.
    found_at: BTreeMap<NodeId, SocketAddr>,
    /// The first packet to each process that connects or is dialled.
    hello: Packet,
    /// Requests that balancers have passed on, by their tickets here.
    passed: BTreeMap<u64, Passed>,
    asked: u64,
    events: VecDeque<Event>,
    /// Slots of peers' connections that go on in the next round without an event.
    again: Vec<usize>,
    control: Receiver<Control>,
    trusts: Option<NodeId>,
    reigned: bool,
    served: bool,
    /// Bytes of records received with the last copy.
    copied: u64,
    copy_told: Time,
    /// When the node, which has left, ends.
    left: Option<Time>,
    /// The loop ends with this result once it is set.
    ends: Option<Result<(), NodeError>>,
    scratch: Vec<u8>,
    /// Used for readings of temporal objects only, which are in memory; all other calls of the store are left to its
    /// threads.
    replica: Arc<Replica<E, O>>,
    sensing: Sensing,
    maker: Maker,
    /// Clients' readings whose objects are being created.
    waiting: Vec<Waiting>,
    spans: Spans,
    /// Tickets of the master's present batch that belong to clients and balancers of this node.
    batch: Vec<u64>,
    /// The client's ticket of each query at the store.
    querying: BTreeMap<Ticket, u64>,
    peer_bytes: Bytes,
    /// Number of answers to balancers that were dropped for lack of room.
    unkept: u64,
    /// The entry that the store is applying.
    applying: Option<Arc<Entry>>,
    /// Whether a request to remove expired records is under way.
    sweeps: bool,
    started: Time,
    /// Figures for the page's thread, and the page's address, if there is one.
    published: Arc<Mutex<Option<Figures>>>,
    page: Option<SocketAddr>,
    /// The control law that sets the backlog's bound, if there is one.
    turned: Option<Turned>,
    /// Figures of tasks in this process.
    tasks: Option<Arc<Tasks>>,
    /// Objects that those tasks set.
    own: Vec<Arc<OwnReading>>,
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

    /// Time until the next action, unless an event comes before.
    fn wait(&self) -> Nanos {
        if !self.again.is_empty() || self.clients.has_more() {
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

    /// Passes all events to the state machine, carries out its actions, and sends what waits.
    fn carry_on(&mut self) {
        let now = self.os.now();
        self.turn_bound(now);
        self.set_own(now);
        self.ask.connect(self.poll.registry(), now);
        self.watch.connect(self.poll.registry(), now);
        let mut troubles = Vec::new();
        for (node, peer) in &mut self.peers {
            let trouble = peer.connect(self.poll.registry(), &self.access, &self.hello, now);
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
            // If the connection has ended, reading shows that.
            drop(front.flush(now));
            if front.has_more() {
                self.again.push(place); // it was not read while its answers waited
            }
        }
        if !self.waiting.is_empty() {
            self.settle(now);
        }
        let (sensing, os) = (&mut self.sensing, &self.os);
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

    /// Reports the changes of an applied entry to subscribed clients and balancers.
    fn tell_changes(&mut self, event: &Event) {
        let revision = match event {
            Event::Applied(revision) => *revision,
            Event::Installed(revision, _) => {
                // Balancers find the gap by the revisions.
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

    /// Reports the copy that the node receives: at its beginning, and every `COPY_TOLD_EVERY`.
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

    /// Reports to a process with the same name as another that the name is taken, on the connection that it has
    /// dialled. An address by name would lead to the other process.
    fn tell_namesake(&mut self, member: Member, message: &Message) {
        let is_it = |peer: &PeerIn| peer.from == Some(Named::Node(member)) && peer.link.unsent() == 0;
        for (_, peer) in self.peers_in.iter_mut().filter(|(_, peer)| is_it(peer)) {
            peer.push(&Packet::Message(message.clone()));
        }
    }

    /// Reports changes of master, role and standing, of which outages consist.
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

    /// Reads, answers and sends whatever clients' connections can at present.
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

    /// Begins a request that was read at `arrived`, under its ticket.
    fn begin(&mut self, ticket: u64, request: Request, arrived: Time, now: Time) {
        if request.work.is_of_memory() {
            self.sense(ticket, request, now);
        } else {
            self.spans.begins(ticket, &request, Place::Queue, arrived);
            self.events.push_back(Event::Request(ticket, request));
        }
    }

    /// Address of the master, if it is known, and of the other nodes, as the client at `place` reaches them.
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

    /// Requests the removal of expired records, as the master; without clients' transactions nothing else removes them.
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

    /// Whether an answer may wait for a balancer's socket.
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

    /// Sends the node's state and load to each balancer. A balancer that reads too slowly gets a later heartbeat
    /// instead.
    fn tell_fronts(&mut self, mut heartbeat: Heartbeat) {
        heartbeat.said.at = self.os.since_boot();
        let is_front = |peer: &PeerIn| peer.from == Some(Named::Front) && peer.link.unsent() < BEATS_MAX;
        for (_, front) in self.peers_in.iter_mut().filter(|(_, peer)| is_front(peer)) {
            front.push(&Packet::Message(Message::Heartbeat(heartbeat)));
        }
    }

    fn peer_turn(&mut self, place: usize) {
        let Some(peer) = self.peers_in.get_mut(place) else {
            return;
        };
        let (number, was) = (peer.number, peer.from);
        let (asked, events, passed) = (&mut self.asked, &mut self.events, &mut self.passed);
        let (sensing, replica, os, spans) = (&mut self.sensing, &self.replica, &self.os, &mut self.spans);
        let (mut greets, mut begins_to_hear, mut readings) = (false, false, Vec::new());
        let turn = peer.turn(&mut self.scratch, self.setup.federation, |heard| match heard {
            Heard::Front => greets = true,
            Heard::Hear => begins_to_hear = true,
            Heard::Message(from, message) => events.push_back(Event::Message(from, message)),
            Heard::Readings(from, reports) => sensing.received(replica, from, &reports, os.now(), os.since_boot()),
            Heard::Taken(from, stamp, taken) => sensing.heard(replica, from, stamp, &taken),
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

    /// Ends stalled connections, and does other work of every `LOOK_EVERY`.
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
        // A listener that had no descriptors sends no further event.
        self.accept();
    }

    /// Sends replies as far as sockets take them at once, before the connections end.
    fn say_goodbye(&mut self) {
        self.clients.say_goodbye();
        for (_, peer) in self.peers_in.iter_mut() {
            peer.link.is_writable = true;
            // An error does not matter: the connection ends anyway.
            drop(peer.link.flush());
        }
    }
}
