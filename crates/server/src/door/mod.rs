//! The door: all clients' connections of a process, whatever carries out their requests.
//!
//! **Problem.** A store that is served alone, a node and a balancer answer any client of Redis, and alike.
//!
//! **Method.** The host's event loop owns the door and a [`Backend`]. It reports readiness of sockets to the door,
//! and calls [`Door::serve`] whenever it wakes. A connection's bytes become requests as they arrive, each with the
//! instant of its last byte; its deadline counts from there. The session answers what concerns the connection, the
//! door what concerns all connections, and the backend the rest, without waiting. A connection has one work at the
//! backend at a time, so its replies come in the order of its requests.
//!
//! **Bounds.** While a connection's replies wait to be sent, or its requests to be carried out, the door reads no more
//! from it, so that TCP stops the client. [`MemoryLimits`] holds for all connections together.

mod connection;
mod memory;
mod requests;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use mio::Token;
use punctual_os::Os;
use punctual_units::{Nanos, Time};

use self::connection::Connection;
use self::memory::{ByteCounts, MemoryUse};
pub use self::memory::{HEARD_MAX, MemoryLimits};
use crate::commands::Verb;
use crate::link::{Bytes, Link};
use crate::net::{CLIENTS, LOCAL, Net, Socket, Waker};
use crate::prover::Prover;
use crate::resp::{ProtocolError, Writer};
use crate::session::{ServerSettings, Session};
use crate::slots::Slots;
use crate::stream::{Ready, Stream};
use crate::subscribers::{KeyNotice, Subscribers};
use crate::users::Users;
use crate::work::{Handle, JobReply, Work};

/// Drops a connection with more unsent bytes of replies than this: its client does not read.
pub const REPLIES_MAX: usize = 64 << 20;
/// Limit of matching and delivering messages in one turn, in bytes compared and bytes copied.
pub(crate) const STEPS_TURN: usize = 4 << 20;
/// The most changes of keys that wait to be delivered; those beyond are counted as missed.
const TELLING_MAX: usize = 65_536;

/// Carries out the work of connections: a store, a node or a balancer. No method waits.
pub trait Backend {
    /// The most commands of a connection in one work.
    const RUN_MAX: usize;

    /// Whether a command may follow `first` in one work.
    fn joins(_first: Verb, _next: Verb) -> bool {
        true
    }

    /// The present time, by the clock of deadlines.
    fn now(&self) -> Time;

    /// Takes work. Returns whether its result follows, by [`next_done`](Backend::next_done); if not, the reply is
    /// written.
    fn take(&mut self, work: Work, asker: Asker<'_>) -> bool;

    /// Takes a result, if there is one. Replies of more than `room` bytes have no room.
    fn next_done(&mut self, room: usize) -> Option<JobReply>;

    /// Counts a request that was late before it began; returns the time after which to try again.
    fn late(&mut self, _arrived: Time, _now: Time) -> Nanos {
        Nanos::ZERO
    }

    /// Number of other nodes that have all that the client of connection `id` has written.
    fn copies(&mut self, _id: u64, _now: Time) -> usize {
        0
    }

    /// The reply to INFO with these sections; with all, if none is named.
    fn info(&mut self, door: &DoorState, sections: &[String], now: Time) -> String;

    /// Where the master is, if this process is a replica, and the last revision that it has applied. `None` as its
    /// address: the master is not known.
    fn replicates(&mut self, _now: Time) -> Option<(Option<SocketAddr>, u64)> {
        None
    }

    /// Makes the state of connection `id` as new.
    fn resets(&mut self, _id: u64) {}

    /// Forgets connection `id`, which has ended. Returns whether the result of its work still follows.
    fn ends(&mut self, id: u64) -> bool;
}

/// A client that asks for work.
pub struct Asker<'c> {
    /// Slot of the connection.
    pub place: usize,
    /// State of the client's conversation.
    pub session: &'c Session,
    /// The socket with its unsent replies.
    pub link: &'c mut Link,
    /// When the request was read.
    pub arrived: Time,
    /// When the request begins.
    pub now: Time,
}

