//! Connections from other processes, in slots that the event loop's tokens name.

use std::io;

use mio::net::TcpListener;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// Connections of one kind, at most `max`.
pub(super) struct Places<T> {
    all: Vec<Option<T>>,
    free: Vec<usize>,
    max: usize,
    /// Token of the first slot.
    first: usize,
    /// Number of connections that ever began.
    begun: u32,
}

impl<T> Places<T> {
    pub fn new(max: usize, first: usize) -> Places<T> {
        Places {
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

    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.all.get_mut(place)?.as_mut()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let there = self.all.iter_mut().enumerate();
        there.filter_map(|(place, there)| there.as_mut().map(|there| (place, there)))
    }

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
            if self.len() >= self.max {
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

    use super::super::PEERS_MAX;
    use super::*;

    #[test]
    fn no_more_take_places_than_there_are() {
        let poll = Poll::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        let (mut places, mut refused) = (Places::new(PEERS_MAX, 7), 0);
        let mut others = Vec::new();
        while others.len() < PEERS_MAX + 3 {
            others.push(net::TcpStream::connect(at).unwrap());
            while places.len() + refused < others.len() {
                places.accept(&listener, poll.registry(), |stream, _| Some(stream), |_| refused += 1);
            }
        }
        assert_eq!((places.len(), refused), (PEERS_MAX, 3));
        // A place that is free again is the next one's.
        places.remove(5).unwrap();
        others.push(net::TcpStream::connect(at).unwrap());
        while places.get_mut(5).is_none() {
            places.accept(&listener, poll.registry(), |stream, _| Some(stream), |_| refused += 1);
        }
        assert_eq!((places.len(), refused), (PEERS_MAX, 3));
    }
}
