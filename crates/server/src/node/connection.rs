//! A client connection: input buffer, output buffer, and their limits.

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
use crate::session::{Call, Session};
use crate::stream::Stream;

pub(super) struct Connection {
    pub stream: Stream,
    pub peer: SocketAddr,
    pub session: Session,
    pub parser: RequestParser,
    /// Requests that are read but not begun, each with its instant.
    pub waiting: VecDeque<(Request, Time)>,
    pub waiting_bytes: usize,
    /// Commands that the pool has left over of the last job.
    pub rest: Vec<Call>,
    /// Whether the pool or the prover has a job of this connection, and the bytes of that job.
    pub is_away: bool,
    pub away_bytes: usize,
    /// Replies that go out after those of the present job.
    pub behind: Vec<u8>,
    /// A subscription to confirm once changes of keys are reported (`true`: patterns).
    pub subscribing: Option<(Request, bool)>,
    pub out: Vec<u8>,
    /// Bytes of `out` that are sent.
    pub sent: usize,
    pub is_readable: bool,
    pub is_writable: bool,
    /// Whether an event has reported the end; reads continue until they return it.
    pub has_end: bool,
    /// An error of the protocol, to be sent after all replies.
    pub broken: Option<ProtocolError>,
    /// Whether the client sends no more.
    pub is_ended: bool,
    /// Whether to close the connection once all is sent.
    pub is_closing: bool,
    /// Whether to drop the connection: its client reads less than its subscriptions bring.
    pub is_behind: bool,
    /// Whether this connection is in `EventLoop::again`.
    pub goes_on: bool,
    /// Bytes of this connection that are counted in `EventLoop::memory`.
    pub counted: usize,
    pub times: Times,
}

/// Instants in the life of a connection.
pub(super) struct Times {
    pub began: Time,
    /// Start of the time limit for logging in.
    pub stranger_since: Time,
    /// When the last byte arrived.
    pub came: Time,
    /// When the client last took a byte.
    pub taken: Time,
}

impl Times {
    /// Times of a connection that begins now.
    pub fn beginning(now: Time) -> Times {
        Times {
            began: now,
            stranger_since: now,
            came: now,
            taken: now,
        }
    }
}

impl Connection {
    /// Bytes of replies that the socket has not taken; at least 1 while encrypted bytes wait.
    pub fn unsent(&self) -> usize {
        (self.out.len() - self.sent).max(usize::from(self.stream.is_pending()))
    }

    /// To be called before bytes are added to `out`. If nothing was unsent, the client's time to take bytes begins now.
    pub fn says(&mut self, now: Time) {
        if self.unsent() == 0 {
            self.times.taken = now;
        }
    }

    /// Memory of the connection, in bytes.
    pub fn kept(&self) -> usize {
        let read = self.parser.kept() + self.waiting_bytes + self.away_bytes;
        let rest: usize = self.rest.iter().map(Call::bytes).sum();
        self.stream.kept() + read + rest + self.session.kept() + self.out.len() + self.behind.len()
    }

    /// Whether one more request may be parsed.
    fn finds(&self) -> bool {
        if self.session.login.is_stranger() {
            // A single request at a time, because other bounds hold after a login.
            !self.is_away && self.waiting.is_empty()
        } else {
            self.waiting.len() < REQUESTS_WAITING_MAX
        }
    }

    pub fn reads(&self) -> bool {
        let has_room = !self.session.login.is_stranger() || self.parser.kept() <= STRANGER_KEPT;
        has_room && self.goes_on_finding() && !self.is_ended
    }

    /// Whether the connection's state allows parsing further requests.
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

/// The most bytes of a stranger's requests that are read but not begun.
const STRANGER_KEPT: usize = 2 * Bounds::STRANGER.request;

/// The connection is closed by the client, or failed.
pub(super) struct Over;

impl<E: Engine + 'static, O: Os> EventLoop<E, O> {
    /// Reads, begins and sends whatever a connection can at present.
    pub(super) fn turn(&mut self, place: usize) {
        // Taken out of the table, because its session may need the other connections.
        let Some(mut connection) = self.connections.get_mut(place).and_then(Option::take) else {
            return;
        };
        // Once the server is to end, replies are sent, and nothing else begins.
        let is_ending = self.listener.is_none();
        let read = if is_ending { Ok(()) } else { self.read(&mut connection) };
        // No request begins while this connection has more than its share and all together have too much: a job on the
        // pool keeps its bytes until it is done, even if the connection ends.
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
            self.totals.dropped += 1;
        }
        if is_over || is_slow {
            self.end(place);
        } else if more && !is_ending {
            self.go_on(place);
        }
    }

    /// Updates the count of the connection's memory; returns whether it exceeds its share while all together exceed the
    /// limit.
    fn count_bytes(&mut self, connection: &mut Connection) -> bool {
        let kept = connection.kept();
        self.memory.bytes = self.memory.bytes - connection.counted + kept;
        connection.counted = kept;
        self.memory.bytes > self.options.bytes_max && kept > self.memory.share
    }

    /// Reads the bytes that have arrived, and parses their requests.
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
                    connection.times.came = self.shared.os.now();
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
            match connection.parser.next(connection.session.bounds(&self.settings)) {
                Ok(Some(request)) => {
                    connection.waiting_bytes += request.bytes();
                    connection.waiting.push_back((request, connection.times.came));
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
                    connection.times.taken = self.shared.os.now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.is_writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Over),
            }
        }
        /// The most room for replies that an idle connection keeps.
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