impl Asker<'_> {
    /// Identifies the connection for the result.
    pub fn handle(&self) -> Handle {
        let (place, id) = (self.place, self.session.id);
        Handle { place, id }
    }

    /// The address of this process to which the client has connected.
    pub fn here(&mut self) -> Option<SocketAddr> {
        self.link.stream.socket().local_addr().ok()
    }

    /// Writes replies to the client.
    pub fn out(&mut self) -> Writer<'_> {
        Writer::new(&mut self.link.out, self.session.version)
    }
}

/// Connections and attempts to log in, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Connections, refused ones included.
    pub begun: u64,
    /// Connections refused for lack of a slot.
    pub refused: u64,
    /// Connections that ended because their clients did not read, stalled or took too much.
    pub dropped: u64,
    /// Wrong passwords, over all connections.
    pub wrong_passwords: u64,
}

/// State of the door, for figures.
#[derive(Clone, Copy, Debug, Default)]
pub struct DoorState {
    /// Time since the start.
    pub uptime: Nanos,
    /// Number of connections now.
    pub connections: usize,
    /// Counts since the start.
    pub totals: Totals,
    /// Memory of all connections, in bytes.
    pub bytes: usize,
    /// Unsent bytes of all replies.
    pub unsent: usize,
    /// Number of works whose connections have ended.
    pub orphans: usize,
    /// Number of channels and of patterns with subscribers.
    pub subscriptions: (usize, usize),
    /// Bytes read from and written to connections.
    pub traffic: Bytes,
}

/// Settings of a door.
pub struct DoorOptions {
    /// The most connections at a time.
    pub connections_max: usize,
    /// Token of the first connection; later ones have the next.
    pub first_token: usize,
    /// Time for which a client may be silent in the middle of a request, or leave replies without reading any.
    pub stalled_max: Nanos,
    /// Limits of the memory of all connections together.
    pub memory: MemoryLimits,
    /// Settings of each connection's session.
    pub settings: ServerSettings,
    /// Users and their rights.
    pub users: Arc<Users>,
    /// Makes the stream of a socket that was accepted; `None` if TLS cannot begin.
    pub stream: Box<dyn FnMut(Box<dyn Socket>) -> Option<Stream> + Send>,
}

/// All clients' connections of a process.
pub struct Door {
    /// Whether requests begin.
    is_open: bool,
    /// A Unix socket at which clients connect, too.
    local: Option<PathBuf>,
    /// Whether clients may be waiting to be accepted.
    accepts: bool,
    options: DoorOptions,
    slots: Slots<Connection>,
    /// Slots of connections that wait for room to be read.
    short_of_room: BTreeSet<usize>,
    totals: Totals,
    memory: MemoryUse,
    traffic: Bytes,
    /// Checks passwords, if there are users.
    prover: Option<Prover>,
    subscribers: Subscribers,
    /// Changes of keys that wait to be delivered.
    telling: VecDeque<KeyNotice>,
    /// Bytes matched and copied in this turn, bounded by [`STEPS_TURN`].
    spent: usize,
    started: Time,
    scratch: Vec<u8>,
}

impl Door {
    /// Makes the door of the listeners [`CLIENTS`] and, with a path, [`LOCAL`]. `wake` has the host's loop look for
    /// results of password checks.
    ///
    /// # Errors
    /// The system refuses the thread that checks passwords.
    pub fn new(local: Option<PathBuf>, options: DoorOptions, os: &impl Os, wake: Waker) -> io::Result<Door> {
        let users = &options.users;
        let prover = (!users.is_empty()).then(|| Prover::start(Arc::clone(users), os, wake));
        Ok(Door {
            is_open: true,
            local,
            accepts: false,
            slots: Slots::new(options.connections_max, options.first_token),
            short_of_room: BTreeSet::new(),
            totals: Totals::default(),
            memory: MemoryUse {
                limits: options.memory,
                share: options.memory.all / options.connections_max.max(1),
                counted: ByteCounts::default(),
                orphans: HashMap::new(),
            },
            traffic: Bytes::default(),
            prover: prover.transpose()?,
            subscribers: Subscribers::default(),
            telling: VecDeque::new(),
            spent: 0,
            started: os.now(),
            scratch: Vec::new(),
            options,
        })
    }

