//! Connections between nodes: one that this node dials to each peer, and those that peers and fronts have dialled.

use std::io;
use std::net::SocketAddr;

use mio::{Registry, Token};
use punctual_federation::ids::{FederationId, Member, NodeId};
use punctual_federation::message::{Message, Request};
use punctual_federation::temporal::{Report, Stamp};
use punctual_logs::frame::{self, FrameError, Frames};
use punctual_server::stream::Stream;
use punctual_units::{Made, Nanos, Seq, Time};

use super::clients::STALLED_MAX;
use super::link::{Link, Turn};
use super::way::Way;
use super::{Access, PeerAddress};
use crate::datagram::Secret;
use crate::outgoing::Outgoing;
use crate::wire::{FRAME_BYTES_MAX, Packet, STRANGER_BYTES_MAX, VERSION};

/// While so many bytes wait for a peer's socket, further messages wait as messages.
const UNSENT_MAX: usize = 256 << 10;
/// While so many bytes wait for a peer's socket, no further readings are taken from their feed.
const READINGS_UNSENT_MAX: usize = 32 << 10;
/// While so many bytes of answers wait for a front's socket, no further request of it is read.
const UNSENT_PAUSE: usize = 4 << 20;
/// How long one that calls may be silent before it says what it is.
const NAME_WITHIN: Nanos = Nanos::from_secs(2);

/// The way to a peer.
pub(super) struct PeerOut {
    pub way: Way,
    pub outgoing: Outgoing,
    /// Bytes that were written to it.
    pub written: u64,
    frames: Frames,
    /// The peer says that another process has the name of this one.
    pub taken: Option<Member>,
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
            way: Way::new(address, token),
            outgoing: Outgoing::default(),
            written: 0,
            frames: Frames::new(VERSION, STRANGER_BYTES_MAX),
            taken: None,
        }
    }

    /// The peer is to be found somewhere else.
    pub fn moves(&mut self, address: &PeerAddress) {
        if self.way.address != *address {
            *self = PeerOut::new(address.clone(), self.way.token);
        }
    }

    /// Dials where it is time to, and says first which node this is, and then what opens its datagrams.
    pub fn connect(
        &mut self,
        registry: &Registry,
        access: &Access,
        name: &Packet,
        secret: Option<&Secret>,
        now: Time,
    ) -> Option<Trouble> {
        if self.way.link.is_some() {
            return None;
        }
        let refused = self.way.connect(registry, access, name, now);
        if let (Some(link), Some(secret)) = (&mut self.way.link, secret) {
            frame::write(&mut link.out, VERSION, &Packet::Key(secret.clone()));
        }
        refused.map(Trouble::Refused)
    }

    /// Sends what waits, then what `more` adds, until it says that there is nothing, as long as the socket takes it;
    /// what the operator should know of it, and the bytes that were written.
    pub fn turn(
        &mut self,
        scratch: &mut Vec<u8>,
        now: Time,
        more: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) -> (Option<Trouble>, u64) {
        let mut too_long = None;
        let turned = self.try_turn(scratch, now, &mut too_long, more);
        let link = self.way.link.as_mut();
        let written = link.map_or(0, |link| std::mem::take(&mut link.bytes).written);
        self.written += written;
        let ended = match turned {
            Ok(true) => return (too_long.map(Trouble::TooLong), written),
            Ok(false) => None,
            Err(error) => Some(error),
        };
        self.way.link = None;
        self.frames = Frames::new(VERSION, STRANGER_BYTES_MAX);
        self.outgoing.clear();
        // What TLS does not accept; all else is a peer that is gone.
        let refused = ended.filter(|error| error.kind() == io::ErrorKind::InvalidData);
        let refused = refused.and_then(|error| self.way.refused(error.to_string()));
        (refused.map(Trouble::Refused), written)
    }

    /// Whether the connection goes on.
    fn try_turn(
        &mut self,
        scratch: &mut Vec<u8>,
        now: Time,
        too_long: &mut Option<usize>,
        more: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) -> io::Result<bool> {
        let frames = &mut self.frames;
        let turn = self.way.read(scratch, now, |bytes| frames.feed(bytes));
        // Peers say nothing else here.
        while let Some(packet) = frames.take().map_err(|error| io::Error::other(error.to_string()))? {
            if let Packet::Message(Message::NameTaken(member)) = packet {
                self.taken = Some(member);
            }
        }
        if turn? == Turn::Ended {
            return Ok(false);
        }
        let Some(link) = &mut self.way.link else {
            return Ok(true);
        };
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
        // Readings wait in their feed, where a newer one takes the place of an older, until the socket has room.
        while link.is_writable && link.unsent() < READINGS_UNSENT_MAX && more(&mut link.out) {
            if link.unsent() >= READINGS_UNSENT_MAX {
                link.flush()?;
            }
        }
        link.flush()?;
        Ok(true)
    }
}

