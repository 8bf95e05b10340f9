//! A connection that this process dials, and dials again after it has ended.

use std::io;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use punctual_logs::frame;
use punctual_server::link::{Link, Turn};
use punctual_server::stream::{Ready, Stream};
use punctual_units::{Nanos, Time};

use super::{Access, PeerAddress, RETRY_FIRST, RETRY_MAX};
use crate::wire::Packet;

/// Time after which a connection counts as accepted: the next attempt after its end does not wait.
const LASTED: Nanos = RETRY_MAX;

/// The connection to a node, or the next attempt at it.
pub(super) struct Way {
    pub address: PeerAddress,
    pub token: Token,
    pub link: Option<Link<Stream>>,
    /// Version that this process speaks on the connection: the newest, or the oldest where the other end has closed the
    /// last one at once.
    pub version: u8,
    /// Whether the other end has accepted the connection.
    is_connected: bool,
    is_older: bool,
    dialled: Time,
    retry_at: Time,
    backoff: Nanos,
    /// The last refusal that was reported.
    refused: Option<String>,
}

impl Way {
    pub fn new(address: PeerAddress, token: Token) -> Way {
        Way {
            address,
            token,
            link: None,
            version: 0,
            is_connected: false,
            is_older: false,
            dialled: Time::ZERO,
            retry_at: Time::ZERO,
            backoff: RETRY_FIRST,
            refused: None,
        }
    }

    pub fn next_due(&self) -> Time {
        match self.link {
            Some(_) => Time::MAX,
            None => self.retry_at,
        }
    }

    /// Makes the next attempt at once, because the program at the other end has connected here. A node that has just
    /// started listens for less time than an attempt may wait; without this it would replace a master that it has not
    /// heard.
    pub fn is_there(&mut self) {
        self.retry_at = Time::ZERO;
    }

    pub fn ready(&mut self, ready: Ready) {
        if let Some(link) = &mut self.link {
            link.ready(ready);
        }
    }

    /// Dials if it is time to, and sends this process' name first. Returns the reason of a refusal that an operator
    /// should know.
    pub fn connect(&mut self, registry: &Registry, access: &Access, name: &Packet, now: Time) -> Option<String> {
        if self.link.is_some() || self.retry_at > now {
            return None;
        }
        self.dialled = now;
        self.retry_at = now + self.backoff;
        self.backoff = Nanos(self.backoff.0 * 2).min(RETRY_MAX);
        let socket = TcpStream::connect(self.address.socket).ok()?;
        let mut stream = match access.dial(socket, &self.address.name) {
            Ok(stream) => stream,
            Err(refused) => return self.refused(refused),
        };
        let both = Interest::READABLE | Interest::WRITABLE;
        registry.register(stream.socket(), self.token, both).ok()?;
        let mut link = Link::new(stream);
        let [oldest, newest] = access.versions;
        self.version = if self.is_older { oldest } else { newest };
        self.is_connected = false;
        frame::write(&mut link.out, self.version, name);
        self.link = Some(link);
        None
    }

    /// Drops the connection, which has ended. Where it was accepted and lasted for less than [`LASTED`], the other end
    /// may be an older program: the next attempt speaks the other version.
    pub fn ended(&mut self, now: Time) {
        self.link = None;
        self.is_older = !self.is_older && self.is_connected && now.since(self.dialled) < LASTED;
    }

    /// Returns a refusal to report, unless it was the last one reported.
    pub fn refused(&mut self, why: String) -> Option<String> {
        if self.refused.as_ref() == Some(&why) {
            return None;
        }
        self.refused = Some(why.clone());
        Some(why)
    }

    /// Reads the bytes that have arrived.
    pub fn read(&mut self, scratch: &mut Vec<u8>, now: Time, take: impl FnMut(&[u8])) -> io::Result<Turn> {
        let Some(link) = &mut self.link else {
            return Ok(Turn::Empty);
        };
        self.is_connected |= link.is_writable;
        let turn = link.read(scratch, take)?;
        if link.is_writable && turn != Turn::Ended {
            // A socket that is ready to write is connected.
            link.stream.socket().set_nodelay(true)?;
            if now.since(self.dialled) >= LASTED && !link.stream.is_handshaking() {
                self.backoff = RETRY_FIRST;
                self.refused = None;
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

    /// An older program closes the connection of a newer one at once; one that lasted may have been upgraded since.
    #[test]
    fn what_is_closed_at_once_is_tried_in_the_older_version() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let poll = Poll::new().unwrap();
        let mut way = Way::new(PeerAddress::of(listener.local_addr().unwrap()), Token(1));
        let (mut now, mut spoken, access) = (Time::ZERO, Vec::new(), Access::default());
        for (is_accepted, lasts) in [
            (false, Nanos::ZERO),
            (true, Nanos::ZERO),
            (true, LASTED),
            (true, LASTED),
            (true, Nanos::ZERO),
            (true, Nanos::ZERO),
            (true, Nanos::ZERO),
        ] {
            way.connect(poll.registry(), &access, &Packet::Front, now);
            spoken.push(way.version);
            way.is_connected = is_accepted;
            way.ended(now + lasts);
            now = now + lasts + RETRY_MAX;
        }
        let [oldest, newest] = access.versions;
        assert_eq!(spoken, [newest, newest, oldest, newest, newest, oldest, newest]);
    }

    /// A program that is none of the federation: it takes the connection, and ends it.
    #[test]
    fn one_that_accepts_and_closes_is_dialled_less_and_less_often() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let poll = Poll::new().unwrap();
        let mut way = Way::new(PeerAddress::of(listener.local_addr().unwrap()), Token(1));
        let (mut now, mut waits, mut scratch) = (Time::ZERO, Vec::new(), Vec::new());
        for _ in 0..8 {
            way.connect(poll.registry(), &Access::default(), &Packet::Front, now);
            drop(listener.accept().unwrap());
            while way.link.is_some() {
                way.ready(Ready {
                    reads: true,
                    writes: true,
                    ends: true,
                });
                if let Err(_) | Ok(Turn::Ended) = way.read(&mut scratch, now, |_| {}) {
                    way.link = None;
                }
            }
            waits.push(way.next_due().since(now));
            now = way.next_due();
        }
        assert!(waits.is_sorted() && waits[0] == RETRY_FIRST, "{waits:?}");
        assert_eq!(waits[7], RETRY_MAX);
        // One that calls is dialled at once, and once.
        let dial = |way: &mut Way, now| way.connect(poll.registry(), &Access::default(), &Packet::Front, now);
        dial(&mut way, now);
        way.link = None;
        assert_eq!(way.next_due(), now + RETRY_MAX);
        way.is_there();
        assert!(way.next_due() <= now);
        dial(&mut way, now);
        assert!(way.link.is_some());
        way.link = None;
        assert_eq!(way.next_due(), now + RETRY_MAX);
    }
}
