//! A client's connection: its socket, its session, its requests that are read but not begun, and its work at the
//! backend.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use punctual_units::{Nanos, Time};

use super::memory::{ByteCounts, MemoryUse};
use crate::link::{Link, READ_AT_ONCE, READ_TURN};
use crate::resp::request::{Request, RequestParser};
use crate::resp::{Bounds, ProtocolError, Writer};
use crate::session::{Call, ClientState, ServerSettings, Session};
use crate::stream::Stream;
use crate::subscribers::write_message;

/// The most requests of a connection that are read but not begun.
pub(super) const REQUESTS_MAX: usize = 1024;
/// The most bytes of such requests, exceeded by one request at most.
const REQUESTS_BYTES: usize = 1 << 20;
/// Stops beginning requests of a connection while this many bytes of its replies are unsent.
pub(super) const REPLIES_PAUSE: usize = 1 << 20;
/// The most bytes of a stranger's requests that are read but not begun.
const STRANGER_KEPT: usize = 2 * Bounds::STRANGER.request;

/// A client's connection.
pub(super) struct Connection {
    /// The socket with its unsent replies.
    pub link: Link,
    /// State of the client's conversation.
    pub session: Session,
    parser: RequestParser,
    /// Requests that are read but not begun, each with its instant.
    waiting: VecDeque<(Request, Time)>,
    waiting_bytes: usize,
    /// An error of the protocol, to be sent after all replies.
    pub broken: Option<ProtocolError>,
    /// Whether the client has connected at the Unix socket.
    pub is_local: bool,
    /// Whether the client sends no more.
    pub is_ended: bool,
    /// Whether to close the connection once all is sent.
    pub is_closing: bool,
    /// Whether to drop the connection: its client reads less than its subscriptions bring.
    pub is_behind: bool,
    /// Instants in the life of the connection.
    pub times: Times,
    /// Commands that the backend has left over of the last work.
    pub rest: Vec<Call>,
    /// Whether the backend or the prover has work of this connection, and the bytes of that work.
    pub is_away: bool,
    pub away_bytes: usize,
    /// Replies that go out after those of the present work.
    pub behind: Vec<u8>,
    /// A subscription to confirm once changes of keys are reported (`true`: patterns).
    pub subscribing: Option<(Request, bool)>,
    /// Bytes of this connection that are counted in [`MemoryUse`].
    pub counted: ByteCounts,
}

/// Instants in the life of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// When the connection began.
    pub began: Time,
    /// Start of the time limit for logging in.
    pub stranger_since: Time,
    /// When the last byte arrived.
    pub came: Time,
    /// When the client last took a byte.
    pub taken: Time,
}