/// What has said its name at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Node(Member),
    Front,
}

/// What came over a connection that another process has dialled.
#[derive(Debug)]
pub(super) enum Heard {
    /// It is a front.
    Front,
    /// Of a peer.
    Message(NodeId, Message),
    /// Readings of a peer's objects.
    Readings(NodeId, Vec<Report>),
    /// A peer's stamp, and readings that it has.
    Taken(NodeId, Stamp, Vec<(Made, Seq)>),
    /// What opens a peer's datagrams.
    Key(NodeId, Secret),
    /// Of a front, under its number.
    Request(u64, Request),
    /// A front wants to hear of changed keys.
    Hear,
}

/// A connection that a peer or a front has dialled.
pub(super) struct PeerIn {
    pub link: Link<Stream>,
    frames: Frames,
    /// What it is, once it has said so.
    pub from: Option<Named>,
    /// Where clients find the node that it is.
    pub clients: Option<SocketAddr>,
    /// Whether it is told of changed keys.
    pub hears: bool,
    /// When it came.
    pub began: Time,
    /// When it last took something of what waits to be sent.
    taken: Time,
    /// The number of the connection.
    pub number: u32,
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
    #[error("a front's message of a node, or a node's of a front")]
    OutOfPlace,
    #[error("it has ended")]
    Ended,
}

impl PeerIn {
    pub fn new(stream: Stream, number: u32, now: Time) -> PeerIn {
        PeerIn {
            link: Link::new(stream),
            frames: Frames::new(VERSION, STRANGER_BYTES_MAX),
            from: None,
            clients: None,
            hears: false,
            began: now,
            taken: now,
            number,
        }
    }

