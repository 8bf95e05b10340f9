//! A connection that this process dials, and dials again after it has ended.

use std::io;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use punctual_federation::ids::FederationId;
use punctual_logs::frame::{self, FrameError, Frames};
use punctual_server::link::{Link, Turn};
use punctual_server::stream::Ready;
use punctual_units::{Nanos, Time};

use super::{Access, PeerAddress, RETRY_FIRST, RETRY_MAX};
use crate::wire::{OLDEST, Packet, VERSION};

/// Time after which a connection counts as accepted: the next attempt after its end does not wait.
const LASTED: Nanos = RETRY_MAX;

/// The reason for which a connection with another process is over.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkEnd {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("it belongs to federation {theirs}, and this process to {ours}: correct the addresses, there or here")]
    OtherFederation { ours: FederationId, theirs: FederationId },
    #[error("a message without a name before it")]
    NoName,
    #[error("a second name")]
    SecondName,
    #[error("a front's message of a node, or a node's of a front")]
    OutOfPlace,
    #[error("it has ended")]
    Ended,
}

impl LinkEnd {
    /// Whether an operator need not know. Refusals by TLS are reported; after other errors of the system, the process
    /// at the other end counts as gone.
    pub fn is_plain(&self) -> bool {
        match self {
            LinkEnd::Io(error) => error.kind() != io::ErrorKind::InvalidData,
            gone => matches!(gone, LinkEnd::Ended),
        }
    }
}

/// The connection to a node, or the next attempt at it.
pub(super) struct Way {
    pub address: PeerAddress,
    pub token: Token,
    pub link: Option<Link>,
    frames: Frames,
    /// The longest frame that the other end may send.
    frame_max: usize,
    /// Version that this process speaks on the connection: the newest, or the oldest where the other end has closed the
    /// last one at once.
    pub version: u8,
    /// Whether the other end has accepted the connection.
    is_connected: bool,
    is_older: bool,
    dialled: Time,
    retry_at: Time,
    backoff: Nanos,
    /// The last reason that was reported; forgotten at the end of a connection that lasted and was not refused.
    refused: Option<String>,
}

impl Way {
    pub fn new(address: PeerAddress, token: Token, frame_max: usize) -> Way {
        Way {
            address,
            token,
            link: None,
            frames: Frames::between([OLDEST, VERSION], frame_max),
            frame_max,
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
    /// may be an older program: the next attempt speaks the other version. Returns a reason that an operator should
    /// know, once for any number of attempts that end by it.
    pub fn ended(&mut self, gone: &LinkEnd, now: Time) -> Option<String> {
        let has_lasted = now.since(self.dialled) >= LASTED;
        let was_open = self.link.take().is_some_and(|link| !link.stream.is_handshaking());
        self.frames = Frames::between([OLDEST, VERSION], self.frame_max);
        self.is_older = !self.is_older && self.is_connected && !has_lasted;
        if !gone.is_plain() {
            return self.refused(gone.to_string());
        }
        if self.is_connected && was_open && has_lasted {
            self.refused = None;
        }
        None
    }

    /// Returns a refusal to report, unless it was the last one reported.
    fn refused(&mut self, why: String) -> Option<String> {
        if self.refused.as_ref() == Some(&why) {
            return None;
        }
        self.refused = Some(why.clone());
        Some(why)
    }

    /// Reads the packets that have arrived, also those before the end; returns whether there may be more.
    pub fn turn(&mut self, scratch: &mut Vec<u8>, now: Time, mut take: impl FnMut(Packet)) -> Result<bool, LinkEnd> {
        let turn = self.read(scratch, now);
        while let Some(packet) = self.frames.take()? {
            take(packet);
        }
        match turn? {
            Turn::Ended => Err(LinkEnd::Ended),
            turn => Ok(turn == Turn::More),
        }
    }

    fn read(&mut self, scratch: &mut Vec<u8>, now: Time) -> io::Result<Turn> {
        let Some(link) = &mut self.link else {
            return Ok(Turn::Empty);
        };
        self.is_connected |= link.is_writable;
        let turn = link.read(scratch, |bytes| self.frames.feed(bytes))?;
        if link.is_writable && turn != Turn::Ended {
            // A socket that is ready to write is connected.
            link.stream.socket().set_nodelay(true)?;
            if now.since(self.dialled) >= LASTED && !link.stream.is_handshaking() {
                self.backoff = RETRY_FIRST;
            }
        }
        Ok(turn)
    }

    /// Adds a packet to the unsent bytes, unless these are as many as `max`; returns whether it did.
    pub fn push(&mut self, max: usize, packet: impl FnOnce() -> Packet) -> bool {
        let link = self.link.as_mut().filter(|link| link.unsent() < max);
        link.map(|link| frame::write(&mut link.out, self.version, &packet()))
            .is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use mio::Poll;

    use super::*;
    use crate::wire::FRAME_BYTES_MAX;

    fn way_to(listener: &TcpListener) -> Way {
        let address = PeerAddress::of(listener.local_addr().unwrap());
        Way::new(address, Token(1), FRAME_BYTES_MAX)
    }

    /// An older program closes the connection of a newer one at once; one that lasted may have been upgraded since.
    #[test]
    fn what_is_closed_at_once_is_tried_in_the_older_version() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let poll = Poll::new().unwrap();
        let mut way = way_to(&listener);
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
            assert_eq!(way.ended(&LinkEnd::Ended, now + lasts), None);
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
        let mut way = way_to(&listener);
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
                if way.turn(&mut scratch, now, |_| {}).is_err() {
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

    /// A node whose name comes late is one of another federation at each attempt; only one that lasted until its
    /// process ended may be another since.
    #[test]
    fn a_reason_is_reported_once_however_long_the_connection_lasted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let poll = Poll::new().unwrap();
        let mut way = way_to(&listener);
        let (mut now, mut scratch) = (Time::ZERO, Vec::new());
        let [ours, theirs] = [FederationId(1), FederationId(2)];
        let other = LinkEnd::OtherFederation { ours, theirs };
        let ends = [
            (&other, LASTED, true),
            (&other, LASTED, false),
            (&LinkEnd::Ended, Nanos::ZERO, false),
            (&other, LASTED, false),
            (&LinkEnd::Ended, LASTED, false),
            (&other, LASTED, true),
            (&other, Nanos::ZERO, false),
        ];
        for (at, (gone, lasts, is_reported)) in ends.into_iter().enumerate() {
            way.connect(poll.registry(), &Access::default(), &Packet::Front, now);
            let mut name = Vec::new();
            frame::write(&mut name, VERSION, &Packet::Front);
            let mut node = listener.accept().unwrap().0;
            node.write_all(&name).unwrap();
            let mut packets = 0;
            while packets == 0 {
                way.ready(Ready {
                    reads: true,
                    writes: true,
                    ends: false,
                });
                way.turn(&mut scratch, now + lasts, |_| packets += 1).unwrap();
            }
            assert_eq!(way.ended(gone, now + lasts).is_some(), is_reported, "end {at}");
            now = now + lasts + RETRY_MAX;
        }
    }
}
