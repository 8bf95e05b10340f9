//! Connections between nodes: one that this node dials to each peer, and those that peers and balancers have dialled.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use mio::Token;
use punctual_federation::ids::{FederationId, Member, NodeId};
use punctual_federation::message::{Message, Request};
use punctual_federation::temporal::{ReadingReport, Stamp};
use punctual_logs::frame::{self, Frames};
use punctual_server::link::{Bytes, Link, Turn};
use punctual_server::net::Net;
use punctual_server::slots::Slots;
use punctual_server::stream::Stream;
use punctual_units::{Nanos, ObjectName, Seq, Time};

use super::clients::STALLED_MAX;
use super::way::{LinkEnd, Way};
use super::{Access, FIRST_PEER, PEERS_MAX, PeerAddress};
use crate::outgoing::Outgoing;
use crate::wire::{FRAME_BYTES_MAX, NAMES_SINCE, Packet, STRANGER_BYTES_MAX};

/// Messages are encoded for a peer only while fewer bytes than this are unsent; further ones stay in their queue.
const UNSENT_MAX: usize = 256 << 10;
/// Readings are taken from a peer's feed only while fewer bytes than this are unsent.
const READINGS_UNSENT_MAX: usize = 32 << 10;
/// A balancer's requests are read only while at most this many bytes of its answers are unsent.
const UNSENT_PAUSE: usize = 4 << 20;
/// Time within which a process that has connected must send its name.
const NAME_WITHIN: Nanos = Nanos::from_secs(2);

/// Connections with other nodes and with balancers.
pub(super) struct Peers {
    /// Connections that peers and balancers have dialled.
    pub incoming: Slots<PeerIn>,
    /// Number of these connections that ever began.
    pub begun: u32,
    /// The connection that this node dials to each peer.
    pub outgoing: BTreeMap<NodeId, PeerOut>,
    /// Number of each peer's newest connection: only the end of that one shows that the peer is gone.
    pub latest: BTreeMap<NodeId, u32>,
    /// Address of each peer for clients.
    pub found_at: BTreeMap<NodeId, SocketAddr>,
    /// The first packet to each process that connects or is dialled.
    pub hello: Packet,
    pub bytes: Bytes,
}

impl Peers {
    pub fn new(hello: Packet) -> Peers {
        Peers {
            incoming: Slots::new(PEERS_MAX, FIRST_PEER),
            begun: 0,
            outgoing: BTreeMap::new(),
            latest: BTreeMap::new(),
            found_at: BTreeMap::new(),
            hello,
            bytes: Bytes::default(),
        }
    }
}

/// The connection to a peer, with the messages that wait for it.
pub(super) struct PeerOut {
    pub way: Way,
    pub outgoing: Outgoing,
    /// Bytes written to the peer so far.
    pub written: u64,
    /// The member to which this node's name belongs already, if the peer says so.
    pub taken: Option<Member>,
}

/// Trouble with the connection to a peer that an operator should know of.
pub(super) enum Trouble {
    /// A message of this many bytes is longer than peers take.
    TooLong(usize),
    /// TLS refused a certificate, the peer's or this node's.
    Refused(String),
}

impl PeerOut {
    pub fn new(address: PeerAddress, token: Token) -> PeerOut {
        PeerOut {
            way: Way::new(address, token, STRANGER_BYTES_MAX, false),
            outgoing: Outgoing::default(),
            written: 0,
            taken: None,
        }
    }

    /// Takes a new address of the peer: drops the connection and the messages that wait.
    pub fn moves(&mut self, address: &PeerAddress) {
        if self.way.address != *address {
            *self = PeerOut::new(address.clone(), self.way.token);
        }
    }

    /// Dials if it is time to; sends this node's name first.
    pub fn connect(&mut self, net: &mut dyn Net, access: &Access, name: &Packet, now: Time) -> Option<Trouble> {
        if self.way.link.is_some() {
            return None;
        }
        self.way.connect(net, access, name, now).map(Trouble::Refused)
    }

