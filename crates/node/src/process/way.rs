//! A connection that this process dials, and dials again where it ends.

use std::io;
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use punctual_logs::frame;
use punctual_units::{Nanos, Time};

use super::link::{Link, Turn};
use super::{RETRY_FIRST, RETRY_MAX};
use crate::wire::{Packet, VERSION};

/// A connection that lasted for so long was accepted: the next attempt after its end does not wait.
const LASTED: Nanos = RETRY_MAX;

/// The way to a node.
pub(super) struct Way {
    pub address: SocketAddr,
    pub token: Token,
    pub link: Option<Link<TcpStream>>,
    dialled: Time,
    retry_at: Time,
    backoff: Nanos,
}

impl Way {
    pub fn new(address: SocketAddr, token: Token) -> Way {
        Way {
            address,
            token,
            link: None,
            dialled: Time::ZERO,
            retry_at: Time::ZERO,
            backoff: RETRY_FIRST,
        }
    }

    pub fn next_due(&self) -> Time {
        match self.link {
            Some(_) => Time::MAX,
            None => self.retry_at,
        }
    }

    pub fn ready(&mut self, is_readable: bool, is_writable: bool) {
        if let Some(link) = &mut self.link {
            link.is_readable |= is_readable;
            link.is_writable |= is_writable;
        }
    }

    /// Dials where it is time to, and says first what this process is.
    pub fn connect(&mut self, registry: &Registry, name: &Packet, now: Time) {
        if self.link.is_some() || self.retry_at > now {
            return;
        }
        self.dialled = now;
        self.retry_at = now + self.backoff;
        self.backoff = Nanos(self.backoff.0 * 2).min(RETRY_MAX);
        let Ok(mut stream) = TcpStream::connect(self.address) else {
            return;
        };
        let both = Interest::READABLE | Interest::WRITABLE;
        if registry.register(&mut stream, self.token, both).is_err() {
            return;
        }
        let mut link = Link::new(stream);
        frame::write(&mut link.out, VERSION, name);
        self.link = Some(link);
    }

    /// Reads what has come.
    pub fn read(&mut self, scratch: &mut Vec<u8>, now: Time, take: impl FnMut(&[u8])) -> io::Result<Turn> {
        let Some(link) = &mut self.link else {
            return Ok(Turn::Empty);
        };
        let turn = link.read(scratch, take)?;
        if link.is_writable && turn != Turn::Ended {
            // A socket that is ready to write is connected.
            link.stream.set_nodelay(true)?;
            if now.since(self.dialled) >= LASTED {
                self.backoff = RETRY_FIRST;
            }
        }
        Ok(turn)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use mio::Poll;

    use super::*;

    /// A program that is none of the federation: it takes the connection, and ends it.
    #[test]
    fn one_that_accepts_and_closes_is_dialled_less_and_less_often() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let poll = Poll::new().unwrap();
        let mut way = Way::new(listener.local_addr().unwrap(), Token(1));
        let (mut now, mut waits, mut scratch) = (Time::ZERO, Vec::new(), Vec::new());
        for _ in 0..8 {
            way.connect(poll.registry(), &Packet::Front, now);
            drop(listener.accept().unwrap());
            while way.link.is_some() {
                way.ready(true, true);
                if let Err(_) | Ok(Turn::Ended) = way.read(&mut scratch, now, |_| {}) {
                    way.link = None;
                }
            }
            waits.push(way.next_due().since(now));
            now = way.next_due();
        }
        assert!(waits.is_sorted() && waits[0] == RETRY_FIRST, "{waits:?}");
        assert_eq!(waits[7], RETRY_MAX);
    }
}