    /// State of the door, for figures.
    pub fn state(&self, now: Time) -> DoorState {
        DoorState {
            uptime: now.since(self.started),
            connections: self.slots.taken(),
            totals: self.totals,
            bytes: self.memory.counted.all,
            unsent: self.memory.counted.replies,
            orphans: self.memory.orphans.len(),
            subscriptions: self.subscribers.counts(),
            traffic: self.traffic,
        }
    }

    /// Takes note that clients may be waiting to be accepted.
    pub fn listener_ready(&mut self) {
        self.accepts = self.is_open;
    }

    /// Takes note that a client's socket can be read or written, or that clients wait.
    pub fn ready(&mut self, token: Token, ready: Ready) {
        match token {
            CLIENTS | LOCAL => self.listener_ready(),
            token => self.slots.ready(token, ready),
        }
    }

    /// Whether there is something to do without an event.
    pub fn has_more(&self) -> bool {
        let has_room = !self.short_of_room.is_empty() && self.memory.has_room_for_requests();
        self.accepts || !self.slots.again.is_empty() || !self.telling.is_empty() || has_room
    }

    /// Whether any client subscribes to a channel or a pattern.
    pub fn hears(&self) -> bool {
        self.subscribers.counts() != (0, 0)
    }

    /// Number of changes of keys that wait to be delivered.
    pub fn telling(&self) -> usize {
        self.telling.len()
    }

    /// Queues changes for the subscribers; none if there are no subscribers.
    pub fn tell(&mut self, told: impl IntoIterator<Item = KeyNotice>) {
        if !self.hears() {
            return;
        }
        for told in told {
            let is_full = self.telling.len() >= TELLING_MAX;
            let lost = match &told {
                KeyNotice::Missed(missed) => *missed,
                _ => 1,
            };
            match self.telling.back_mut() {
                Some(KeyNotice::Missed(missed)) if is_full => *missed += lost,
                _ if is_full => self.telling.push_back(KeyNotice::Missed(lost)),
                _ => self.telling.push_back(told),
            }
        }
    }

    /// Takes results, and gives each connection concerned its turn.
    pub fn serve(&mut self, backend: &mut impl Backend) {
        let now = backend.now();
        while let Some(done) = backend.next_done(self.memory.room()) {
            self.finish(done, now);
        }
        self.take_judged(now);
        self.tell_some(now);
        if self.memory.has_room_for_requests() {
            self.slots.again.extend(std::mem::take(&mut self.short_of_room));
        }
        for place in self.slots.due() {
            self.turn(place, backend);
        }
    }

    /// Accepts waiting clients, as many as one turn of the loop takes.
    pub fn accept(&mut self, net: &mut dyn Net, now: Time) {
        if !self.accepts {
            return;
        }
        let (options, totals) = (&mut self.options, &mut self.totals);
        let mut begin = |socket, place: Option<usize>, is_local| {
            totals.begun += 1;
            let stream = match is_local {
                true => Some(Stream::Plain(socket)),
                false => (options.stream)(socket),
            };
            let stream = match (stream, place) {
                (Some(stream), Some(_)) => stream,
                (refused, _) => {
                    totals.refused += 1;
                    // As far as the socket takes it at once. With TLS, no error can be sent before the handshake.
                    if let Some(Stream::Plain(mut socket)) = refused {
                        drop(socket.write(b"-ERR max number of clients reached\r\n"));
                    }
                    return None;
                }
            };
            let session = Session::of(totals.begun, Arc::clone(&options.users));
            let mut connection = Connection::new(stream, session, now);
            connection.is_local = is_local;
            Some(connection)
        };
        let slots = &mut self.slots;
        self.accepts = slots.accept(net, CLIENTS, |socket, at| begin(socket, at, false));
        if self.local.is_some() {
            self.accepts |= slots.accept(net, LOCAL, |socket, at| begin(socket, at, true));
        }
    }