    /// Reads what has come; whether there may be more. What was read before the connection ended is taken, too.
    pub fn turn(
        &mut self,
        scratch: &mut Vec<u8>,
        federation: FederationId,
        mut take: impl FnMut(Heard),
    ) -> Result<bool, PeerGone> {
        if self.link.unsent() > UNSENT_PAUSE {
            return Ok(false); // it asks, and takes no answers: see `has_more`
        }
        let frames = &mut self.frames;
        let turn = self.link.read(scratch, |bytes| frames.feed(bytes));
        while let Some(packet) = self.frames.take()? {
            match (packet, self.from) {
                (Packet::Hello { federation: theirs, .. }, _) if theirs != federation => {
                    return Err(PeerGone::OtherFederation(theirs));
                }
                (Packet::Hello { from, clients, .. }, None) => {
                    self.is(Named::Node(from));
                    self.clients = reached(clients, self.link.stream.socket().peer_addr());
                }
                (Packet::Front, None) => {
                    self.is(Named::Front);
                    take(Heard::Front);
                }
                // The end of a connection with two would be told of neither.
                (Packet::Hello { .. } | Packet::Front, Some(_)) => return Err(PeerGone::SecondName),
                (Packet::Message(message), Some(Named::Node(from))) => take(Heard::Message(from.node, message)),
                (Packet::Readings(reports), Some(Named::Node(from))) => take(Heard::Readings(from.node, reports)),
                (Packet::Taken(stamp, taken), Some(Named::Node(from))) => take(Heard::Taken(from.node, stamp, taken)),
                (Packet::Key(secret), Some(Named::Node(from))) => take(Heard::Key(from.node, secret)),
                (Packet::Request(ticket, request), Some(Named::Front)) => take(Heard::Request(ticket, request)),
                (Packet::Hear, Some(Named::Front)) => {
                    self.hears = true;
                    take(Heard::Hear);
                }
                (_, None) => return Err(PeerGone::NoName),
                (_, Some(_)) => return Err(PeerGone::OutOfPlace),
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

    fn is(&mut self, named: Named) {
        self.from = Some(named);
        self.frames.allow(FRAME_BYTES_MAX);
    }

    /// Adds a packet to what waits to be sent.
    pub fn push(&mut self, packet: &Packet) {
        frame::write(&mut self.link.out, VERSION, packet);
    }

    /// Sends what waits, as far as the socket takes it.
    pub fn flush(&mut self, now: Time) -> io::Result<()> {
        if self.link.unsent() == 0 || self.link.flush()? {
            self.taken = now;
        }
        Ok(())
    }

    /// Whether it can be read without an event.
    pub fn has_more(&self) -> bool {
        self.link.is_readable && self.link.unsent() <= UNSENT_PAUSE
    }

    /// Whether it says no name, or takes nothing of what waits.
    pub fn is_stalled(&self, now: Time) -> bool {
        let is_mute = self.from.is_none() && now.since(self.began) > NAME_WITHIN;
        is_mute || self.link.unsent() > 0 && now.since(self.taken) > STALLED_MAX
    }
}

/// Where clients reach a node that listens at `address`, and has dialled from `from`: a node that listens at all
/// addresses of its machine is found at the one that it came from.
fn reached(address: SocketAddr, from: io::Result<SocketAddr>) -> Option<SocketAddr> {
    match address.ip().is_unspecified() {
        true => Some(SocketAddr::new(from.ok()?.ip(), address.port())),
        false => Some(address),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream as Blocking};

    use mio::net::TcpStream;

    use super::*;

    const OURS: FederationId = FederationId(1);

    /// One that has come at instant 0, and its other end.
    fn come() -> (PeerIn, Blocking, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = Blocking::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let peer = PeerIn::new(Stream::Plain(TcpStream::from_std(stream)), 1, Time::ZERO);
        (peer, other, listener)
    }

    /// By the clock that the test gives: no name within 2 s, or nothing taken of what waits for 10 s.
    #[test]
    fn one_that_is_silent_is_ended_after_its_bounds_and_not_before() {
        let (mut peer, ..) = come();
        assert!(!peer.is_stalled(Time::ZERO + NAME_WITHIN));
        assert!(peer.is_stalled(Time::ZERO + NAME_WITHIN + Nanos(1)));
        peer.is(Named::Front);
        assert!(!peer.is_stalled(Time::MAX), "it need not ask");
        peer.push(&Packet::Front);
        assert!(!peer.is_stalled(Time::ZERO + STALLED_MAX));
        assert!(peer.is_stalled(Time::ZERO + STALLED_MAX + Nanos(1)));
    }

    #[test]
    fn a_second_name_ends_the_connection() {
        let (mut peer, mut other, listener) = come();
        let mut bytes = Vec::new();
        for _ in 0..2 {
            let hello = Packet::Hello {
                federation: OURS,
                from: Member::default(),
                clients: listener.local_addr().unwrap(),
            };
            frame::write(&mut bytes, VERSION, &hello);
        }
        other.write_all(&bytes).unwrap();
        let mut scratch = Vec::new();
        let gone = loop {
            peer.link.is_readable = true;
            if let Err(gone) = peer.turn(&mut scratch, OURS, |_| {}) {
                break gone;
            }
        };
        assert!(matches!(gone, PeerGone::SecondName), "{gone}");
    }
}
