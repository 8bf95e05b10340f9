//! Connections from other processes, in slots that the event loop's tokens name.

use std::io;

use mio::net::TcpListener;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// Connections of one kind, at most `max`.
pub struct Slots<T> {
    all: Vec<Option<T>>,
    free: Vec<usize>,
    max: usize,
    /// Token of the first slot.
    first: usize,
    /// Number of connections that ever began.
    begun: u32,
}

impl<T> Slots<T> {
    /// Makes `max` slots, the first one for the token `first`.
    pub fn new(max: usize, first: usize) -> Slots<T> {
        Slots {
            all: Vec::new(),
            free: Vec::new(),
            max,
            first,
            begun: 0,
        }
    }

    /// The index of the slot that a token names.
    pub fn of(&self, token: Token) -> usize {
        token.0 - self.first
    }

    /// Number of connections that ever began.
    pub fn begun(&self) -> u32 {
        self.begun
    }

    /// Number of connections.
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

    /// Frees a slot.
    pub fn remove(&mut self, place: usize) -> Option<T> {
        let gone = self.all.get_mut(place)?.take()?;
        self.free.push(place);
        Some(gone)
    }

    /// Accepts waiting connections. `take` makes a connection of a socket and its number, or `None` if it cannot begin;
    /// `refuse` gets sockets for which no slot is free.
    pub fn accept(
        &mut self,
        listener: &TcpListener,
        registry: &Registry,
        mut take: impl FnMut(TcpStream, u32) -> Option<T>,
        mut refuse: impl FnMut(TcpStream),
    ) {
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            if self.taken() >= self.max {
                refuse(stream);
                continue;
            }
            let place = self.free.pop().unwrap_or(self.all.len());
            if place == self.all.len() {
                self.all.push(None);
            }
            let both = Interest::READABLE | Interest::WRITABLE;
            let registered = registry.register(&mut stream, Token(self.first + place), both);
            if registered.is_err() || stream.set_nodelay(true).is_err() {
                self.free.push(place);
                continue;
            }
            self.begun = self.begun.wrapping_add(1);
            self.all[place] = take(stream, self.begun);
            if self.all[place].is_none() {
                self.free.push(place);
            }
        }
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
                slots.accept(&listener, poll.registry(), |stream, _| Some(stream), |_| refused += 1);
            }
        }
        assert_eq!((slots.taken(), refused), (MAX, 3));
        // A slot that is free again is the next one's.
        slots.remove(5).unwrap();
        others.push(net::TcpStream::connect(at).unwrap());
        while slots.get_mut(5).is_none() {
            slots.accept(&listener, poll.registry(), |stream, _| Some(stream), |_| refused += 1);
        }
        assert_eq!((slots.taken(), refused), (MAX, 3));
    }
}
