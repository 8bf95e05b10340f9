//! The event loop: all sockets, one thread, no call of the store.
//!
//! A connection's bytes become requests as they come, each with the instant at which it was read; its deadline counts
//! from there. Requests that ask the store go to the pool, one piece of work at a time for each connection. What the
//! loop holds for a connection is bounded: while replies wait to be sent, or requests to be carried out, no more is
//! read from it, so that its own sending stops.

mod connection;
mod hearing;
mod listening;
mod requests;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_units::{Nanos, Time};

use crate::metrics::Figures;
use crate::pool::{Pool, Shared, Told};
use crate::prover::Prover;
use crate::resp::ProtocolError;
use crate::resp::request::RequestParser;
use crate::session::{Session, Settings};
use crate::stream::{Ready, Stream};
use crate::subscribers::Subscribers;
use crate::work::{Done, Job};
use connection::Connection;
pub use listening::{Listening, Options, Running, ServeError};

/// The most requests of a connection that are read and not begun.
pub const REQUESTS_WAITING_MAX: usize = 1024;
/// The most bytes of them, but for one request.
pub const REQUESTS_WAITING_BYTES: usize = 1 << 20;
/// The most requests of a connection in one piece of work.
pub const RUN_MAX: usize = 64;
/// While so many bytes of replies are not sent, no further request of the connection is begun.
pub const REPLIES_PAUSE: usize = 1 << 20;
/// A connection with more bytes of replies than this is dropped: its client does not read.
pub const REPLIES_MAX: usize = 64 << 20;
/// The same for a connection that subscribes: what it hears does not wait for it.
pub const HEARD_MAX: usize = 8 << 20;
/// The bytes that all connections may have here together, unless options say otherwise. Beyond that, one with more than
/// its share is dropped, and nothing of it is begun.
pub const BYTES_MAX: usize = 1 << 30;
/// How much is matched and told in one turn before others have theirs: comparisons of bytes, and bytes copied.
const STEPS_TURN: usize = 4 << 20;
/// How many bytes of one connection are read before others have their turn.
const READ_TURN: usize = 256 << 10;
/// The bytes of one read.
const READ_AT_ONCE: usize = 64 << 10;
/// Connections that are taken before others have their turn.
const ACCEPTED_TURN: usize = 64;
/// Handshakes of TLS that go on before others have their turn: each costs a signature, some tenths of a millisecond.
const HANDSHAKES_TURN: usize = 8;
/// How often the loop looks for connections that stall.
const LOOK_EVERY: Nanos = Nanos::from_millis(250);

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST: usize = 2;

struct EventLoop<E: Engine, O: Os> {
    poll: Poll,
    /// None once the server is to end.
    listener: Option<TcpListener>,
    /// Whether there may be clients to accept.
    accept: bool,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    open: usize,
    /// How many connections there ever were, and what became of some.
    begun: u64,
    refused: u64,
    dropped: u64,
    /// The bytes that count for all connections, and those that each may have however many all have.
    bytes: usize,
    share: usize,
    /// The bytes of work whose connection has ended, by the number of that.
    orphans: HashMap<u64, usize>,
    /// Checks passwords, if there are users.
    prover: Option<Prover>,
    wrong_passwords: u64,
    subscribers: Subscribers,
    /// Changes that are to be told.
    telling: VecDeque<Told>,
    /// What matching and telling have taken in this turn, see [`STEPS_TURN`].
    spent: usize,
    settings: Settings,
    options: Options,
    address: SocketAddr,
    started: Time,
    looked: Time,
    figures: Arc<Figures>,
    /// Connections that have more to do without an event.
    again: Vec<usize>,
    jobs: Vec<Job>,
    done: Vec<Done>,
    scratch: Box<[u8]>,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    shared: Arc<Shared<E, O>>,
}

