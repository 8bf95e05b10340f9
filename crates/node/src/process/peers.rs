//! Connections between nodes: one that this node dials to each peer, and those that peers have dialled.

use std::io;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use punctual_federation::ids::{FederationId, Member};
use punctual_federation::message::Message;
use punctual_logs::frame::{self, FrameError, Frames};
use punctual_server::stream::Stream;
use punctual_units::{Nanos, Time};

use super::link::{Link, Turn};
use super::{Access, PeerAddress, RETRY_FIRST, RETRY_MAX};
use crate::outgoing::Outgoing;
use crate::wire::{FRAME_BYTES_MAX, Packet, STRANGER_BYTES_MAX, VERSION};

/// While so many bytes wait for a peer's socket, further messages wait as messages.
const UNSENT_MAX: usize = 256 << 10;

/// A connection that lasted for so long was accepted: the next attempt after its end does not wait.
const LASTED: Nanos = RETRY_MAX;

/// The way to a peer.
pub(super) struct PeerOut {
    pub address: PeerAddress,
    token: Token,
    link: Option<Link<Stream>>,
    pub outgoing: Outgoing,
    dialled: Time,
    retry_at: Time,
    backoff: Nanos,
    /// Why the last connection was refused, as it was told.
    refused: Option<String>,
}

/// What an operator should know of the way to a peer.
pub(super) enum Trouble {
    /// A message of so many bytes is longer than peers take.
    TooLong(usize),
    /// One of both does not believe the other's certificate.
    Refused(String),
}

impl PeerOut {
    pub fn new(address: PeerAddress, token: Token) -> PeerOut {
        PeerOut {
            address,
            token,
            link: None,
            outgoing: Outgoing::default(),
            dialled: Time::ZERO,
            retry_at: Time::ZERO,
            backoff: RETRY_FIRST,
            refused: None,
        }
    }

    /// The peer is to be found somewhere else.
    pub fn moves(&mut self, address: &PeerAddress) {
        if self.address != *address {
            *self = PeerOut::new(address.clone(), self.token);
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
            link.ready(is_readable, is_writable);
        }
    }

    /// Dials where it is time to, and says first which node this is.
    pub fn connect(
        &mut self,
        registry: &Registry,
        access: &Access,
        federation: FederationId,
        from: Member,
        now: Time,
    ) -> Option<Trouble> {
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
        frame::write(&mut link.out, VERSION, &Packet::Hello { federation, from });
        self.link = Some(link);
        None
    }

    /// What is to be told of a refusal: the same one once.
    fn refused(&mut self, why: String) -> Option<Trouble> {
        if self.refused.as_ref() == Some(&why) {
            return None;
        }
        self.refused = Some(why.clone());
        Some(Trouble::Refused(why))
    }

    /// Sends what waits; what the operator should know of it.
    pub fn turn(&mut self, scratch: &mut Vec<u8>, now: Time) -> Option<Trouble> {
        let mut too_long = None;
        let ended = match self.try_turn(scratch, now, &mut too_long) {
            Ok(true) => return too_long.map(Trouble::TooLong),
            Ok(false) => None,
            Err(error) => Some(error),
        };
        self.link = None;
        self.outgoing.clear();
        // What TLS does not accept; all else is a peer that is gone.
        let refused = ended.filter(|error| error.kind() == io::ErrorKind::InvalidData);
        refused.and_then(|error| self.refused(error.to_string()))
    }

    /// Whether the connection goes on.
    fn try_turn(&mut self, scratch: &mut Vec<u8>, now: Time, too_long: &mut Option<usize>) -> io::Result<bool> {
        let Some(link) = &mut self.link else {
            return Ok(true);
        };
        // Peers say nothing here: what comes is the end.
        if link.read(scratch, |_| {})? == Turn::Ended {
            return Ok(false);
        }
        if link.is_writable {
            // A socket that is ready to write is connected.
            link.stream.socket().set_nodelay(true)?;
            if now.since(self.dialled) >= LASTED && !link.stream.is_handshaking() {
                self.backoff = RETRY_FIRST;
                self.refused = None;
            }
        }
        while link.unsent() < UNSENT_MAX
            && let Some(message) = self.outgoing.pop(now)
        {
            let before = link.out.len();
            frame::write(&mut link.out, VERSION, &Packet::Message(message));
            let len = link.out.len() - before;
            if len > FRAME_BYTES_MAX {
                link.out.truncate(before);
                *too_long = Some(len);
            }
        }
        link.flush()?;
        Ok(true)
    }
}

