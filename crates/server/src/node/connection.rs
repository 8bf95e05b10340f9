//! One connection: what has come of it, what goes to it, and how much of either there may be.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;

use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_units::Time;

use super::{
    EventLoop, HEARD_MAX, READ_TURN, REPLIES_MAX, REPLIES_PAUSE, REQUESTS_WAITING_BYTES, REQUESTS_WAITING_MAX,
    STEPS_TURN,
};
use crate::resp::request::{Request, RequestParser};
use crate::resp::{Bounds, ProtocolError};
use crate::session::{Asked, Session};
use crate::stream::Stream;

pub(super) struct Connection {
    pub stream: Stream,
    pub peer: SocketAddr,
    pub session: Session,
    pub parser: RequestParser,
    /// Requests that have been read, each with its instant.
    pub waiting: VecDeque<(Request, Time)>,
    pub waiting_bytes: usize,
    /// What the pool has left of a run.
    pub rest: Vec<Asked>,
    /// Whether the pool has work of it, and how many bytes that takes.
    pub is_away: bool,
    pub away_bytes: usize,
    /// Replies behind those of the work that is away.
    pub behind: Vec<u8>,
    /// A subscription that is told once changes are heard.
    pub subscribing: Option<(Request, bool)>,
    /// The request whose password is being checked.
    pub claim: Option<Request>,
    pub out: Vec<u8>,
    /// How much of `out` is sent.
    pub sent: usize,
    pub is_readable: bool,
    pub is_writable: bool,
    /// An end has been told, so that it is read until that shows.
    pub has_end: bool,
    /// What was wrong with its bytes: said behind all replies.
    pub broken: Option<ProtocolError>,
    /// Its client sends no more.
    pub is_ended: bool,
    /// To be closed once all is sent.
    pub is_closing: bool,
    /// To be dropped: its client reads less than it hears.
    pub is_behind: bool,
    /// Whether it is on the list of those that go on.
    pub goes_on: bool,
    /// The bytes that count for it.
    pub counted: usize,
    pub began: Time,
    /// Since when it has had time to say which user it is.
    pub stranger_since: Time,
    /// When its last byte came, and when the last one was taken.
    pub came: Time,
    pub taken: Time,
}

impl Connection {
    /// Bytes of replies that the socket has not taken; one at least while some are encrypted and wait.
    pub fn unsent(&self) -> usize {
        (self.out.len() - self.sent).max(usize::from(self.stream.is_pending()))
    }

    /// Bytes are about to go into `out`: where none waited, their client has had no time yet to take them.
    pub fn says(&mut self, now: Time) {
        if self.unsent() == 0 {
            self.taken = now;
        }
    }

    /// The bytes that it takes here.
    pub fn kept(&self) -> usize {
        let read = self.parser.kept() + self.waiting_bytes + self.away_bytes;
        let rest: usize = self.rest.iter().map(Asked::bytes).sum();
        self.stream.kept() + read + rest + self.session.kept() + self.out.len() + self.behind.len()
    }

    /// Whether one more request may be taken from its bytes.
    fn finds(&self) -> bool {
        if self.session.login.is_stranger() {
            // One at a time: what follows may have other bounds.
            !self.is_away && self.waiting.is_empty()
        } else {
            self.waiting.len() < REQUESTS_WAITING_MAX
        }
    }

    pub fn reads(&self) -> bool {
        let has_room = !self.session.login.is_stranger() || self.parser.kept() <= STRANGER_KEPT;
        has_room && self.goes_on_finding() && !self.is_ended
    }

    /// Whether further requests are looked for in what was read.
    fn goes_on_finding(&self) -> bool {
        self.finds()
            && self.waiting_bytes < REQUESTS_WAITING_BYTES
            && self.unsent() < REPLIES_PAUSE
            && self.broken.is_none()
            && !self.is_closing
    }

    pub fn is_idle(&self) -> bool {
        !self.is_away && self.rest.is_empty() && self.waiting.is_empty()
    }
}

/// The bytes of a stranger's requests that are read and not begun.
const STRANGER_KEPT: usize = 2 * Bounds::STRANGER.request;

/// Why a connection is over.
pub(super) struct Over;

impl<E: Engine + 'static, O: Os> EventLoop<E, O> {
    /// Does all that can be done for a connection now.
    pub(super) fn turn(&mut self, place: usize) {
        // Out of its place, so that its session may ask for others.
        let Some(mut connection) = self.connections.get_mut(place).and_then(Option::take) else {
            return;
        };
        // Once the server is to end, what is answered is sent, and nothing else begins.
        let is_ending = self.listener.is_none();
        let read = if is_ending { Ok(()) } else { self.read(&mut connection) };
        // What it asks for is not begun if it has more than its share where all have too much: work that is away
        // keeps its bytes until it is done, whatever becomes of the connection.
        let has_too_much = self.count_bytes(&mut connection);
        self.spent = 0;
        let over = read.and_then(|()| {
            if !is_ending && !has_too_much {
                self.advance(place, &mut connection);
            }
            self.send(&mut connection)
        });
        let has_too_much = has_too_much || self.count_bytes(&mut connection);
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
        let is_slow = connection.unsent() > max || connection.is_behind || has_too_much;
        let may_begin = !connection.is_away && !connection.is_closing && connection.unsent() < REPLIES_PAUSE;
        let more = may_begin && !(connection.is_idle() && connection.broken.is_none())
            || connection.is_readable && connection.reads()
            || self.spent >= STEPS_TURN && connection.parser.kept() > 0;
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

    /// Counts what a connection takes here; whether that is more than its share where all have too much.
    fn count_bytes(&mut self, connection: &mut Connection) -> bool {
        let kept = connection.kept();
        self.bytes = self.bytes - connection.counted + kept;
        connection.counted = kept;
        self.bytes > self.options.bytes_max && kept > self.share
    }

    /// Reads what has come, and finds the requests in it.
    pub(super) fn read(&mut self, connection: &mut Connection) -> Result<(), Over> {
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
                    let is_drained = connection.stream.is_drained(count, self.scratch.len());
                    connection.is_readable = connection.has_end || !is_drained;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.is_readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Over),
            }
        }
        Ok(())
    }

    pub(super) fn find(&self, connection: &mut Connection) {
        while connection.goes_on_finding() || connection.is_ended && connection.finds() {
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

    pub(super) fn send(&mut self, connection: &mut Connection) -> Result<(), Over> {
        while connection.is_writable && connection.unsent() > 0 {
            let unsent = &connection.out[connection.sent..];
            let sent = if unsent.is_empty() {
                connection.stream.flush().map(|()| 0)
            } else {
                connection.stream.write(unsent)
            };
            match sent {
                Ok(0) if !unsent.is_empty() => return Err(Over),
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
}
