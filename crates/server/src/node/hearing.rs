//! Channels and changed keys: which connection is told what.

use punctual_os::Os;
use punctual_store::engine::Engine;

use super::EventLoop;
use super::connection::Connection;
use crate::resp::request::Request;
use crate::resp::{Value, Writer};
use crate::session::Session;
use crate::subscribers::messages;

impl<E: Engine + 'static, O: Os> EventLoop<E, O> {
    pub(super) fn subscribe(&mut self, place: usize, connection: &mut Connection, request: &Request, patterns: bool) {
        for name in request.from(1) {
            self.subscribers.add(name, patterns, place);
            let names = names(&mut connection.session, patterns);
            names.insert(name.to_vec());
            let word = if patterns { "psubscribe" } else { "subscribe" };
            heard(connection, word, Some(name));
        }
    }

    pub(super) fn unsubscribe(&mut self, place: usize, connection: &mut Connection, request: &Request, patterns: bool) {
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
    pub(super) fn publish(&mut self, place: usize, own: &mut Connection, channel: &[u8], message: &[u8]) -> i64 {
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
    pub(super) fn tell(&mut self) {
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
