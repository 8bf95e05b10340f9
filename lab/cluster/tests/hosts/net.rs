//! A network in virtual time. Bytes arrive in their order, late and in pieces; links are cut and heal; a host that is
//! killed resets its connections, one that is switched off leaves half-open ones.
//!
//! `conformance` checks these properties on sockets of the system, too: bytes arrive in their order, a full buffer
//! takes nothing until the other side reads, an end comes behind the last byte, unread bytes reset a connection, a
//! connection without a listener is refused, and a waker ends a wait. Cuts and hosts that are off are checked nowhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::Token;
use punctual_server::ServeError;
use punctual_server::net::{Net, Remote, Socket, Waker};
use punctual_server::stream::Ready;
use punctual_units::{Nanos, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::os::WorldClock;

/// The most clients that wait at a listener.
const CONNECTING_MAX: usize = 128;
/// The first port that a request for any port gets.
const ANY_PORT: u16 = 40_000;

/// Number of a host.
pub type Host = u32;
type End = u64;

/// How a network treats bytes.
#[derive(Clone, Copy, Debug)]
pub struct NetSettings {
    /// The longest time on the way.
    pub delay_max: Nanos,
    /// The most bytes that arrive together.
    pub piece_max: usize,
    /// Bytes of a direction of a connection that are sent and not read.
    pub buffer: usize,
}

impl Default for NetSettings {
    fn default() -> NetSettings {
        NetSettings {
            delay_max: Nanos::from_micros(300),
            piece_max: 4096,
            buffer: 64 << 10,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Address(SocketAddr),
    File(PathBuf),
}

/// What is on the way to an end of a connection.
#[derive(Debug)]
enum Flight {
    Begin(Place),
    Established,
    Bytes(Vec<u8>),
    /// The other side has read so many bytes.
    Read(usize),
    /// No more bytes come.
    Ended,
    Reset,
    /// All that was held is sent again.
    Again,
}

#[derive(Debug)]
struct Side {
    host: Host,
    token: Option<Token>,
    other: End,
    other_host: Host,
    addresses: Option<[SocketAddr; 2]>,
    is_established: bool,
    inbox: VecDeque<u8>,
    is_ended: bool,
    failed: Option<ErrorKind>,
    /// Bytes that were sent and not read.
    unread: usize,
    /// Whether a write found no room.
    wants_room: bool,
    /// When the last flight from here arrives.
    last_arrival: Time,
    /// Flights to this side that wait until they are sent again, after the link has healed.
    held: VecDeque<Flight>,
}

#[derive(Debug, Default)]
struct HostState {
    ready: BTreeMap<Token, Ready>,
    /// Clients that wait at each listener.
    listeners: BTreeMap<Token, (Place, VecDeque<End>)>,
}

struct State {
    clock: WorldClock,
    settings: NetSettings,
    random: ChaCha8Rng,
    hosts: BTreeMap<Host, HostState>,
    sides: BTreeMap<End, Side>,
    listening: BTreeMap<Place, (Host, Token)>,
    flights: BTreeMap<(Time, u64), (End, Flight)>,
    /// Links that are cut, and since when.
    cuts: BTreeMap<(Host, Host), Time>,
    /// Hosts with something to look at.
    news: BTreeSet<Host>,
    /// Hosts that answer nothing, not even that a connection is gone.
    off: BTreeSet<Host>,
    numbers: u64,
    ports: u16,
}

/// The network, as its world has it.
#[derive(Clone)]
pub struct Network(Arc<Mutex<State>>);

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Network(at {:?})", self.state().clock.now())
    }
}

fn pair(one: Host, other: Host) -> (Host, Host) {
    (one.min(other), one.max(other))
}

impl Network {
    pub fn new(clock: &WorldClock, settings: NetSettings, seed: u64) -> Network {
        Network(Arc::new(Mutex::new(State {
            clock: clock.clone(),
            settings,
            random: ChaCha8Rng::seed_from_u64(seed),
            hosts: BTreeMap::new(),
            sides: BTreeMap::new(),
            listening: BTreeMap::new(),
            flights: BTreeMap::new(),
            cuts: BTreeMap::new(),
            news: BTreeSet::new(),
            off: BTreeSet::new(),
            numbers: 0,
            ports: ANY_PORT,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network as a host has it.
    pub fn of(&self, host: Host) -> HostNet {
        let mut state = self.state();
        state.off.remove(&host);
        state.hosts.entry(host).or_default();
        drop(state);
        HostNet {
            network: self.clone(),
            host,
        }
    }

    /// An address of a host; each is reached by this machine alone.
    pub fn address(host: Host, port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, (host >> 8) as u8, host as u8)), port)
    }

    /// When the next flight arrives.
    pub fn next_due(&self) -> Time {
        let state = self.state();
        state.flights.first_key_value().map_or(Time::MAX, |((at, _), _)| *at)
    }

    /// Hosts that have something to look at.
    pub fn news(&self) -> Vec<Host> {
        self.state().news.iter().copied().collect()
    }

    /// Has all flights arrive that are due.
    pub fn arrive(&self) {
        let mut state = self.state();
        let now = state.clock.now();
        while let Some(first) = state.flights.first_entry()
            && first.key().0 <= now
        {
            let (end, flight) = first.remove();
            state.arrives(end, flight);
        }
    }

    /// Holds all bytes between two hosts until the link heals.
    pub fn cut(&self, one: Host, other: Host) {
        let mut state = self.state();
        let now = state.clock.now();
        state.cuts.entry(pair(one, other)).or_insert(now);
    }

    /// Heals a link. Each direction of a connection sends again after at most the length of the cut, because TCP waits
    /// twice as long after each loss.
    pub fn heal(&self, one: Host, other: Host) {
        let mut state = self.state();
        let now = state.clock.now();
        let Some(since) = state.cuts.remove(&pair(one, other)) else {
            return;
        };
        let is_held = |side: &Side| pair(side.host, side.other_host) == pair(one, other) && !side.held.is_empty();
        let held: Vec<End> = state
            .sides
            .iter()
            .filter(|(_, side)| is_held(side))
            .map(|(end, _)| *end)
            .collect();
        for end in held {
            let wait = Nanos(state.random.random_range(0..=now.since(since).0));
            let number = state.number();
            state.flights.insert((now + wait, number), (end, Flight::Again));
        }
    }

    /// Whether bytes wait that are to be sent again.
    pub fn holds(&self) -> bool {
        self.state().sides.values().any(|side| !side.held.is_empty())
    }

    /// Ends one direction of a connection, by its descriptor.
    pub fn ends(&self, descriptor: i32) {
        self.state().send(descriptor as End, Flight::Ended);
    }

    /// Ends a host's process; its connections are reset, and its ports are closed.
    pub fn kill(&self, host: Host) {
        let mut state = self.state();
        let ends: Vec<End> = state
            .sides
            .iter()
            .filter(|(_, side)| side.host == host)
            .map(|(end, _)| *end)
            .collect();
        for end in ends {
            state.send(end, Flight::Reset);
            state.sides.remove(&end);
        }
        state.forget(host);
    }

    /// Switches a host off: other hosts do not learn of it before the host begins anew.
    pub fn switch_off(&self, host: Host) {
        let mut state = self.state();
        state.sides.retain(|_, side| side.host != host);
        state.off.insert(host);
        state.forget(host);
    }
}

impl State {
    fn forget(&mut self, host: Host) {
        self.hosts.insert(host, HostState::default());
        self.news.remove(&host);
        self.listening.retain(|_, (at, _)| *at != host);
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn ready(&mut self, host: Host, token: Token, more: Ready) {
        if let Some(state) = self.hosts.get_mut(&host) {
            self.news.insert(host);
            let ready = state.ready.entry(token).or_default();
            ready.reads |= more.reads || more.ends;
            ready.writes |= more.writes;
            ready.ends |= more.ends;
        }
    }

    fn side_ready(&mut self, end: End, more: Ready) {
        if let Some(side) = self.sides.get(&end)
            && let Some(token) = side.token
        {
            let host = side.host;
            self.ready(host, token, more);
        }
    }

    /// Sends a flight to the other side, behind all before it.
    fn send(&mut self, from: End, flight: Flight) {
        let delay = Nanos(self.random.random_range(1..=self.settings.delay_max.0));
        let now = self.clock.now();
        if let Some(side) = self.sides.get_mut(&from) {
            side.last_arrival = side.last_arrival.max(now + delay);
            let (at, to) = (side.last_arrival, side.other);
            let number = self.number();
            self.flights.insert((at, number), (to, flight));
        }
    }

    fn arrives(&mut self, end: End, flight: Flight) {
        let Some(side) = self.sides.get_mut(&end) else {
            // Bytes for a connection that is not there any more reset it.
            if let Flight::Begin(place) = flight {
                self.begins(end, place);
            } else if let (Flight::Bytes(_), Some(from)) = (&flight, self.other_of(end))
                && !self.off.contains(&self.sides[&from].other_host)
            {
                // Behind all that was sent before.
                let to_it = self.flights.iter().filter(|(_, (to, _))| *to == from);
                let at = to_it.map(|((at, _), _)| *at).fold(self.clock.now(), Time::max);
                let number = self.number();
                self.flights.insert((at, number), (from, Flight::Reset));
            }
            return;
        };
        let is_cut = self.cuts.contains_key(&pair(side.host, side.other_host));
        if let Flight::Again = flight {
            if !is_cut {
                let held = std::mem::take(&mut side.held);
                held.into_iter().for_each(|flight| self.arrives(end, flight));
            }
            return;
        }
        if is_cut || !side.held.is_empty() {
            side.held.push_back(flight);
            return;
        }
        let (reads, writes, ends) = match flight {
            Flight::Begin(_) | Flight::Again => return,
            Flight::Established => {
                side.is_established = true;
                (false, true, false)
            }
            Flight::Reset => return self.fails(end, ErrorKind::ConnectionReset),
            Flight::Bytes(bytes) => {
                side.inbox.extend(bytes);
                (true, false, false)
            }
            Flight::Read(count) => {
                side.unread -= count;
                (false, std::mem::take(&mut side.wants_room), false)
            }
            Flight::Ended => {
                side.is_ended = true;
                (true, false, true)
            }
        };
        self.side_ready(end, Ready { reads, writes, ends });
    }

    /// The side whose other side is `end`.
    fn other_of(&self, end: End) -> Option<End> {
        self.sides
            .iter()
            .find(|(_, side)| side.other == end)
            .map(|(from, _)| *from)
    }

    fn fails(&mut self, end: End, why: ErrorKind) {
        if let Some(side) = self.sides.get_mut(&end) {
            side.failed.get_or_insert(why);
        }
        let all = Ready {
            reads: true,
            writes: true,
            ends: true,
        };
        self.side_ready(end, all);
    }

    /// A connection reaches the place for which it was begun; `end` is to be its other side.
    fn begins(&mut self, end: End, place: Place) {
        let Some(from) = self.other_of(end) else { return };
        let (host, addresses) = (self.sides[&from].host, self.sides[&from].addresses);
        let to = self.listening.get(&place).copied();
        let is_off = |at: &SocketAddr| self.off.iter().any(|host| Network::address(*host, at.port()) == *at);
        if to.is_some_and(|(to, _)| self.cuts.contains_key(&pair(host, to)))
            || matches!(&place, Place::Address(at) if is_off(at))
        {
            // Tried again, as TCP does.
            let (at, number) = (self.clock.now() + Nanos::from_millis(200), self.number());
            self.flights.insert((at, number), (end, Flight::Begin(place)));
            return;
        }
        let Some((to, token)) = to.filter(|at| self.waiting(*at).len() < CONNECTING_MAX) else {
            return self.fails(from, ErrorKind::ConnectionRefused);
        };
        self.waiting((to, token)).push_back(end);
        let side = Side {
            host: to,
            token: None,
            other: from,
            other_host: host,
            addresses: addresses.map(|[here, there]| [there, here]),
            is_established: true,
            inbox: VecDeque::new(),
            is_ended: false,
            failed: None,
            unread: 0,
            wants_room: false,
            last_arrival: self.clock.now(),
            held: VecDeque::new(),
        };
        self.sides.insert(end, side);
        if let Some(side) = self.sides.get_mut(&from) {
            side.other_host = to;
        }
        self.send(end, Flight::Established);
        let reads = Ready {
            reads: true,
            ..Ready::default()
        };
        self.ready(to, token, reads);
    }

    fn waiting(&mut self, (host, token): (Host, Token)) -> &mut VecDeque<End> {
        let host = self.hosts.entry(host).or_default();
        &mut host.listeners.get_mut(&token).expect("it listens").1
    }

    fn listen(&mut self, host: Host, place: Place, token: Token) -> io::Result<()> {
        if self.listening.contains_key(&place) {
            return Err(ErrorKind::AddrInUse.into());
        }
        self.listening.insert(place.clone(), (host, token));
        let host = self.hosts.entry(host).or_default();
        host.listeners.insert(token, (place, VecDeque::new()));
        Ok(())
    }
}

/// The network of one host.
#[derive(Clone)]
pub struct HostNet {
    network: Network,
    host: Host,
}

impl fmt::Debug for HostNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostNet({})", self.host)
    }
}

impl HostNet {
    fn socket(&self, end: End) -> Box<dyn Socket> {
        Box::new(HostSocket {
            network: self.network.clone(),
            end,
        })
    }
}

impl Net for HostNet {
    fn listen(&mut self, mut at: SocketAddr, token: Token) -> io::Result<SocketAddr> {
        let mut state = self.network.state();
        if at.port() == 0 {
            state.ports += 1;
            at.set_port(state.ports);
        }
        state.listen(self.host, Place::Address(at), token)?;
        Ok(at)
    }

    fn listen_locally(&mut self, at: &Path, _mode: u32, token: Token) -> Result<(), ServeError> {
        let listens = self
            .network
            .state()
            .listen(self.host, Place::File(at.to_owned()), token);
        listens.map_err(ServeError::of(at.display()))
    }

    fn close(&mut self, listener: Token) {
        let mut state = self.network.state();
        let host = state.hosts.entry(self.host).or_default();
        let Some((place, waiting)) = host.listeners.remove(&listener) else {
            return;
        };
        host.ready.remove(&listener);
        state.listening.remove(&place);
        for end in waiting {
            state.send(end, Flight::Reset);
            state.sides.remove(&end);
        }
    }

    fn accept(&mut self, listener: Token, token: Token) -> io::Result<Box<dyn Socket>> {
        let mut state = self.network.state();
        let host = state.hosts.entry(self.host).or_default();
        let waiting = host
            .listeners
            .get_mut(&listener)
            .and_then(|(_, waiting)| waiting.pop_front());
        let end = waiting.ok_or(ErrorKind::WouldBlock)?;
        let side = state.sides.get_mut(&end).expect("it waits");
        side.token = Some(token);
        let ready = Ready {
            reads: !side.inbox.is_empty(),
            writes: true,
            ends: side.is_ended || side.failed.is_some(),
        };
        state.side_ready(end, ready);
        drop(state);
        Ok(self.socket(end))
    }

    fn connect(&mut self, to: Remote<'_>, token: Token) -> io::Result<Box<dyn Socket>> {
        let mut state = self.network.state();
        let (end, other) = (state.number(), state.number());
        let (place, addresses) = match to {
            Remote::Address(there) => {
                state.ports += 1;
                let here = Network::address(self.host, state.ports);
                (Place::Address(there), Some([here, there]))
            }
            Remote::File(path) => (Place::File(path.to_owned()), None),
        };
        if addresses.is_none() && !state.listening.contains_key(&place) {
            return Err(ErrorKind::NotFound.into());
        }
        let side = Side {
            host: self.host,
            token: Some(token),
            other,
            other_host: self.host,
            addresses,
            is_established: false,
            inbox: VecDeque::new(),
            is_ended: false,
            failed: None,
            unread: 0,
            wants_room: true,
            last_arrival: state.clock.now(),
            held: VecDeque::new(),
        };
        state.sides.insert(end, side);
        state.send(end, Flight::Begin(place));
        drop(state);
        Ok(self.socket(end))
    }

    /// Returns at once: the world calls it when there is something to look at.
    fn poll(&mut self, ready: &mut Vec<(Token, Ready)>, _wait: Nanos) -> io::Result<()> {
        let mut state = self.network.state();
        state.news.remove(&self.host);
        let host = state.hosts.entry(self.host).or_default();
        ready.extend(std::mem::take(&mut host.ready));
        Ok(())
    }

    fn waker(&self) -> Waker {
        let (network, host) = (self.network.clone(), self.host);
        Arc::new(move || _ = network.state().news.insert(host))
    }
}

struct HostSocket {
    network: Network,
    end: End,
}

impl fmt::Debug for HostSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostSocket({})", self.end)
    }
}