    /// Sends messages, then what `more` adds until it returns false, as far as the socket takes them. Returns trouble
    /// for the operator, and the number of bytes written.
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
        let Err(gone) = turned else {
            return (too_long.map(Trouble::TooLong), written);
        };
        self.outgoing.clear();
        (self.way.ended(&gone, now).map(Trouble::Refused), written)
    }

    fn try_turn(
        &mut self,
        scratch: &mut Vec<u8>,
        now: Time,
        too_long: &mut Option<usize>,
        more: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<(), LinkEnd> {
        let taken = &mut self.taken;
        self.way.turn(scratch, now, |packet| {
            // Peers send no other packet on this connection.
            if let Packet::Message(Message::NameTaken(member)) = packet {
                *taken = Some(member);
            }
        })?;
        let Some(link) = &mut self.way.link else {
            return Ok(());
        };
        while link.unsent() < UNSENT_MAX
            && let Some(message) = self.outgoing.pop(now)
        {
            let before = link.out.len();
            frame::write(&mut link.out, self.way.version, &Packet::Message(message));
            let len = link.out.len() - before;
            if len > FRAME_BYTES_MAX {
                link.out.truncate(before);
                *too_long = Some(len);
            }
        }
        link.flush()?;
        // Until the socket has room, readings stay in their feed, where newer ones replace older ones.
        while link.is_writable && link.unsent() < READINGS_UNSENT_MAX && more(&mut link.out) {
            if link.unsent() >= READINGS_UNSENT_MAX {
                link.flush()?;
            }
        }
        link.flush()?;
        Ok(())
    }
}

/// The process at the other end of a connection, by its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Node(Member),
    Front,
}

/// A packet from a connection that another process has dialled.
#[derive(Debug)]
pub(super) enum PeerPacket {
    /// A balancer is at the other end.
    Front,
    /// A message of a peer's state machine.
    Message(NodeId, Message),
    /// Readings of a peer's objects.
    Readings(NodeId, Vec<ReadingReport>),
    /// A peer's stamp, and the readings that it acknowledges.
    Taken(NodeId, Stamp, Vec<(ObjectName, Seq)>),
    /// A balancer's request, under its number.
    Request(u64, Request),
    /// A balancer asks for changes of keys.
    Hear,
}

/// A connection that a peer or a balancer has dialled.
pub(super) struct PeerIn {
    pub link: Link,
    frames: Frames,
    /// Process at the other end, once it has sent its name.
    pub from: Option<Sender>,
    /// Address of the node for clients, if the other end is a node.
    pub clients: Option<SocketAddr>,
    /// Whether the other end gets changes of keys.
    pub hears: bool,
    /// When the connection began.
    pub began: Time,
    /// When the other end last took unsent bytes.
    taken: Time,
    /// Number of the connection, never reused.
    pub number: u32,
}

