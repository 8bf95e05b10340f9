//! Connections from other processes, in slots that the event loop's tokens name.

use std::io;

use mio::Token;

use crate::link::Link;
use crate::net::{Net, Socket};
use crate::stream::Ready;

/// The most connections accepted in one turn.
const ACCEPTED_TURN: usize = 64;
/// The most TLS handshakes that go on in one turn: each costs a signature, some tenths of a millisecond.
pub const HANDSHAKES_TURN: usize = 8;

/// Connections of one kind, at most `max`, each with a link.
pub struct Slots<T> {
    all: Vec<Option<Box<T>>>,
    free: Vec<usize>,
    /// Slots of connections that have something to do without an event.
    pub again: Vec<usize>,
    /// Which slots `due` has seen; all false between its calls.
    seen: Vec<bool>,
    max: usize,
    /// Token of the first slot.
    first: usize,
}

impl<T: AsMut<Link>> Slots<T> {
    /// Makes `max` slots, the first one for the token `first`.
    pub fn new(max: usize, first: usize) -> Slots<T> {
        Slots {
            all: Vec::new(),
            free: Vec::new(),
            again: Vec::new(),
            seen: Vec::new(),
            max,
            first,
        }
    }

    /// Number of connections now, at most `max`.
    pub fn taken(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// The connection in a slot.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.all.get_mut(place)?.as_deref_mut()
    }

    /// All connections, with their slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let there = self.all.iter_mut().enumerate();
        there.filter_map(|(place, there)| Some((place, there.as_deref_mut()?)))
    }

    /// Frees a slot, and returns its connection.
    pub fn remove(&mut self, place: usize) -> Option<Box<T>> {
        let gone = self.all.get_mut(place)?.take()?;
        self.free.push(place);
        Some(gone)
    }

    /// Takes note that the socket of a token can be read or written.
    pub fn ready(&mut self, token: Token, ready: Ready) {
        let place = token.0 - self.first;
        if let Some(connection) = self.get_mut(place) {
            connection.as_mut().ready(ready);
            self.again.push(place);
        }
    }

    /// Returns the slots of connections that have something to do, each once, in the order in which they became ready,
    /// and with at most [`HANDSHAKES_TURN`] handshakes; the others are due next time.
    pub fn due(&mut self) -> Vec<usize> {
        let mut due = std::mem::take(&mut self.again);
        self.seen.resize(self.all.len(), false);
        due.retain(|place| {
            self.seen
                .get_mut(*place)
                .is_some_and(|seen| !std::mem::replace(seen, true))
        });
        due.iter().for_each(|place| self.seen[*place] = false);
        let mut handshakes = 0;
        due.retain(|place| {
            let connection = self.get_mut(*place);
            let is_handshaking = connection.is_some_and(|own| own.as_mut().stream.is_handshaking());
            handshakes += usize::from(is_handshaking);
            let has_turn = !is_handshaking || handshakes <= HANDSHAKES_TURN;
            if !has_turn {
                self.again.push(*place);
            }
            has_turn
        });
        due
    }

    /// Accepts connections that wait at a listener; returns whether more may be waiting. `begin` makes a connection of
    /// a socket and its slot, or `None` if it cannot begin; it gets sockets for which no slot is free, too.
    pub fn accept(
        &mut self,
        net: &mut dyn Net,
        listener: Token,
        mut begin: impl FnMut(Box<dyn Socket>, Option<usize>) -> Option<T>,
    ) -> bool {
        for _ in 0..ACCEPTED_TURN {
            let place = self.free.last().copied().unwrap_or(self.all.len());
            let stream = match net.accept(listener, Token(self.first + place)) {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            if self.taken() >= self.max {
                begin(stream, None);
            } else if let Some(begun) = begin(stream, Some(place)) {
                if self.free.pop().is_none() {
                    self.all.push(None);
                }
                self.all[place] = Some(Box::new(begun));
            }
        }
        true
    }

    /// Sends unsent bytes as far as sockets take them at once, before the connections end.
    pub fn say_goodbye(&mut self) {
        for (_, connection) in self.iter_mut() {
            connection.as_mut().is_writable = true;
            // An error does not matter: the connection ends anyway.
            drop(connection.as_mut().flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net;

    use super::*;
    use crate::net::{CLIENTS, Sockets};
    use crate::stream::Stream;

    const MAX: usize = 128;

    struct Other(Link);

    impl AsMut<Link> for Other {
        fn as_mut(&mut self) -> &mut Link {
            &mut self.0
        }
    }

    #[test]
    fn no_more_take_slots_than_there_are() {
        let mut sockets = Sockets::new().unwrap();
        let at = sockets.listen("127.0.0.1:0".parse().unwrap(), CLIENTS).unwrap();
        let (mut slots, mut refused) = (Slots::new(MAX, 7), 0);
        let mut accept = |slots: &mut Slots<Other>| {
            slots.accept(&mut sockets, CLIENTS, |stream, slot| {
                refused += usize::from(slot.is_none());
                slot.map(|_| Other(Link::new(Stream::Plain(stream))))
            });
            refused
        };
        let mut others = Vec::new();
        while others.len() < MAX + 3 {
            others.push(net::TcpStream::connect(at).unwrap());
            while accept(&mut slots) + slots.taken() < others.len() {}
        }
        assert_eq!((slots.taken(), accept(&mut slots)), (MAX, 3));
        // A slot that is free again is the next one's.
        slots.remove(5).unwrap();
        others.push(net::TcpStream::connect(at).unwrap());
        while slots.get_mut(5).is_none() {
            accept(&mut slots);
        }
        assert_eq!((slots.taken(), accept(&mut slots)), (MAX, 3));
    }
}
