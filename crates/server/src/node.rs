//! The event loop: all sockets, one thread, no call of the store.
//!
//! A connection's bytes become requests as they come, each with the instant at which it was read; its deadline counts
//! from there. Requests that ask the store go to the pool, one piece of work at a time for each connection. What the
//! loop holds for a connection is bounded: while replies wait to be sent, or requests to be carried out, no more is
//! read from it, so that its own sending stops.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use punctual_os::Os;
use punctual_store::engine::{Durability, Engine};
use punctual_store::{Store, StoreError};
use punctual_units::{Nanos, Time};

use crate::info::{self, About};
use crate::pool::{Pool, PoolOptions, Shared};
use crate::resp::request::{Request, RequestParser};
use crate::resp::{Bounds, ProtocolError, Value, Writer};
use crate::session::{Asked, Session, Settings, Step, late};
use crate::subscribers::{Subscribers, is_about_keys, messages};
use crate::work::{Done, Handle, Job, Temporal, Work};

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
/// The bytes that all connections may have here together. Beyond that, one with more than its share is dropped.
pub const BYTES_MAX: usize = 1 << 30;
/// How many bytes of one connection are read before others have their turn.
const READ_TURN: usize = 256 << 10;
/// The bytes of one read.
const READ_AT_ONCE: usize = 64 << 10;
/// Connections that are taken before others have their turn.
const ACCEPTED_TURN: usize = 64;
/// Clients that wait to be accepted; the kernel may allow fewer (`net.core.somaxconn`).
#[cfg(unix)]
const CONNECTING_MAX: i32 = 4096;
/// How often the loop looks for connections that stall.
const LOOK_EVERY: Nanos = Nanos::from_millis(250);

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST: usize = 2;