impl<E: Engine + 'static, O: Os> EventLoop<E, O> {
    fn run(mut self, pool: Pool) {
        let mut events = Events::with_capacity(1024);
        let mut end: Option<Time> = None;
        loop {
            if self.round(&mut events).is_err() {
                break; // without events nothing can go on
            }
            let now = self.shared.os.now();
            if now.since(self.looked) >= LOOK_EVERY {
                self.looked = now;
                self.look(now);
            }
            if self.shared.has_failed() {
                break; // what was begun will never be answered
            }
            if self.stop.load(Ordering::SeqCst) {
                let end = *end.get_or_insert_with(|| {
                    self.listener = None;
                    self.accept = false;
                    now + self.options.drain_max
                });
                if self.is_drained() || now > end {
                    break;
                }
            }
        }
        self.shared.stop();
        self.shared.join(pool);
    }

    /// Waits for what comes, and does what can be done about it.
    fn round(&mut self, events: &mut Events) -> io::Result<()> {
        let wait = if self.again.is_empty() && self.telling.is_empty() && !self.accept {
            LOOK_EVERY
        } else {
            Nanos::ZERO
        };
        if let Err(error) = self.poll.poll(events, Some(wait.into()))
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(error);
        }
        let mut turn = std::mem::take(&mut self.again);
        for place in &turn {
            if let Some(connection) = self.connections.get_mut(*place).and_then(Option::as_mut) {
                connection.goes_on = false;
            }
        }
        for event in events.iter() {
            match event.token() {
                LISTENER => self.accept = true,
                WAKER => {}
                Token(token) => {
                    let place = token - FIRST;
                    if let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) {
                        let (ready, is_any) = (Ready::from(event), connection.stream.is_both_ways());
                        connection.is_readable |= ready.reads || is_any;
                        connection.is_writable |= ready.writes || is_any;
                        connection.has_end |= ready.ends;
                        turn.push(place);
                    }
                }
            }
        }
        self.take_done(&mut turn);
        self.take_judged(&mut turn);
        self.tell();
        let mut handshakes = 0;
        for place in turn {
            let connection = self.connections.get(place).and_then(Option::as_ref);
            if connection.is_some_and(|connection| connection.stream.is_handshaking()) {
                handshakes += 1;
                // Those that wait are the first of the next round. Nothing is read once the server is to end.
                if handshakes > HANDSHAKES_TURN && self.listener.is_some() {
                    self.go_on(place);
                    continue;
                }
            }
            self.turn(place);
        }
        self.submit();
        if self.accept {
            self.accept();
        }
        Ok(())
    }

    /// The server ends: whether all that has begun is answered, and the answers are sent.
    fn is_drained(&mut self) -> bool {
        for connection in self.connections.iter_mut().flatten() {
            connection.waiting.clear();
            connection.rest.clear();
        }
        let is_over = |connection: &Connection| !connection.is_away && connection.unsent() == 0;
        self.connections.iter().flatten().all(|connection| is_over(connection))
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_TURN {
            let Some(listener) = &self.listener else { break };
            match listener.accept() {
                Ok((stream, peer)) => self.begin(stream, peer),
                // The client is gone already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // None waits; or there are no descriptors, say, and the next look tries again.
                Err(_) => {
                    self.accept = false;
                    return;
                }
            }
        }
    }

    fn begin(&mut self, mut stream: TcpStream, peer: SocketAddr) {
        self.begun += 1;
        if self.open >= self.options.connections_max {
            self.refused += 1;
            // As far as the socket takes it at once; by TLS nothing could be said so soon.
            if !self.options.speaks_tls() {
                drop(stream.write(b"-ERR max number of clients reached\r\n"));
            }
            return;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self
            .poll
            .registry()
            .register(&mut stream, Token(place + FIRST), interest);
        let is_ready = registered.is_ok() && stream.set_nodelay(true).is_ok();
        let Some(stream) = is_ready.then(|| self.stream(stream)).flatten() else {
            self.free.push(place);
            self.refused += 1;
            return;
        };
        let now = self.shared.os.now();
        self.open += 1;
        self.connections[place] = Some(Box::new(Connection {
            stream,
            peer,
            session: Session::of(self.begun, Arc::clone(&self.options.users)),
            parser: RequestParser::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            rest: Vec::new(),
            is_away: false,
            away_bytes: 0,
            behind: Vec::new(),
            subscribing: None,
            claim: None,
            out: Vec::new(),
            sent: 0,
            is_readable: true,
            is_writable: true,
            has_end: false,
            broken: None,
            is_ended: false,
            is_closing: false,
            is_behind: false,
            goes_on: false,
            counted: 0,
            began: now,
            stranger_since: now,
            came: now,
            taken: now,
        }));
        self.go_on(place);
    }

    /// What is spoken on a socket.
    fn stream(&self, socket: TcpStream) -> Option<Stream> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.options.tls {
            let connection = tls.begin().ok()?;
            return Some(Stream::accepted(connection, socket));
        }
        Some(Stream::Plain(socket))
    }

    fn go_on(&mut self, place: usize) {
        if let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut)
            && !connection.goes_on
        {
            connection.goes_on = true;
            self.again.push(place);
        }
    }

    fn end(&mut self, place: usize) {
        if let Some(mut connection) = self.connections[place].take() {
            // Closing the socket would do it as well.
            connection.stream.end();
            drop(self.poll.registry().deregister(connection.stream.socket()));
            self.forget_subscriptions(place, &connection.session);
            self.bytes -= connection.counted;
            if connection.is_away {
                self.orphans.insert(connection.session.id, connection.away_bytes);
                self.bytes += connection.away_bytes;
            }
            self.free.push(place);
            self.open -= 1;
        }
    }

    fn forget_subscriptions(&mut self, place: usize, session: &Session) {
        for channel in &session.channels {
            self.subscribers.remove(channel, false, place);
        }
        for pattern in &session.patterns {
            self.subscribers.remove(pattern, true, place);
        }
    }

    /// What other threads tell of this one.
    fn leave_figures(&self) {
        let figures = &self.figures;
        let (channels, patterns) = self.subscribers.counts();
        for (figure, value) in [
            (&figures.connections, self.open as u64),
            (&figures.begun, self.begun),
            (&figures.refused, self.refused),
            (&figures.dropped, self.dropped),
            (&figures.wrong_passwords, self.wrong_passwords),
            (&figures.bytes, self.bytes as u64),
            (&figures.orphans, self.orphans.len() as u64),
            (&figures.channels, channels as u64),
            (&figures.patterns, patterns as u64),
        ] {
            figure.store(value, Ordering::Relaxed);
        }
    }

    /// Ends connections that stall, and lets those go on that waited for room.
    fn look(&mut self, now: Time) {
        self.leave_figures();
        self.accept |= self.listener.is_some();
        for place in 0..self.connections.len() {
            let Some(connection) = self.connections[place].as_mut() else {
                continue;
            };
            let stalled = self.options.stalled_max;
            // All that is whole has been found, if more would be read.
            let is_half = connection.is_idle() && connection.reads() && connection.parser.is_inside();
            let is_half = is_half && now.since(connection.came) > stalled;
            let is_slow = connection.unsent() > 0 && now.since(connection.taken) > stalled;
            let is_stranger = connection.session.login.is_stranger() || connection.stream.is_handshaking();
            let is_silent = is_stranger && !connection.is_away;
            let is_silent = is_silent && now.since(connection.stranger_since) > stalled;
            if is_slow || is_silent {
                self.dropped += 1;
                self.end(place);
            } else if is_half {
                let error = format!("half a request, and nothing more for {stalled}");
                connection.broken = Some(ProtocolError(error));
                self.dropped += 1;
                self.go_on(place);
            }
        }
    }
}
