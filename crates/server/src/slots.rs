//! Connections from other processes, in slots that the event loop's tokens name.

use std::io;

use mio::net::TcpListener;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// The most connections accepted in one turn.
const ACCEPTED_TURN: usize = 64;

/// Connections of one kind, at most `max`.
pub struct Slots<T> {
    all: Vec<Option<T>>,
    free: Vec<usize>,
    max: usize,
    /// Token of the first slot.
    first: usize,
}

impl<T> Slots<T> {
    /// Makes `max` slots, the first one for the token `first`.
    pub fn new(max: usize, first: usize) -> Slots<T> {
        Slots {
            all: Vec::new(),
            free: Vec::new(),
            max,
            first,
        }
    }

    /// The index of the slot that a token names.
    pub fn of(&self, token: Token) -> usize {
        token.0 - self.first
    }

    /// Number of connections now, at most `max`.
    pub fn taken(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// The connection in a slot.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.all.get_mut(place)?.as_mut()
    }

    /// All connections, with their slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let there = self.all.iter_mut().enumerate();
        there.filter_map(|(place, there)| there.as_mut().map(|there| (place, there)))
    }

    /// Frees a slot, and returns its connection.
    pub fn remove(&mut self, place: usize) -> Option<T> {
        let gone = self.all.get_mut(place)?.take()?;
        self.free.push(place);
        Some(gone)
    }

    /// Accepts waiting connections; returns whether more may be waiting. `begin` makes a connection of a socket and its
    /// slot, or `None` if it cannot begin; it gets sockets for which no slot is free, too.
    pub fn accept(
        &mut self,
        listener: &TcpListener,
        registry: &Registry,
        mut begin: impl FnMut(TcpStream, Option<usize>) -> Option<T>,
    ) -> bool {
        for _ in 0..ACCEPTED_TURN {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            if self.taken() >= self.max {
                begin(stream, None);
                continue;
            }
            let place = self.free.pop().unwrap_or(self.all.len());
            if place == self.all.len() {
                self.all.push(None);
            }
            let both = Interest::READABLE | Interest::WRITABLE;
            let registered = registry.register(&mut stream, Token(self.first + place), both);
            if registered.is_ok() && stream.set_nodelay(true).is_ok() {
                self.all[place] = begin(stream, Some(place));
            }
            if self.all[place].is_none() {
                self.free.push(place);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net;

    use mio::Poll;

    use super::*;

    const MAX: usize = 128;

    #[test]
    fn no_more_take_slots_than_there_are() {
        let poll = Poll::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        let (mut slots, mut refused) = (Slots::new(MAX, 7), 0);
        let mut others = Vec::new();
        while others.len() < MAX + 3 {
            others.push(net::TcpStream::connect(at).unwrap());
            while slots.taken() + refused < others.len() {
                slots.accept(&listener, poll.registry(), |stream, slot| {
                    refused += usize::from(slot.is_none());
                    slot.map(|_| stream)
                });
            }
        }
        assert_eq!((slots.taken(), refused), (MAX, 3));
        // A slot that is free again is the next one's.
        slots.remove(5).unwrap();
        others.push(net::TcpStream::connect(at).unwrap());
        while slots.get_mut(5).is_none() {
            slots.accept(&listener, poll.registry(), |stream, slot| {
                refused += usize::from(slot.is_none());
                slot.map(|_| stream)
            });
        }
        assert_eq!((slots.taken(), refused), (MAX, 3));
    }
}
