//! The event loop: all sockets, one thread, no call of the store.
//!
//! A connection's bytes become requests as they arrive, each with the instant at which it was read; its deadline counts
//! from there. Requests for the store go to the pool, at most one job for each connection. The memory of a connection
//! is bounded: while replies wait to be sent, or requests to be carried out, the loop reads no more from it, so that
//! TCP stops the client.

mod connection;
mod hearing;
mod listening;
mod requests;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_units::{Nanos, Time};

use crate::client::ClientConnection;
use crate::info::LoopState;
use crate::pool::{KeyNotice, Pool, PoolState};
use crate::prover::Prover;
use crate::resp::ProtocolError;
use crate::session::{ServerSettings, Session};
use crate::stream::{Ready, Stream};
use crate::subscribers::Subscribers;
use crate::work::{Job, JobReply};
use connection::Connection;
pub use listening::{Listening, Options, RunningServer, ServeError};

/// The most requests of a connection in one job.
pub const RUN_MAX: usize = 64;
/// Drops a connection with more unsent bytes of replies than this: its client does not read.
pub const REPLIES_MAX: usize = 64 << 20;
/// As `REPLIES_MAX`, for a connection that subscribes: messages come without its asking.
pub const HEARD_MAX: usize = 8 << 20;
/// Limit of the memory of all connections together, in bytes, unless options say otherwise. Beyond it, a connection
/// with more than its share is dropped, and none of its requests begins.
pub const BYTES_MAX: usize = 1 << 30;
/// Limit of matching and delivering messages in one turn, in bytes compared and bytes copied.
const STEPS_TURN: usize = 4 << 20;
/// The most connections accepted in one turn.
const ACCEPTED_TURN: usize = 64;
/// The most TLS handshakes that go on in one turn: each costs a signature, some tenths of a millisecond.
const HANDSHAKES_TURN: usize = 8;
/// Interval between looks for stalled connections, and the longest wait for events.
const LOOK_EVERY: Nanos = Nanos::from_millis(250);

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST: usize = 2;

struct EventLoop<E: Engine, O: Os> {
    poll: Poll,
    /// `None` once the server is to end.
    listener: Option<TcpListener>,
    /// Whether clients may be waiting to be accepted.
    accept: bool,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    open: usize,
    totals: Totals,
    memory: Memory,
    /// Checks passwords, if the server has users.
    prover: Option<Prover>,
    subscribers: Subscribers,
    /// Changes of keys that are still to be reported.
    telling: VecDeque<KeyNotice>,
    /// Bytes matched and copied in this turn, bounded by [`STEPS_TURN`].
    spent: usize,
    settings: ServerSettings,
    options: Options,
    address: SocketAddr,
    started: Time,
    looked: Time,
    /// State of the loop for the thread that serves the page.
    left: Arc<Mutex<LoopState>>,
    /// Connections that go on in the next round without an event.
    again: Vec<usize>,
    jobs: Vec<Job>,
    done: Vec<JobReply>,
    scratch: Vec<u8>,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    shared: Arc<PoolState<E, O>>,
}

/// Connections and attempts to log in, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) begun: u64,
    pub(crate) refused: u64,
    pub(crate) dropped: u64,
    pub(crate) wrong_passwords: u64,
}

/// Memory of all connections.
struct Memory {
    /// Bytes that are counted at present.
    bytes: usize,
    /// Bytes that each connection may have even if `bytes` exceeds its limit.
    share: usize,
    /// Bytes of jobs whose connection has ended, by the connection's number.
    orphans: HashMap<u64, usize>,
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
                break; // the pool's replies will never come
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

    /// Waits for events and results, and gives each connection concerned its turn.
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
                        connection.client.link.ready(Ready::from(event));
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
            if connection.is_some_and(|connection| connection.client.link.stream.is_handshaking()) {
                handshakes += 1;
                // Connections beyond the limit are the first of the next round. Nothing is read once the server is to
                // end.
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

    /// Drops the requests that have not begun, since the server ends; returns whether all others are answered and all
    /// replies sent.
    fn is_drained(&mut self) -> bool {
        for connection in self.connections.iter_mut().flatten() {
            connection.client.drop_requests();
            connection.rest.clear();
        }
        let is_over = |connection: &Connection| !connection.is_away && connection.client.link.unsent() == 0;
        self.connections.iter().flatten().all(|connection| is_over(connection))
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_TURN {
            let Some(listener) = &self.listener else { break };
            match listener.accept() {
                Ok((stream, _)) => self.begin(stream),
                // The client has gone already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // No client waits; or accepting failed, for lack of descriptors say, and the next look tries again.
                Err(_) => {
                    self.accept = false;
                    return;
                }
            }
        }
    }

    fn begin(&mut self, mut stream: TcpStream) {
        self.totals.begun += 1;
        if self.open >= self.options.connections_max {
            self.totals.refused += 1;
            // As far as the socket takes it at once. With TLS, no error can be sent before the handshake.
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
            self.totals.refused += 1;
            return;
        };
        let now = self.shared.os.now();
        self.open += 1;
        let session = Session::of(self.totals.begun, Arc::clone(&self.options.users));
        let mut client = ClientConnection::new(stream, session, now);
        (client.link.is_readable, client.link.is_writable) = (true, true);
        self.connections[place] = Some(Box::new(Connection::new(client)));
        self.go_on(place);
    }

    /// Makes the stream of a new connection: TLS, if the options say so.
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
            // Dropping the socket would deregister it as well.
            let client = &mut connection.client;
            client.link.stream.end();
            drop(self.poll.registry().deregister(client.link.stream.socket()));
            self.subscribers.forget(place, &client.session);
            self.memory.bytes -= connection.counted;
            if connection.is_away {
                self.memory
                    .orphans
                    .insert(connection.client.session.id, connection.away_bytes);
                self.memory.bytes += connection.away_bytes;
            }
            self.free.push(place);
            self.open -= 1;
        }
    }

    /// State of the loop, for figures.
    fn state(&self, now: Time) -> LoopState {
        let (channels, patterns) = self.subscribers.counts();
        LoopState {
            uptime: now.since(self.started),
            connections: self.open,
            totals: self.totals,
            bytes: self.memory.bytes,
            orphans: self.memory.orphans.len(),
            channels,
            patterns,
        }
    }

    /// Ends stalled connections, leaves the state for figures, and looks for new clients.
    fn look(&mut self, now: Time) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = self.state(now);
        self.accept |= self.listener.is_some();
        for place in 0..self.connections.len() {
            let Some(connection) = self.connections[place].as_mut() else {
                continue;
            };
            let stalled = self.options.stalled_max;
            let client = &connection.client;
            // If more would be read, the parser holds no whole request.
            let is_half = connection.is_idle() && connection.reads() && client.is_half(now, stalled);
            let is_slow = client.is_slow(now, stalled);
            let is_silent = client.is_silent(now, stalled) && !connection.is_away;
            if is_slow || is_silent {
                self.totals.dropped += 1;
                self.end(place);
            } else if is_half {
                let error = format!("half a request, and nothing more for {stalled}");
                connection.client.broken = Some(ProtocolError(error));
                self.totals.dropped += 1;
                self.go_on(place);
            }
        }
    }
}