impl HostSocket {
    fn addresses(&self) -> io::Result<[SocketAddr; 2]> {
        let state = self.network.state();
        let side = state.sides.get(&self.end).ok_or(ErrorKind::NotConnected)?;
        Ok(side.addresses.ok_or(ErrorKind::AddrNotAvailable)?)
    }
}

impl Socket for HostSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addresses()?[0])
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addresses()?[1])
    }

    fn descriptor(&self) -> i32 {
        self.end as i32
    }
}

impl Read for HostSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.network.state();
        let side = state.sides.get_mut(&self.end).ok_or(ErrorKind::ConnectionReset)?;
        let count = buffer.len().min(side.inbox.len());
        // What has arrived is read before the failure shows.
        if let Some(failed) = side.failed.filter(|_| count == 0) {
            return Err(failed.into());
        }
        if count == 0 && !buffer.is_empty() {
            return if side.is_ended {
                Ok(0)
            } else {
                Err(ErrorKind::WouldBlock.into())
            };
        }
        for (to, byte) in buffer.iter_mut().zip(side.inbox.drain(..count)) {
            *to = byte;
        }
        state.send(self.end, Flight::Read(count));
        Ok(count)
    }
}

impl Write for HostSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.network.state();
        let NetSettings { piece_max, buffer, .. } = state.settings;
        let side = state.sides.get_mut(&self.end).ok_or(ErrorKind::BrokenPipe)?;
        if let Some(failed) = side.failed {
            return Err(failed.into());
        }
        let room = if side.is_established {
            buffer - side.unread.min(buffer)
        } else {
            0
        };
        let count = bytes.len().min(room);
        if count < bytes.len() {
            side.wants_room = true;
        }
        if count == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        side.unread += count;
        let mut rest = &bytes[..count];
        while !rest.is_empty() {
            let piece = state.random.random_range(1..=piece_max.min(rest.len()));
            let (now, later) = rest.split_at(piece);
            state.send(self.end, Flight::Bytes(now.to_vec()));
            rest = later;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for HostSocket {
    fn drop(&mut self) {
        let mut state = self.network.state();
        if let Some(side) = state.sides.get(&self.end) {
            let (host, token) = (side.host, side.token);
            // What is not read resets the connection.
            let flight = if side.inbox.is_empty() {
                Flight::Ended
            } else {
                Flight::Reset
            };
            state.send(self.end, flight);
            state.sides.remove(&self.end);
            if let (Some(token), Some(host)) = (token, state.hosts.get_mut(&host)) {
                host.ready.remove(&token);
            }
        }
    }
}