impl AsMut<Link> for PeerIn {
    fn as_mut(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl PeerIn {
    /// Makes the connection of a process that speaks a version between these two.
    pub fn new(stream: Stream, versions: [u8; 2], number: u32, now: Time) -> PeerIn {
        PeerIn {
            link: Link::new(stream),
            frames: Frames::between(versions, STRANGER_BYTES_MAX),
            from: None,
            clients: None,
            hears: false,
            began: now,
            taken: now,
            number,
        }
    }

    /// Reads packets, also those that came before the connection ended; returns whether there may be more.
    pub fn turn(
        &mut self,
        scratch: &mut Vec<u8>,
        ours: FederationId,
        mut take: impl FnMut(PeerPacket),
    ) -> Result<bool, LinkEnd> {
        if self.link.unsent() > UNSENT_PAUSE {
            return Ok(false); // too many answers are unsent: see `has_more`
        }
        let frames = &mut self.frames;
        let turn = self.link.read(scratch, |bytes| frames.feed(bytes));
        while let Some(packet) = self.frames.take()? {
            match (packet, self.from) {
                (Packet::Hello { federation: theirs, .. }, _) if theirs != ours => {
                    return Err(LinkEnd::OtherFederation { ours, theirs });
                }
                (Packet::Hello { from, clients, .. }, None) => {
                    self.is(Sender::Node(from));
                    self.clients = reached(clients, self.link.stream.socket().peer_addr());
                }
                (Packet::Front, None) => {
                    self.is(Sender::Front);
                    take(PeerPacket::Front);
                }
                // With two names, the end of the connection would be reported for neither node.
                (Packet::Hello { .. } | Packet::Front, Some(_)) => return Err(LinkEnd::SecondName),
                (Packet::Message(message), Some(Sender::Node(from))) => take(PeerPacket::Message(from.node, message)),
                (Packet::Readings(reports), Some(Sender::Node(from))) => take(PeerPacket::Readings(from.node, reports)),
                (Packet::Taken(stamp, taken), Some(Sender::Node(from))) => {
                    take(PeerPacket::Taken(from.node, stamp, taken))
                }
                (Packet::Request(ticket, request), Some(Sender::Front)) => take(PeerPacket::Request(ticket, request)),
                (Packet::Hear, Some(Sender::Front)) => {
                    self.hears = true;
                    take(PeerPacket::Hear);
                }
                (_, None) => return Err(LinkEnd::NoName),
                (_, Some(_)) => return Err(LinkEnd::OutOfPlace),
            }
        }
        // A handshake may have bytes to send.
        self.link.flush()?;
        match turn? {
            Turn::Ended => Err(LinkEnd::Ended),
            Turn::More => Ok(true),
            Turn::Empty => Ok(false),
        }
    }

    fn is(&mut self, named: Sender) {
        self.from = Some(named);
        self.frames.allow(FRAME_BYTES_MAX);
    }

    /// Whether it reads the names in a [`Packet::Changed`].
    pub fn reads_names(&self) -> bool {
        self.frames.spoken() >= NAMES_SINCE
    }

    /// Adds a packet to the unsent bytes.
    pub fn push(&mut self, packet: &Packet) {
        frame::write(&mut self.link.out, self.frames.spoken(), packet);
    }

    /// Sends unsent bytes, as far as the socket takes them.
    pub fn flush(&mut self, now: Time) -> io::Result<()> {
        if self.link.unsent() == 0 || self.link.flush()? {
            self.taken = now;
        }
        Ok(())
    }

    /// Whether the connection can be read without an event.
    pub fn has_more(&self) -> bool {
        self.link.is_readable && self.link.unsent() <= UNSENT_PAUSE
    }

    /// Whether the other end is late with its name, or takes no bytes for too long.
    pub fn is_stalled(&self, now: Time) -> bool {
        let is_mute = self.from.is_none() && now.since(self.began) > NAME_WITHIN;
        is_mute || self.link.unsent() > 0 && now.since(self.taken) > STALLED_MAX
    }
}

/// Address of a node for clients, if it listens at `address` and has dialled from `from`: a node that listens at all
/// addresses of its machine is reached at the address it dialled from.
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
    use crate::wire::{OLDEST, VERSION};

    const OURS: FederationId = FederationId(1);

    /// One that has come at instant 0, and its other end.
    fn come() -> (PeerIn, Blocking, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = Blocking::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let peer = PeerIn::new(
            Stream::Plain(Box::new(TcpStream::from_std(stream))),
            [OLDEST, VERSION],
            1,
            Time::ZERO,
        );
        (peer, other, listener)
    }

    /// By the clock that the test gives: no name within 2 s, or nothing taken of what waits for 10 s.
    #[test]
    fn one_that_is_silent_is_ended_after_its_bounds_and_not_before() {
        let (mut peer, ..) = come();
        assert!(!peer.is_stalled(Time::ZERO + NAME_WITHIN));
        assert!(peer.is_stalled(Time::ZERO + NAME_WITHIN + Nanos(1)));
        peer.is(Sender::Front);
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
        assert!(matches!(gone, LinkEnd::SecondName), "{gone}");
    }
}
