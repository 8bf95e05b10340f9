//! A connection of the event loop: the client's, and its job on the pool.

use std::io;

use punctual_os::Os;
use punctual_store::engine::Engine;

use super::{EventLoop, HEARD_MAX, REPLIES_MAX, STEPS_TURN};
use crate::client::{ClientConnection, REPLIES_PAUSE};
use crate::resp::request::Request;
use crate::session::Call;

pub(super) struct Connection {
    pub client: ClientConnection,
    /// Commands that the pool has left over of the last job.
    pub rest: Vec<Call>,
    /// Whether the pool or the prover has a job of this connection, and the bytes of that job.
    pub is_away: bool,
    pub away_bytes: usize,
    /// Replies that go out after those of the present job.
    pub behind: Vec<u8>,
    /// A subscription to confirm once changes of keys are reported (`true`: patterns).
    pub subscribing: Option<(Request, bool)>,
    /// Whether this connection is in `EventLoop::again`.
    pub goes_on: bool,
    /// Bytes of this connection that are counted in `EventLoop::memory`.
    pub counted: usize,
}

impl Connection {
    /// Makes a connection without a job.
    pub fn new(client: ClientConnection) -> Connection {
        Connection {
            client,
            rest: Vec::new(),
            is_away: false,
            away_bytes: 0,
            behind: Vec::new(),
            subscribing: None,
            goes_on: false,
            counted: 0,
        }
    }

    /// Memory of the connection, in bytes.
    pub fn kept(&self) -> usize {
        let link = &self.client.link;
        let rest: usize = self.rest.iter().map(Call::bytes).sum();
        let replies = link.stream.kept() + link.out.len() + self.behind.len();
        self.client.kept() + self.client.session.kept() + self.away_bytes + rest + replies
    }

    /// Whether more may be read.
    pub fn reads(&self) -> bool {
        self.client.link.unsent() < REPLIES_PAUSE && self.client.reads(self.is_away)
    }

    pub fn is_idle(&self) -> bool {
        !self.is_away && self.rest.is_empty() && self.client.waiting() == 0
    }
}

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
        let result = read.and_then(|()| {
            if !is_ending && !has_too_much {
                self.advance(place, &mut connection);
            }
            connection.client.flush(|| self.shared.os.now())
        });
        let has_too_much = has_too_much || self.count_bytes(&mut connection);
        let (client, unsent) = (&connection.client, connection.client.link.unsent());
        let is_done = client.is_closing || client.is_ended && connection.is_idle();
        let is_over = result.is_err() || is_done && !connection.is_away && unsent == 0;
        let max = if client.session.subscriptions() > 0 {
            HEARD_MAX
        } else {
            REPLIES_MAX
        };
        let is_slow = unsent > max || client.is_behind || has_too_much;
        let may_begin = !connection.is_away && !client.is_closing && unsent < REPLIES_PAUSE;
        let more = may_begin && !(connection.is_idle() && client.broken.is_none())
            || client.link.is_readable && connection.reads()
            || self.spent >= STEPS_TURN && client.kept() > 0;
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
    fn read(&mut self, connection: &mut Connection) -> io::Result<()> {
        let (client, is_away) = (&mut connection.client, connection.is_away);
        client.parse(&self.settings, is_away);
        if client.link.unsent() >= REPLIES_PAUSE {
            return Ok(());
        }
        let os = &self.shared.os;
        client.read(&self.settings, is_away, &mut self.scratch, || os.now())
    }
}