impl AsMut<Link> for Connection {
    fn as_mut(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Connection {
    /// Makes a connection that begins now.
    pub fn new(stream: Stream, session: Session, now: Time) -> Connection {
        Connection {
            link: Link::new(stream),
            session,
            parser: RequestParser::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            broken: None,
            is_local: false,
            is_ended: false,
            is_closing: false,
            is_behind: false,
            times: Times {
                began: now,
                stranger_since: now,
                came: now,
                taken: now,
            },
            rest: Vec::new(),
            is_away: false,
            away_bytes: 0,
            behind: Vec::new(),
            subscribing: None,
            counted: ByteCounts::default(),
        }
    }

    /// Whether one more request may be parsed. A stranger has one at a time, because other bounds hold after a login;
    /// none beside a request that is under way.
    fn finds(&self) -> bool {
        let max = match self.session.login.is_stranger() {
            true => usize::from(!self.is_away),
            false => REQUESTS_MAX,
        };
        let has_room = self.waiting.len() < max && self.waiting_bytes < REQUESTS_BYTES;
        has_room && self.broken.is_none() && !self.is_closing
    }

    /// Whether the requests that are not begun leave room to read more.
    fn finds_more(&self) -> bool {
        let has_room = !self.session.login.is_stranger() || self.parser.kept() <= STRANGER_KEPT;
        has_room && self.finds() && !self.is_ended
    }

    /// Whether more may be read.
    pub fn reads(&self, memory: &MemoryUse) -> bool {
        self.link.unsent() <= memory.pause() && !self.is_short_of_room(memory) && self.finds_more()
    }

    /// Whether reading pauses, because all clients' requests take too much.
    pub fn is_short_of_room(&self, memory: &MemoryUse) -> bool {
        !memory.has_room_for_requests() && self.kept() >= memory.limits.short
    }

    /// Whether the next request may begin.
    pub fn may_begin(&self, memory: &MemoryUse) -> bool {
        !self.is_away && !self.is_closing && self.link.unsent() <= memory.pause()
    }

    /// Whether nothing is to be done for the client until it sends more.
    pub fn is_idle(&self) -> bool {
        !self.is_away && self.rest.is_empty() && self.waiting.is_empty()
    }

    pub fn counts(&self) -> ByteCounts {
        let requests = self.kept();
        let rest: usize = self.rest.iter().map(Call::bytes).sum();
        let replies = self.link.stream.kept() + self.link.out.len() + self.behind.len();
        ByteCounts {
            all: requests + self.session.kept() + self.away_bytes + rest + replies,
            requests,
            replies: self.link.unsent(),
        }
    }

    /// Parses requests, as many as may wait.
    pub fn parse(&mut self, settings: &ServerSettings) {
        while self.finds() {
            match self.parser.next(self.session.bounds(settings)) {
                Ok(Some(request)) => self.push(request, self.times.came),
                Ok(None) => break,
                Err(error) => self.broken = Some(error),
            }
        }
    }

    /// Reads bytes and parses their requests, up to the bounds of one turn.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn read(&mut self, settings: &ServerSettings, scratch: &mut Vec<u8>, now: impl Fn() -> Time) -> io::Result<()> {
        scratch.resize(READ_AT_ONCE, 0);
        let mut budget = READ_TURN;
        while self.link.is_readable && budget > 0 && self.finds_more() {
            match self.link.read_once(scratch)? {
                Some(0) => self.is_ended = true,
                Some(count) => {
                    self.times.came = now();
                    self.parser.feed(&scratch[..count]);
                    self.parse(settings);
                    budget = budget.saturating_sub(count);
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Sends replies as far as the socket takes them.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn flush(&mut self, now: impl Fn() -> Time) -> io::Result<()> {
        if self.link.flush()? {
            self.times.taken = now();
        }
        Ok(())
    }

    /// Takes the next request, with the instant at which it was read.
    pub fn next_request(&mut self) -> Option<(Request, Time)> {
        let next = self.waiting.pop_front();
        self.waiting_bytes -= next.as_ref().map_or(0, |(request, _)| request.bytes());
        next
    }

    /// The next request that waits.
    pub fn front(&self) -> Option<&Request> {
        self.waiting.front().map(|(request, _)| request)
    }

    /// Number of requests that are not begun.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Puts a request behind the others.
    pub fn push(&mut self, request: Request, arrived: Time) {
        self.waiting_bytes += request.bytes();
        self.waiting.push_back((request, arrived));
    }

    /// Drops the requests that are not begun.
    pub fn drop_requests(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Sends the error of the protocol, if there is one: all requests before are answered.
    pub fn end_broken(&mut self, now: Time) {
        if let Some(error) = self.broken.take() {
            self.says(now);
            Writer::new(&mut self.link.out, self.session.version).error(&format!("ERR {error}"));
            self.is_closing = true;
        }
    }

    /// To be called before bytes are added to the replies. If nothing was unsent, the client's time to take bytes
    /// begins now.
    pub fn says(&mut self, now: Time) {
        if self.link.unsent() == 0 {
            self.times.taken = now;
        }
    }

    /// Writes a message of a subscription behind the replies; returns its bytes. A client that leaves more than `max`
    /// bytes unread gets none, and is to be dropped.
    pub fn deliver(&mut self, pattern: Option<&[u8]>, channel: &[u8], message: &[u8], max: usize, now: Time) -> usize {
        self.is_behind |= self.link.unsent() > max;
        if self.is_behind {
            return 0;
        }
        self.says(now);
        let before = self.link.out.len();
        let out = &mut Writer::new(&mut self.link.out, self.session.version);
        write_message(out, pattern, channel, message);
        self.link.out.len() - before
    }

    /// Cuts the replies off behind `said` bytes if the client gets none, as CLIENT REPLY asks.
    pub fn mute(&mut self, said: usize) {
        if self.session.is_muted {
            self.link.out.truncate(said);
        }
    }

    /// Makes the session as new; its subscriptions are removed before.
    pub fn reset(&mut self, now: Time) {
        self.session.reset();
        self.times.stranger_since = now;
    }

    /// Bytes of requests that are read but not begun.
    pub fn kept(&self) -> usize {
        self.waiting_bytes + self.parser.kept()
    }

    /// Whether part of a request has arrived, and nothing more for `stalled`.
    pub fn is_half(&self, now: Time, stalled: Nanos) -> bool {
        let is_over = self.is_closing || self.broken.is_some();
        !is_over && self.parser.is_inside() && self.waiting.is_empty() && now.since(self.times.came) > stalled
    }

    /// Whether the client has taken no byte for `stalled`, though replies are unsent.
    pub fn is_slow(&self, now: Time, stalled: Nanos) -> bool {
        self.link.unsent() > 0 && now.since(self.times.taken) > stalled
    }

    /// Whether the client has not logged in for `stalled`.
    pub fn is_silent(&self, now: Time, stalled: Nanos) -> bool {
        let is_stranger = self.session.login.is_stranger() || self.link.stream.is_handshaking();
        is_stranger && now.since(self.times.stranger_since) > stalled
    }

    /// State of the connection for CLIENT LIST.
    pub fn state(&mut self, now: Time) -> ClientState {
        let shown = |address: io::Result<SocketAddr>| address.map_or(String::new(), |address| address.to_string());
        let seconds = |since: Time| now.since(since).0 / 1_000_000_000;
        let (unsent, counts) = (self.link.unsent(), self.counts());
        let socket = self.link.stream.socket();
        ClientState {
            addresses: [shown(socket.peer_addr()), shown(socket.local_addr())],
            descriptor: socket.descriptor(),
            age_s: seconds(self.times.began),
            idle_s: seconds(self.times.came),
            unread: counts.requests,
            unsent,
            bytes: size_of::<Connection>() + counts.all,
        }
    }
}
