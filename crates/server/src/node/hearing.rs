//! Channels and changed keys: delivers messages to the connections that subscribe.

use punctual_os::Os;
use punctual_store::engine::Engine;

use punctual_units::Time;

use super::connection::Connection;
use super::{EventLoop, HEARD_MAX, STEPS_TURN};
use crate::resp::Writer;
use crate::resp::request::Request;
use crate::subscribers::{messages, write_message, write_subscription};

impl<E: Engine + 'static, O: Os> EventLoop<E, O> {
    pub(super) fn subscribe(&mut self, place: usize, connection: &mut Connection, request: &Request, patterns: bool) {
        connection.says(self.shared.os.now());
        if patterns && !self.subscribers.has_room(request.from(1)) {
            let error =
                "ERR the patterns of all clients would take too long to match: fewer, or fewer bytes behind a *";
            Writer::new(&mut connection.out, connection.session.version).error(error);
            return;
        }
        for name in request.from(1) {
            self.subscribers.add(name, patterns, place);
            connection.session.hear(name, patterns);
            let word = if patterns { "psubscribe" } else { "subscribe" };
            heard(connection, word, Some(name));
        }
    }

    pub(super) fn unsubscribe(&mut self, place: usize, connection: &mut Connection, request: &Request, patterns: bool) {
        let word = if patterns { "punsubscribe" } else { "unsubscribe" };
        let named: Vec<Vec<u8>> = if request.len() > 1 {
            request.from(1).map(<[u8]>::to_vec).collect()
        } else {
            connection.session.heard(patterns).iter().cloned().collect()
        };
        for name in &named {
            self.subscribers.remove(name, patterns, place);
            connection.session.unhear(name, patterns);
            heard(connection, word, Some(name));
        }
        if named.is_empty() {
            heard(connection, word, None);
        }
    }

    /// Delivers a message to the subscribers of `channel`; returns their number. `own`, at `place`, is out of the
    /// table.
    pub(super) fn publish(&mut self, place: usize, own: &mut Connection, channel: &[u8], message: &[u8]) -> i64 {
        let now = self.shared.os.now();
        let hearing = self.hearing(channel);
        for (at, pattern) in &hearing {
            if *at == place {
                self.spent += deliver(own, pattern.as_deref(), channel, message, now);
            } else {
                self.tell_one(*at, pattern.as_deref(), channel, message, now);
            }
        }
        hearing.len() as i64
    }

    /// Delivers changes of keys, as many as fit into one turn of the loop.
    pub(super) fn tell(&mut self) {
        if self.telling.is_empty() {
            self.telling.extend(self.shared.take_told());
        }
        self.spent = 0;
        let now = self.shared.os.now();
        while self.spent < STEPS_TURN
            && let Some(told) = self.telling.pop_front()
        {
            for (channel, message) in messages(&told) {
                for (at, pattern) in self.hearing(&channel) {
                    self.tell_one(at, pattern.as_deref(), &channel, &message, now);
                }
            }
        }
    }

    fn hearing(&mut self, channel: &[u8]) -> Vec<(usize, Option<Vec<u8>>)> {
        self.spent += self.subscribers.steps(channel.len());
        self.subscribers.hearing(channel)
    }

    pub(super) fn tell_one(&mut self, at: usize, pattern: Option<&[u8]>, channel: &[u8], message: &[u8], now: Time) {
        let Some(Some(connection)) = self.connections.get_mut(at) else {
            return;
        };
        let bytes = deliver(connection, pattern, channel, message, now);
        // Counted at once, because many messages may be delivered before the connection's next turn.
        connection.counted += bytes;
        self.memory.bytes += bytes;
        connection.is_behind |= self.memory.bytes > self.options.bytes_max && connection.counted > self.memory.share;
        self.spent += bytes;
        self.go_on(at);
    }
}

/// Writes that a subscription has begun or ended, with the number that remain.
fn heard(connection: &mut Connection, word: &str, name: Option<&[u8]>) {
    let count = connection.session.subscriptions();
    let out = &mut Writer::new(&mut connection.out, connection.session.version);
    write_subscription(out, word, name, count);
}

/// Writes a message after the replies in `out`, before those of a job on the pool. Returns its bytes; 0 if the client
/// is so far behind that it will be dropped.
fn deliver(connection: &mut Connection, pattern: Option<&[u8]>, channel: &[u8], message: &[u8], now: Time) -> usize {
    connection.is_behind |= connection.unsent() > HEARD_MAX;
    if connection.is_behind {
        return 0;
    }
    connection.says(now);
    let before = connection.out.len();
    let out = &mut Writer::new(&mut connection.out, connection.session.version);
    write_message(out, pattern, channel, message);
    connection.out.len() - before
}
