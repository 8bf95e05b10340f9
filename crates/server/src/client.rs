//! A client's connection, of a store, a node or a balancer: its socket, its session, and its requests that are read but
//! not begun.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use punctual_units::{Nanos, Time};

use crate::link::{Link, READ_AT_ONCE, READ_TURN};
use crate::resp::request::{Request, RequestParser};
use crate::resp::{Bounds, ProtocolError, Writer};
use crate::session::{ServerSettings, Session};
use crate::stream::Stream;
use crate::subscribers::write_message;

/// The most requests of a connection that are read but not begun.
pub const REQUESTS_MAX: usize = 1024;
/// The most bytes of such requests, exceeded by one request at most.
pub const REQUESTS_BYTES: usize = 1 << 20;
/// Stops beginning requests of a connection while this many bytes of its replies are unsent.
pub const REPLIES_PAUSE: usize = 1 << 20;
/// The most bytes of a stranger's requests that are read but not begun.
const STRANGER_KEPT: usize = 2 * Bounds::STRANGER.request;

/// A client's socket, its session, and its requests that are read but not begun.
pub struct ClientConnection {
    /// The socket with its unsent replies.
    pub link: Link<Stream>,
    /// State of the client's conversation.
    pub session: Session,
    parser: RequestParser,
    /// Requests that are read but not begun, each with its instant.
    waiting: VecDeque<(Request, Time)>,
    waiting_bytes: usize,
    /// An error of the protocol, to be sent after all replies.
    pub broken: Option<ProtocolError>,
    /// Whether the client sends no more.
    pub is_ended: bool,
    /// Whether to close the connection once all is sent.
    pub is_closing: bool,
    /// Whether to drop the connection: its client reads less than its subscriptions bring.
    pub is_behind: bool,
    /// Instants in the life of the connection.
    pub times: Times,
}

/// Instants in the life of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When the connection began.
    pub began: Time,
    /// Start of the time limit for logging in.
    pub stranger_since: Time,
    /// When the last byte arrived.
    pub came: Time,
    /// When the client last took a byte.
    pub taken: Time,
}

impl ClientConnection {
    /// Makes a connection that begins now.
    pub fn new(stream: Stream, session: Session, now: Time) -> ClientConnection {
        ClientConnection {
            link: Link::new(stream),
            session,
            parser: RequestParser::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            broken: None,
            is_ended: false,
            is_closing: false,
            is_behind: false,
            times: Times {
                began: now,
                stranger_since: now,
                came: now,
                taken: now,
            },
        }
    }

    /// Whether one more request may be parsed. A stranger has one at a time, because other bounds hold after a login;
    /// none beside a request that is under way (`is_busy`).
    fn finds(&self, is_busy: bool) -> bool {
        let max = match self.session.login.is_stranger() {
            true => usize::from(!is_busy),
            false => REQUESTS_MAX,
        };
        let has_room = self.waiting.len() < max && self.waiting_bytes < REQUESTS_BYTES;
        has_room && self.broken.is_none() && !self.is_closing
    }

    /// Whether the requests that are not begun leave room to read more.
    pub fn reads(&self, is_busy: bool) -> bool {
        let has_room = !self.session.login.is_stranger() || self.parser.kept() <= STRANGER_KEPT;
        has_room && self.finds(is_busy) && !self.is_ended
    }

    /// Parses requests, as many as may wait.
    pub fn parse(&mut self, settings: &ServerSettings, is_busy: bool) {
        while self.finds(is_busy) {
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
    pub fn read(
        &mut self,
        settings: &ServerSettings,
        is_busy: bool,
        scratch: &mut Vec<u8>,
        now: impl Fn() -> Time,
    ) -> io::Result<()> {
        scratch.resize(READ_AT_ONCE, 0);
        let mut budget = READ_TURN;
        while self.link.is_readable && budget > 0 && self.reads(is_busy) {
            match self.link.read_once(scratch)? {
                Some(0) => self.is_ended = true,
                Some(count) => {
                    self.times.came = now();
                    self.parser.feed(&scratch[..count]);
                    self.parse(settings, is_busy);
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

    /// The next request.
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
        self.parser.is_inside() && self.waiting.is_empty() && now.since(self.times.came) > stalled
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

    /// The line of CLIENT LIST.
    pub fn line(&mut self, now: Time) -> String {
        let shown = |address: io::Result<SocketAddr>| address.map_or(String::new(), |address| address.to_string());
        let seconds = |since: Time| now.since(since).0 / 1_000_000_000;
        let (age, idle, unsent) = (seconds(self.times.began), seconds(self.times.came), self.link.unsent());
        let socket = self.link.stream.socket();
        let (there, here) = (shown(socket.peer_addr()), shown(socket.local_addr()));
        self.session.line(&there, &here, age, idle, unsent)
    }
}