/// A connection that a peer has dialled.
pub(super) struct PeerIn {
    pub link: Link<Stream>,
    frames: Frames,
    /// Which node it is, once it has said so.
    pub from: Option<Member>,
    /// When it came.
    pub began: Time,
}

/// Why a peer's connection is over.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerGone {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a node of federation {0} has called: correct its addresses, or this node's")]
    OtherFederation(FederationId),
    #[error("a message without a name before it")]
    NoName,
    #[error("a second name")]
    SecondName,
    #[error("it has ended")]
    Ended,
}

impl PeerIn {
    pub fn new(stream: Stream, now: Time) -> PeerIn {
        PeerIn {
            link: Link::new(stream),
            frames: Frames::new(VERSION, STRANGER_BYTES_MAX),
            from: None,
            began: now,
        }
    }

    /// Reads what has come; whether there may be more. What was read before the connection ended is taken, too.
    pub fn turn(
        &mut self,
        scratch: &mut Vec<u8>,
        federation: FederationId,
        mut take: impl FnMut(Member, Message),
    ) -> Result<bool, PeerGone> {
        let frames = &mut self.frames;
        let turn = self.link.read(scratch, |bytes| frames.feed(bytes));
        while let Some(packet) = self.frames.take()? {
            match (packet, self.from) {
                (Packet::Hello { federation: theirs, .. }, _) if theirs != federation => {
                    return Err(PeerGone::OtherFederation(theirs));
                }
                // Its end would be told of neither node.
                (Packet::Hello { .. }, Some(_)) => return Err(PeerGone::SecondName),
                (Packet::Hello { from, .. }, None) => {
                    self.from = Some(from);
                    self.frames.allow(FRAME_BYTES_MAX);
                }
                (Packet::Message(message), Some(from)) => take(from, message),
                (Packet::Message(_), None) => return Err(PeerGone::NoName),
            }
        }
        // A handshake has something to say.
        self.link.flush()?;
        match turn? {
            Turn::Ended => Err(PeerGone::Ended),
            Turn::More => Ok(true),
            Turn::Empty => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream as Blocking};

    use mio::Poll;

    use super::*;

    const OURS: FederationId = FederationId(1);

    /// A program that is none of the federation: it takes the connection, and ends it.
    #[test]
    fn a_peer_that_accepts_and_closes_is_dialled_less_and_less_often() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let poll = Poll::new().unwrap();
        let address = PeerAddress::of(listener.local_addr().unwrap());
        let mut peer = PeerOut::new(address, Token(1));
        let (mut now, mut waits, mut scratch) = (Time::ZERO, Vec::new(), Vec::new());
        for _ in 0..8 {
            peer.connect(poll.registry(), &Access::default(), OURS, Member::default(), now);
            drop(listener.accept().unwrap());
            while peer.link.is_some() {
                peer.ready(true, true);
                peer.turn(&mut scratch, now);
            }
            waits.push(peer.next_due().since(now));
            now = peer.next_due();
        }
        assert!(waits.is_sorted() && waits[0] == RETRY_FIRST, "{waits:?}");
        assert_eq!(waits[7], RETRY_MAX);
    }

    #[test]
    fn a_second_name_ends_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut other = Blocking::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut peer = PeerIn::new(Stream::Plain(TcpStream::from_std(stream)), Time::ZERO);
        let mut bytes = Vec::new();
        for _ in 0..2 {
            let from = Member::default();
            frame::write(&mut bytes, VERSION, &Packet::Hello { federation: OURS, from });
        }
        other.write_all(&bytes).unwrap();
        let mut scratch = Vec::new();
        let gone = loop {
            peer.link.is_readable = true;
            if let Err(gone) = peer.turn(&mut scratch, OURS, |_, _| {}) {
                break gone;
            }
        };
        assert!(matches!(gone, PeerGone::SecondName), "{gone}");
    }
}