/// How a store is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// The threads that call the store; at least 1. With 1, reads wait while a commit reaches the medium.
    pub threads: usize,
    /// The most connections at a time.
    pub connections_max: usize,
    /// The most pieces of work that wait for a thread, at most one for each connection. What comes beyond is told `LATE
    /// reason=backlog`.
    pub queue_max: usize,
    /// For how long a client may be silent in the middle of a request, or leave replies without reading any.
    pub stalled_max: Nanos,
    /// For how long requests that have begun may go on, and replies be sent, once the server is to end.
    pub drain_max: Nanos,
    /// How long a value that TSET has set is believed, for objects that the store does not know yet.
    pub validity: Nanos,
    /// The longest value of such an object, in bytes.
    pub temporal_len_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 16)),
            connections_max: 10_000,
            queue_max: 10_000,
            stalled_max: Nanos::from_secs(10),
            drain_max: Nanos::from_secs(5),
            validity: Nanos::from_secs(1),
            temporal_len_max: 256,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Other machines would reach it.
    #[error(
        "{address}: there are no users yet, so that any machine that reaches this address could read and change the \
         store: listen on 127.0.0.1 or [::1]"
    )]
    NotLoopback {
        /// What was asked for.
        address: SocketAddr,
    },
    /// Another program has the port.
    #[error(
        "{address}: another program listens there: end it, or listen on another port (`--listen 127.0.0.1:0` takes \
             a free one)"
    )]
    InUse {
        /// What was asked for.
        address: SocketAddr,
    },
    /// The system refused.
    #[error("{action}: {source}")]
    Io {
        /// What was being done.
        action: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// A socket that listens; clients wait there until the store is served.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listening {
    /// Takes an address of this machine alone; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn bind(address: SocketAddr) -> Result<Listening, ServeError> {
        if !address.ip().is_loopback() {
            return Err(ServeError::NotLoopback { address });
        }
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ServeError::InUse { address },
            _ => ServeError::Io {
                action: format!("{address}: cannot listen"),
                source,
            },
        };
        let listener = TcpListener::bind(address).map_err(io)?;
        make_room(&listener).map_err(io)?;
        let address = listener.local_addr().map_err(io)?;
        Ok(Listening { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `store` on threads of its own, until [`Running::stop`].
    ///
    /// # Errors
    /// [`ServeError::Io`].
    pub fn serve<E: Engine + 'static, O: Os>(
        self,
        store: Arc<Store<E, O>>,
        options: &Options,
    ) -> Result<Running<E, O>, ServeError> {
        let io = |action: &str| {
            let action = action.to_owned();
            move |source| ServeError::Io { action, source }
        };
        let poll = Poll::new().map_err(io("the event loop"))?;
        let mut listener = self.listener;
        let registry = poll.registry();
        registry
            .register(&mut listener, LISTENER, Interest::READABLE)
            .map_err(io("the event loop"))?;
        let waker = Arc::new(Waker::new(registry, WAKER).map_err(io("the event loop"))?);
        let pool_options = PoolOptions {
            threads: options.threads.max(1),
            queue_max: options.queue_max.max(1),
            temporal: Temporal {
                validity: options.validity,
                max_len: options.temporal_len_max,
            },
        };
        let wakes = Arc::clone(&waker);
        // A waker that fails leaves the loop to its next look.
        let wake = Box::new(move || drop(wakes.wake()));
        let (shared, pool) =
            Shared::start(Arc::clone(&store), &pool_options, wake).map_err(io("the pool of threads"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let now = shared.os.now();
        let event_loop = EventLoop {
            poll,
            listener: Some(listener),
            accept: false,
            connections: Vec::new(),
            free: Vec::new(),
            open: 0,
            begun: 0,
            refused: 0,
            dropped: 0,
            bytes: 0,
            share: BYTES_MAX / options.connections_max.max(1),
            subscribers: Subscribers::default(),
            settings: settings(options, store.durability(), self.address),
            options: options.clone(),
            address: self.address,
            started: now,
            looked: now,
            again: Vec::new(),
            jobs: Vec::new(),
            done: Vec::new(),
            scratch: vec![0; READ_AT_ONCE].into(),
            stop: Arc::clone(&stop),
            shared,
        };
        let thread = std::thread::Builder::new().name("serve-loop".into());
        let thread = thread
            .spawn(move || event_loop.run(pool))
            .map_err(io("the event loop"))?;
        Ok(Running {
            address: self.address,
            store,
            stop,
            waker,
            thread,
        })
    }
}

/// A server that runs.
pub struct Running<E: Engine, O: Os> {
    address: SocketAddr,
    store: Arc<Store<E, O>>,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: JoinHandle<()>,
}

impl<E: Engine, O: Os> Running<E, O> {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it has ended by itself, which is a defect.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it in order: no further request is begun, those that have begun are answered, and the store is flushed.
    ///
    /// # Errors
    /// [`StoreError`] where the flush failed: what was acknowledged by a commit is there all the same.
    pub fn stop(self) -> Result<(), StoreError> {
        self.stop.store(true, Ordering::SeqCst);
        // The loop looks by itself, too.
        drop(self.waker.wake());
        drop(self.thread.join());
        match self.store.durability() {
            Durability::Volatile => self.store.commit_group().map(drop),
            _ => self.store.flush().map(drop),
        }
    }
}

/// Has up to [`CONNECTING_MAX`] clients wait to be accepted; mio's own bound is 128, and one more waits for a second
/// before it tries again.
fn make_room(listener: &TcpListener) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: a plain number, of a socket that is open; listening once more changes the bound only.
        if unsafe { libc::listen(listener.as_raw_fd(), CONNECTING_MAX) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn settings(options: &Options, durability: Durability, address: SocketAddr) -> Settings {
    let appends = if durability == Durability::Volatile {
        "no"
    } else {
        "yes"
    };
    let config = [
        ("appendonly", appends.to_owned()),
        ("bind", address.ip().to_string()),
        ("databases", "1".into()),
        ("durability", info::durability(durability).into()),
        ("maxclients", options.connections_max.to_string()),
        ("maxmemory", "0".into()),
        ("maxmemory-policy", "noeviction".into()),
        ("notify-keyspace-events", "KEA".into()),
        ("port", address.port().to_string()),
        ("proto-max-bulk-len", Bounds::ADMITTED.bulk.to_string()),
        ("save", String::new()),
        ("store-threads", options.threads.to_string()),
        ("timeout", "0".into()),
    ];
    Settings {
        config: BTreeMap::from(config),
    }
}

struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    session: Session,
    parser: RequestParser,
    /// Requests that have been read, each with its instant.
    waiting: VecDeque<(Request, Time)>,
    waiting_bytes: usize,
    /// What the pool has left of a run.
    rest: Vec<Asked>,
    /// Whether the pool has work of it, and how many bytes that takes.
    is_away: bool,
    away_bytes: usize,
    /// Replies behind those of the work that is away.
    behind: Vec<u8>,
    /// A subscription that is told once changes are heard.
    subscribing: Option<(Request, bool)>,
    out: Vec<u8>,
    /// How much of `out` is sent.
    sent: usize,
    is_readable: bool,
    is_writable: bool,
    /// What was wrong with its bytes: said behind all replies.
    broken: Option<ProtocolError>,
    /// Its client sends no more.
    is_ended: bool,
    /// To be closed once all is sent.
    is_closing: bool,
    /// Whether it is on the list of those that go on.
    goes_on: bool,
    /// The bytes that count for it.
    counted: usize,
    began: Time,
    /// When its last byte came, and when the last one was taken.
    came: Time,
    taken: Time,
}

impl Connection {
    fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// The bytes that it takes here.
    fn kept(&self) -> usize {
        let read = self.parser.kept() + self.waiting_bytes + self.away_bytes;
        let rest: usize = self.rest.iter().map(|asked| asked.request.bytes()).sum();
        read + rest + self.session.kept() + self.out.len() + self.behind.len()
    }

    fn reads(&self) -> bool {
        self.waiting.len() < REQUESTS_WAITING_MAX
            && self.waiting_bytes < REQUESTS_WAITING_BYTES
            && self.unsent() < REPLIES_PAUSE
            && self.broken.is_none()
            && !self.is_ended
            && !self.is_closing
    }

    fn is_idle(&self) -> bool {
        !self.is_away && self.rest.is_empty() && self.waiting.is_empty()
    }
}

/// Why a connection is over.
struct Over;

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
    subscribers: Subscribers,
    settings: Settings,
    options: Options,
    address: SocketAddr,
    started: Time,
    looked: Time,
    /// Connections that have more to do without an event.
    again: Vec<usize>,
    jobs: Vec<Job>,
    done: Vec<Done>,
    scratch: Box<[u8]>,
    stop: Arc<AtomicBool>,
    shared: Arc<Shared<E, O>>,
}

impl<E: Engine + 'static, O: Os> EventLoop<E, O> {
    fn run(mut self, pool: Pool) {
        let mut events = Events::with_capacity(1024);
        let mut end: Option<Time> = None;
        loop {
            let wait = if self.again.is_empty() && !self.accept {
                LOOK_EVERY
            } else {
                Nanos::ZERO
            };
            if let Err(error) = self.poll.poll(&mut events, Some(wait.into()))
                && error.kind() != io::ErrorKind::Interrupted
            {
                break; // without events nothing can go on
            }
            let mut turn = std::mem::take(&mut self.again);
            for place in &turn {
                if let Some(connection) = self.connections.get_mut(*place).and_then(Option::as_mut) {
                    connection.goes_on = false;
                }
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept = true,
                    WAKER => {}
                    Token(token) => {
                        let place = token - FIRST;
                        if let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) {
                            connection.is_readable |= event.is_readable() || event.is_error() || event.is_read_closed();
                            connection.is_writable |= event.is_writable() || event.is_error();
                            turn.push(place);
                        }
                    }
                }
            }
            self.take_done(&mut turn);
            self.tell();
            for place in turn {
                self.turn(place);
            }
            self.submit();
            if self.accept {
                self.accept();
            }
            let now = self.shared.os.now();
            if now.since(self.looked) >= LOOK_EVERY {
                self.looked = now;
                self.look(now);
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
            // As far as the socket takes it at once.
            drop(stream.write(b"-ERR max number of clients reached\r\n"));
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
        if registered.is_err() || stream.set_nodelay(true).is_err() {
            self.free.push(place);
            self.refused += 1;
            return;
        }
        let now = self.shared.os.now();
        self.open += 1;
        self.connections[place] = Some(Box::new(Connection {
            stream,
            peer,
            session: Session::new(self.begun),
            parser: RequestParser::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            rest: Vec::new(),
            is_away: false,
            away_bytes: 0,
            behind: Vec::new(),
            subscribing: None,
            out: Vec::new(),
            sent: 0,
            is_readable: true,
            is_writable: true,
            broken: None,
            is_ended: false,
            is_closing: false,
            goes_on: false,
            counted: 0,
            began: now,
            came: now,
            taken: now,
        }));
        self.go_on(place);
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
            drop(self.poll.registry().deregister(&mut connection.stream));
            self.forget_subscriptions(place, &connection.session);
            self.bytes -= connection.counted;
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

    /// Does all that can be done for a connection now.
    fn turn(&mut self, place: usize) {
        // Out of its place, so that its session may ask for others.
        let Some(mut connection) = self.connections.get_mut(place).and_then(Option::take) else {
            return;
        };
        // Once the server is to end, what is answered is sent, and nothing else begins.
        let is_ending = self.listener.is_none();
        let read = if is_ending { Ok(()) } else { self.read(&mut connection) };
        let over = read.and_then(|()| {
            if !is_ending {
                self.advance(place, &mut connection);
            }
            self.send(&mut connection)
        });
        let kept = connection.kept();
        self.bytes = self.bytes - connection.counted + kept;
        connection.counted = kept;
        let is_over = match &over {
            Err(Over) => true,
            Ok(()) => {
                let is_done = connection.is_closing || connection.is_ended && connection.is_idle();
                is_done && !connection.is_away && connection.unsent() == 0
            }
        };
        let max = if connection.session.subscriptions() > 0 {
            HEARD_MAX
        } else {
            REPLIES_MAX
        };
        let is_slow = connection.unsent() > max || self.bytes > BYTES_MAX && kept > self.share;
        let may_begin = !connection.is_away && !connection.is_closing && connection.unsent() < REPLIES_PAUSE;
        let more = may_begin && !(connection.is_idle() && connection.broken.is_none())
            || connection.is_readable && connection.reads();
        self.connections[place] = Some(connection);
        if is_slow {
            self.dropped += 1;
        }
        if is_over || is_slow {
            self.end(place);
        } else if more && !is_ending {
            self.go_on(place);
        }
    }

    /// Reads what has come, and finds the requests in it.
    fn read(&mut self, connection: &mut Connection) -> Result<(), Over> {
        let mut budget = READ_TURN;
        self.find(connection);
        while connection.is_readable && connection.reads() {
            if budget == 0 {
                break;
            }
            match connection.stream.read(&mut self.scratch) {
                Ok(0) => connection.is_ended = true,
                Ok(count) => {
                    connection.came = self.shared.os.now();
                    connection.parser.feed(&self.scratch[..count]);
                    self.find(connection);
                    budget = budget.saturating_sub(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.is_readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Over),
            }
        }
        Ok(())
    }

    fn find(&self, connection: &mut Connection) {
        while connection.reads() || connection.is_ended && connection.waiting.len() < REQUESTS_WAITING_MAX {
            match connection.parser.next(connection.session.bounds()) {
                Ok(Some(request)) => {
                    connection.waiting_bytes += request.bytes();
                    connection.waiting.push_back((request, connection.came));
                }
                Ok(None) => break,
                Err(error) => {
                    connection.broken = Some(error);
                    break;
                }
            }
        }
    }

    /// Begins requests, until one is away or replies wait.
    fn advance(&mut self, place: usize, connection: &mut Connection) {
        while !connection.is_away && !connection.is_closing && connection.unsent() < REPLIES_PAUSE {
            if !connection.rest.is_empty() {
                let rest = std::mem::take(&mut connection.rest);
                self.give(place, connection, Work::Run(rest));
                break;
            }
            if connection.waiting.is_empty() {
                // Those that the bounds kept back.
                self.find(connection);
            }
            let Some((request, arrived)) = connection.waiting.pop_front() else {
                if let Some(error) = connection.broken.take() {
                    let error = format!("ERR {error}");
                    Writer::new(&mut connection.out, connection.session.version).error(&error);
                    connection.is_closing = true;
                }
                break;
            };
            connection.waiting_bytes -= request.bytes();
            let now = self.shared.os.now();
            let step = connection
                .session
                .step(request, arrived, now, &self.settings, &mut connection.out);
            self.follow(place, connection, step, now);
        }
    }

    fn follow(&mut self, place: usize, connection: &mut Connection, step: Step, now: Time) {
        match step {
            Step::Answered => {}
            Step::Close => connection.is_closing = true,
            Step::Reset => {
                self.forget_subscriptions(place, &connection.session);
                connection.session.reset();
            }
            Step::Ask(first) => {
                let run = self.run_of(first, connection, now);
                self.give(place, connection, Work::Run(run));
            }
            Step::Exec(asked, watched, deadline) => {
                self.give(place, connection, Work::Exec(asked, watched, deadline));
            }
            Step::Watch(request, deadline) => {
                let room = connection.session.watch_room();
                self.give(place, connection, Work::Watch(request, deadline, room));
            }
            Step::Subscribe(request, patterns) => {
                if request.from(1).any(|name| is_about_keys(name, patterns)) {
                    // Told once changes are heard, so that none is missed from then on.
                    connection.subscribing = Some((request, patterns));
                    self.give(place, connection, Work::Listen);
                } else {
                    self.subscribe(place, connection, &request, patterns);
                }
            }
            Step::Unsubscribe(request, patterns) => self.unsubscribe(place, connection, &request, patterns),
            Step::Publish(request) => {
                let count = self.publish(place, connection, request.argument(1), request.argument(2));
                Writer::new(&mut connection.out, connection.session.version).integer(count);
            }
            Step::List => {
                let others = self.connections.iter().flatten();
                let mut lines: Vec<_> = others.map(|other| (other.session.id, self.line(other, now))).collect();
                lines.push((connection.session.id, self.line(connection, now)));
                lines.sort();
                let text = lines.into_iter().map(|(_, line)| line).collect();
                self.say(connection, &Value::Verbatim(text));
            }
            Step::Describe => {
                let line = self.line(connection, now);
                self.say(connection, &Value::Verbatim(line));
            }
            Step::Info(request) => {
                let text = self.info(&request, now);
                self.say(connection, &Value::Verbatim(text));
            }
        }
    }

    fn say(&self, connection: &mut Connection, value: &Value) {
        Writer::new(&mut connection.out, connection.session.version).value(value);
    }

    /// A command, and those behind it that may go to the pool with it.
    fn run_of(&self, first: Asked, connection: &mut Connection, now: Time) -> Vec<Asked> {
        let mut run = vec![first];
        while run.len() < RUN_MAX
            && connection.behind.is_empty()
            && let Some((request, arrived)) = connection.waiting.front()
            && connection.session.asks(request)
        {
            let arrived = *arrived;
            let Some((request, _)) = connection.waiting.pop_front() else {
                break;
            };
            connection.waiting_bytes -= request.bytes();
            // One that is refused is told so behind the replies of the run.
            match connection
                .session
                .step(request, arrived, now, &self.settings, &mut connection.behind)
            {
                Step::Ask(asked) => run.push(asked),
                _ => break,
            }
        }
        run
    }

    fn give(&mut self, place: usize, connection: &mut Connection, work: Work) {
        connection.is_away = true;
        connection.away_bytes = work.bytes();
        self.jobs.push(Job {
            connection: Handle {
                place,
                id: connection.session.id,
            },
            version: connection.session.version,
            queued: self.shared.os.now(),
            work,
        });
    }

    /// Hands the pool what was given to it; what finds no room is told so.
    fn submit(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let waited = Nanos(self.shared.counts.waited.load(Ordering::Relaxed));
        for job in self.shared.submit(&mut self.jobs) {
            let commands = match &job.work {
                Work::Run(asked) => asked.len(),
                _ => 1,
            };
            self.shared.counts.backlog.fetch_add(commands as u64, Ordering::Relaxed);
            let mut reply = Vec::new();
            let error = late("backlog", waited);
            (0..commands).for_each(|_| Writer::new(&mut reply, job.version).error(&error));
            let mut turn = Vec::new();
            let done = Done {
                connection: job.connection,
                reply,
                rest: Vec::new(),
                watched: Vec::new(),
            };
            self.finish(done, &mut turn);
            turn.into_iter().for_each(|place| self.go_on(place));
        }
    }

    fn take_done(&mut self, turn: &mut Vec<usize>) {
        let mut done = std::mem::take(&mut self.done);
        self.shared.take_done(&mut done);
        for done in done.drain(..) {
            self.finish(done, turn);
        }
        self.done = done;
    }

    fn finish(&mut self, done: Done, turn: &mut Vec<usize>) {
        let Done {
            connection: Handle { place, id },
            mut reply,
            rest,
            watched,
        } = done;
        let Some(mut connection) = self.connections.get_mut(place).and_then(Option::take) else {
            return;
        };
        if connection.session.id == id {
            connection.is_away = false;
            connection.away_bytes = 0;
            let is_refused = !reply.is_empty();
            if connection.out.is_empty() {
                connection.out = reply;
            } else {
                connection.out.append(&mut reply);
            }
            connection.session.watch(watched);
            // What is refused behind a run comes behind what the pool has left of it.
            connection.rest = rest;
            if connection.rest.is_empty() {
                let mut behind = std::mem::take(&mut connection.behind);
                connection.out.append(&mut behind);
            }
            if let Some((request, patterns)) = connection.subscribing.take()
                && !is_refused
            {
                self.subscribe(place, &mut connection, &request, patterns);
            }
            turn.push(place);
        }
        self.connections[place] = Some(connection);
    }

    fn subscribe(&mut self, place: usize, connection: &mut Connection, request: &Request, patterns: bool) {
        for name in request.from(1) {
            self.subscribers.add(name, patterns, place);
            let names = names(&mut connection.session, patterns);
            names.insert(name.to_vec());
            let word = if patterns { "psubscribe" } else { "subscribe" };
            heard(connection, word, Some(name));
        }
    }

    fn unsubscribe(&mut self, place: usize, connection: &mut Connection, request: &Request, patterns: bool) {
        let word = if patterns { "punsubscribe" } else { "unsubscribe" };
        let named: Vec<Vec<u8>> = if request.len() > 1 {
            request.from(1).map(<[u8]>::to_vec).collect()
        } else {
            names(&mut connection.session, patterns).iter().cloned().collect()
        };
        for name in &named {
            self.subscribers.remove(name, patterns, place);
            names(&mut connection.session, patterns).remove(name);
            heard(connection, word, Some(name));
        }
        if named.is_empty() {
            heard(connection, word, None);
        }
    }

    /// Tells all that hear `channel`; how many. `own` is out of its place.
    fn publish(&mut self, place: usize, own: &mut Connection, channel: &[u8], message: &[u8]) -> i64 {
        let hearing = self.subscribers.hearing(channel);
        for (at, pattern) in &hearing {
            if *at == place {
                deliver(own, pattern.as_deref(), channel, message);
            } else if let Some(Some(connection)) = self.connections.get_mut(*at) {
                deliver(connection, pattern.as_deref(), channel, message);
                self.go_on(*at);
            }
        }
        hearing.len() as i64
    }

    /// Tells of changed keys.
    fn tell(&mut self) {
        for told in self.shared.take_told() {
            for (channel, message) in messages(&told) {
                for (at, pattern) in self.subscribers.hearing(&channel) {
                    if let Some(Some(connection)) = self.connections.get_mut(at) {
                        deliver(connection, pattern.as_deref(), &channel, &message);
                        self.go_on(at);
                    }
                }
            }
        }
    }

    fn send(&mut self, connection: &mut Connection) -> Result<(), Over> {
        if connection.unsent() == 0 {
            // Nothing waits for its client to take it.
            connection.taken = self.shared.os.now();
        }
        while connection.is_writable && connection.unsent() > 0 {
            match connection.stream.write(&connection.out[connection.sent..]) {
                Ok(0) => return Err(Over),
                Ok(count) => {
                    connection.sent += count;
                    connection.taken = self.shared.os.now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.is_writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Over),
            }
        }
        /// What an idle connection keeps.
        const KEPT_MAX: usize = 16 << 10;
        if connection.unsent() == 0 {
            connection.sent = 0;
            connection.out.clear();
            if connection.out.capacity() > KEPT_MAX {
                connection.out = Vec::new();
            }
        } else if connection.sent > KEPT_MAX {
            connection.out.drain(..connection.sent);
            connection.sent = 0;
        }
        Ok(())
    }

    /// Ends connections that stall, and lets those go on that waited for room.
    fn look(&mut self, now: Time) {
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
            if is_slow {
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

    fn line(&self, connection: &Connection, now: Time) -> String {
        let seconds = |since: Time| now.since(since).0 / 1_000_000_000;
        info::client(
            &connection.session,
            &connection.peer.to_string(),
            &self.address.to_string(),
            seconds(connection.began),
            seconds(connection.came),
            connection.unsent(),
        )
    }

    fn info(&self, request: &Request, now: Time) -> String {
        let wanted: Vec<String> = request
            .from(1)
            .map(|word| String::from_utf8_lossy(word).to_lowercase())
            .collect();
        let shared = &self.shared;
        let about = About {
            port: self.address.port(),
            threads: self.options.threads,
            uptime_s: now.since(self.started).0 / 1_000_000_000,
            connections: self.open,
            connections_max: self.options.connections_max,
            connections_all: self.begun,
            refused: self.refused,
            dropped: self.dropped,
            waiting: shared.waiting(),
            channels: self.subscribers.counts(),
            objects: shared.store.objects(),
            durability: shared.store.durability(),
            trouble: shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            counts: &shared.counts,
        };
        info::text(&about, &wanted)
    }
}

fn names(session: &mut Session, patterns: bool) -> &mut std::collections::BTreeSet<Vec<u8>> {
    if patterns {
        &mut session.patterns
    } else {
        &mut session.channels
    }
}

/// Says that a subscription has begun or ended, and how many there are.
fn heard(connection: &mut Connection, word: &str, name: Option<&[u8]>) {
    let value = Value::Push(vec![
        Value::bulk(word),
        name.map_or(Value::Null, Value::bulk),
        Value::Integer(connection.session.subscriptions() as i64),
    ]);
    Writer::new(&mut connection.out, connection.session.version).value(&value);
}

/// A message; behind the replies that are there, and before those of work that is away.
fn deliver(connection: &mut Connection, pattern: Option<&[u8]>, channel: &[u8], message: &[u8]) {
    let mut values = vec![Value::bulk(if pattern.is_some() { "pmessage" } else { "message" })];
    values.extend(pattern.map(Value::bulk));
    values.extend([Value::bulk(channel), Value::bulk(message)]);
    Writer::new(&mut connection.out, connection.session.version).value(&Value::Push(values));
}