    /// Reads, begins and sends whatever a connection can at present.
    fn turn(&mut self, place: usize, backend: &mut impl Backend) {
        let Some(connection) = self.slots.get_mut(place) else {
            return;
        };
        // Once the door is closed, replies are sent, and nothing else begins.
        let is_open = self.is_open;
        let read = match is_open && connection.reads(&self.memory) {
            true => connection.read(&self.options.settings, &mut self.scratch, || backend.now()),
            false => Ok(()),
        };
        // No request begins while this connection has more than its share and all together have too much: the backend
        // keeps the bytes of work until it is done, even if the connection ends.
        let mut has_too_much = self.memory.count(connection);
        self.spent = 0;
        if read.is_ok() && is_open && !has_too_much {
            self.advance(place, backend);
        }
        let Some(connection) = self.slots.get_mut(place) else {
            return;
        };
        if connection.link.has_end
            && connection.session.is_claiming()
            && let Some(prover) = &self.prover
        {
            let id = connection.session.id;
            prover.closed(Handle { place, id });
        }
        let result = read.and_then(|()| connection.flush(|| backend.now()));
        has_too_much |= self.memory.count(connection);
        let traffic = std::mem::take(&mut connection.link.bytes);
        self.traffic.read += traffic.read;
        self.traffic.written += traffic.written;
        let unsent = connection.link.unsent();
        let is_done = connection.is_closing || connection.is_ended && connection.is_idle();
        let is_over = result.is_err() || is_done && !connection.is_away && unsent == 0;
        let is_slow = unsent > REPLIES_MAX || connection.is_behind || has_too_much;
        let begins = !connection.is_idle() || connection.broken.is_some();
        let has_more = begins && connection.may_begin(&self.memory)
            || connection.link.is_readable && connection.reads(&self.memory);
        self.totals.dropped += u64::from(is_slow);
        if is_over || is_slow {
            self.end(place, backend);
        } else if has_more && is_open {
            self.slots.again.push(place);
        } else if connection.is_short_of_room(&self.memory) {
            self.short_of_room.insert(place);
        }
    }

    fn end(&mut self, place: usize, backend: &mut impl Backend) {
        if let Some(mut connection) = self.slots.remove(place) {
            connection.link.stream.end();
            self.subscribers.forget(place, &connection.session);
            self.short_of_room.remove(&place);
            let (id, is_claiming) = (connection.session.id, connection.session.is_claiming());
            if let Some(prover) = self.prover.as_ref().filter(|_| is_claiming) {
                prover.forget(Handle { place, id });
            }
            let is_orphan = backend.ends(id) && connection.is_away && !is_claiming;
            self.memory.ends(&connection, is_orphan);
        }
    }

    /// Ends stalled connections, and has waiting clients accepted: a listener that had no descriptors sends no further
    /// event. To be called a few times a second.
    pub fn look(&mut self, backend: &mut impl Backend, now: Time) {
        self.listener_ready();
        let (stalled, memory) = (self.options.stalled_max, &self.memory);
        let is_gone = |connection: &Connection| {
            connection.is_slow(now, stalled) || connection.is_silent(now, stalled) && !connection.is_away
        };
        // If more would be read, the parser holds no whole request.
        let is_half = |connection: &Connection| {
            let may_send = connection.reads(memory) || connection.is_short_of_room(memory);
            connection.is_idle() && may_send && connection.is_half(now, stalled)
        };
        let mut stalled_ones = Vec::new();
        for (place, connection) in self.slots.iter_mut() {
            let (is_gone, is_half) = (is_gone(connection), is_half(connection));
            if is_half {
                let error = format!("half a request, and nothing more for {stalled}");
                connection.broken = Some(ProtocolError(error));
            }
            if is_gone || is_half {
                stalled_ones.push((place, is_gone));
            }
        }
        self.totals.dropped += stalled_ones.len() as u64;
        for (place, is_gone) in stalled_ones {
            match is_gone {
                true => self.end(place, backend),
                false => self.slots.again.push(place),
            }
        }
    }

    /// Accepts no further client and begins no further request.
    pub fn close(&mut self, net: &mut dyn Net) {
        net.close(CLIENTS);
        net.close(LOCAL);
        (self.is_open, self.accepts) = (false, false);
    }

    /// Drops the requests that have not begun; returns whether all others are answered and all replies sent.
    pub fn is_drained(&mut self) -> bool {
        let mut is_drained = true;
        for (_, connection) in self.slots.iter_mut() {
            connection.drop_requests();
            connection.rest.clear();
            is_drained &= !connection.is_away && connection.link.unsent() == 0;
        }
        is_drained
    }

    /// Sends replies as far as sockets take them at once, before the connections end.
    pub fn say_goodbye(&mut self) {
        self.slots.say_goodbye();
    }
}
