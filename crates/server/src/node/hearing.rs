//! Channels and changed keys: delivers messages to the connections that subscribe.

use punctual_os::Os;
use punctual_store::engine::Engine;

use punctual_units::Time;

use super::connection::Connection;
use super::{EventLoop, HEARD_MAX, STEPS_TURN};
use crate::subscribers::messages;

impl<E: Engine + 'static, O: Os> EventLoop<E, O> {
    /// Delivers a message to the subscribers of `channel`; returns their number. `own`, at `place`, is out of the
    /// table.
    pub(super) fn publish(&mut self, place: usize, own: &mut Connection, channel: &[u8], message: &[u8]) -> i64 {
        let now = self.shared.os.now();
        let hearing = self.hearing(channel);
        for (at, pattern) in &hearing {
            if *at == place {
                self.spent += own.client.deliver(pattern.as_deref(), channel, message, HEARD_MAX, now);
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
        let bytes = connection.client.deliver(pattern, channel, message, HEARD_MAX, now);
        // Counted at once, because many messages may be delivered before the connection's next turn.
        connection.counted += bytes;
        self.memory.bytes += bytes;
        connection.client.is_behind |=
            self.memory.bytes > self.options.bytes_max && connection.counted > self.memory.share;
        self.spent += bytes;
        self.go_on(at);
    }
}
