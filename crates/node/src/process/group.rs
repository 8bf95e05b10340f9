//! The UDP multicast socket through which each node sends readings to all others.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use punctual_federation::ids::{FederationId, NodeId};
use punctual_federation::temporal::ReadingReport;
use punctual_units::Time;

use super::NodeError;
use crate::datagram::{self, Came, Datagrams, Head, Multicast, Seal, Secret};
use crate::sensing::Sensing;

/// The most datagrams that are read, or sent, in one turn: one for each object.
const TURN: usize = 1024;
/// The most nodes whose datagrams are taken: as many as a federation may have.
const SOURCES_MAX: usize = 64;
/// Receive buffer that the system is asked for, in bytes; it may give less.
const KEPT_BYTES: libc::c_int = 4 << 20;

/// State of another node's datagrams.
#[derive(Debug, Default)]
struct Source {
    came: Came,
    seal: Option<Seal>,
}

/// A node's membership of a group.
#[derive(Debug)]
pub(super) struct Group {
    socket: UdpSocket,
    pub at: Multicast,
    /// Key and seal of this node's datagrams, where nodes speak TLS; those of others must be sealed then, too.
    own: Option<(Secret, Seal)>,
    number: u64,
    sources: BTreeMap<NodeId, Source>,
    out: Vec<u8>,
    pub is_readable: bool,
    pub counts: Datagrams,
}

/// Identity of this node in the datagrams of this start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speaker {
    pub federation: FederationId,
    pub node: NodeId,
    /// Number of this start (`Temporal::boot`).
    pub boot: u64,
}

impl Group {
    /// Joins the group. Other nodes of this machine may join it too.
    pub fn join(at: Multicast, is_sealed: bool, registry: &Registry, token: Token) -> Result<Group, NodeError> {
        let io = |action| move |source| NodeError::Io { action, source };
        let mut socket = UdpSocket::from_std(bind(at)?);
        registry
            .register(&mut socket, token, Interest::READABLE)
            .map_err(io("the event loop"))?;
        Ok(Group {
            socket,
            at,
            own: drawn(is_sealed)?,
            number: 0,
            sources: BTreeMap::new(),
            out: Vec::new(),
            is_readable: false,
            counts: Datagrams::default(),
        })
    }

    /// The key that peers get by TLS, to open this node's datagrams.
    pub fn secret(&self) -> Option<&Secret> {
        self.own.as_ref().map(|(secret, _)| secret)
    }

    /// Takes a peer's key.
    pub fn learns(&mut self, source: NodeId, secret: &Secret) {
        self.sources.entry(source).or_default().seal = Seal::new(secret);
    }

    /// Counts of a peer's datagrams.
    pub fn came(&self, source: NodeId) -> Came {
        self.sources.get(&source).map(|source| source.came).unwrap_or_default()
    }

    /// Sends the readings that wait for all peers, at most `TURN` datagrams.
    pub fn speak(&mut self, me: &Speaker, sensing: &mut Sensing, now: Time) {
        for _ in 0..TURN {
            let Some((stamps, readings)) = sensing.tells_all(now, datagram::TOGETHER_BYTES) else {
                return;
            };
            self.number += 1;
            let head = Head {
                federation: me.federation,
                source: me.node,
                boot: me.boot,
                number: self.number,
                is_sealed: self.own.is_some(),
            };
            let seal = self.own.as_ref().map(|(_, seal)| seal);
            let is_written = datagram::write(&mut self.out, &head, seal, stamps, readings);
            let sent = is_written && self.socket.send_to(&self.out, self.at.group.into()).is_ok();
            // Readings of a datagram that is not acknowledged in time go out over TCP.
            match sent {
                true => self.counts.sent += 1,
                false => self.counts.unsent += 1,
            }
        }
    }

    /// Reads datagrams that have arrived. `take` gets the readings for this node.
    pub fn hear(&mut self, scratch: &mut Vec<u8>, me: &Speaker, mut take: impl FnMut(NodeId, &[ReadingReport])) {
        scratch.resize(datagram::DATAGRAM_BYTES_MAX.max(scratch.len()), 0);
        for _ in 0..TURN {
            let count = match self.socket.recv(scratch) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A socket without a connection has no end, so any error means: nothing to read now.
                Err(_) => {
                    self.is_readable = false;
                    return;
                }
            };
            let bytes = &mut scratch[..count];
            let Some(head) = Head::of(bytes).filter(|head| head.federation == me.federation) else {
                self.counts.refused += 1;
                continue;
            };
            if head.source == me.node {
                continue;
            }
            if self.sources.len() >= SOURCES_MAX && !self.sources.contains_key(&head.source) {
                self.counts.refused += 1;
                continue;
            }
            let is_sealed = self.own.is_some();
            let source = self.sources.get(&head.source);
            let seal = source.and_then(|source| source.seal.as_ref()).filter(|_| is_sealed);
            if head.is_sealed != is_sealed || is_sealed && seal.is_none() {
                self.counts.refused += 1;
                continue;
            }
            let Ok(reports) = datagram::read(&head, bytes, seal, me.node) else {
                self.counts.refused += 1;
                continue;
            };
            let source = self.sources.entry(head.source).or_default();
            if source.came.takes(head.boot, head.number)
                && let Some(reports) = reports
            {
                take(head.source, &reports);
            }
        }
    }
}

#[cfg(feature = "tls")]
fn drawn(is_sealed: bool) -> Result<Option<(Secret, Seal)>, NodeError> {
    if !is_sealed {
        return Ok(None);
    }
    let drawn = Secret::draw().and_then(|secret| Seal::new(&secret).map(|seal| (secret, seal)));
    let none = || NodeError::Io {
        action: "a key for datagrams",
        source: io::Error::other("the system has no random bytes"),
    };
    drawn.map(Some).ok_or_else(none)
}

#[cfg(not(feature = "tls"))]
fn drawn(_: bool) -> Result<Option<(Secret, Seal)>, NodeError> {
    Ok(None)
}

/// Makes a socket of the group; several processes of this machine may have one.
fn bind(at: Multicast) -> Result<std::net::UdpSocket, NodeError> {
    let failed = |action| NodeError::Io {
        action,
        source: io::Error::last_os_error(),
    };
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: plain numbers in, a descriptor or -1 out.
    let raw = unsafe { libc::socket(libc::AF_INET, kind, 0) };
    if raw < 0 {
        return Err(failed("a socket for datagrams"));
    }
    // SAFETY: a descriptor that was just made, and that nothing else has.
    let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
    let set = |level, name, value: *const libc::c_void, len: usize| {
        // SAFETY: `value` points to `len` bytes of the caller's, which the call reads.
        unsafe { libc::setsockopt(raw, level, name, value, len as libc::socklen_t) == 0 }
    };
    let on: libc::c_int = 1;
    let size = size_of::<libc::c_int>();
    if !set(libc::SOL_SOCKET, libc::SO_REUSEADDR, (&raw const on).cast(), size) {
        return Err(failed("a socket for datagrams"));
    }
    // This group and interface only: by default, the socket gets datagrams of all groups that any program here has
    // joined.
    let off: libc::c_int = 0;
    if !set(libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, (&raw const off).cast(), size) {
        return Err(failed("a socket for datagrams"));
    }
    // A smaller buffer works too.
    let kept = KEPT_BYTES;
    set(libc::SOL_SOCKET, libc::SO_RCVBUF, (&raw const kept).cast(), size);
    // SAFETY: all zeros are an address.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_port = at.group.port().to_be();
    address.sin_addr.s_addr = u32::from(*at.group.ip()).to_be();
    let len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: an address of that length, which the call reads.
    if unsafe { libc::bind(raw, (&raw const address).cast(), len) } != 0 {
        return Err(match io::Error::last_os_error() {
            taken if taken.kind() == io::ErrorKind::AddrInUse => NodeError::InUse(at.group.into()),
            source => NodeError::Group {
                at: at.group,
                interface: at.interface,
                source,
            },
        });
    }
    let interface = libc::in_addr {
        s_addr: u32::from(at.interface).to_be(),
    };
    let size = size_of::<libc::in_addr>();
    let is_set = set(
        libc::IPPROTO_IP,
        libc::IP_MULTICAST_IF,
        (&raw const interface).cast(),
        size,
    );
    let left = is_set.then_some(()).ok_or_else(io::Error::last_os_error);
    let socket = std::net::UdpSocket::from(descriptor);
    left.and_then(|()| socket.join_multicast_v4(at.group.ip(), &at.interface))
        .and_then(|()| socket.set_multicast_ttl_v4(1))
        .and_then(|()| socket.set_multicast_loop_v4(true))
        .map_err(|source| NodeError::Group {
            at: at.group,
            interface: at.interface,
            source,
        })?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use super::*;

    #[test]
    fn a_port_that_is_taken_and_an_interface_that_is_missing_are_refused() {
        let own = std::net::UdpSocket::bind("239.255.7.9:0").unwrap();
        let at = |port, interface| Multicast {
            group: SocketAddrV4::new(Ipv4Addr::new(239, 255, 7, 9), port),
            interface,
        };
        let port = own.local_addr().unwrap().port();
        assert!(matches!(bind(at(port, Ipv4Addr::LOCALHOST)), Err(NodeError::InUse(_))));
        drop(own);
        let two = [0, 1].map(|_| bind(at(port, Ipv4Addr::LOCALHOST)));
        assert!(two.iter().all(Result::is_ok), "{two:?}");
        // An address for documents (RFC 5737), which is of no interface.
        let missing = bind(at(port, Ipv4Addr::new(192, 0, 2, 1))).unwrap_err().to_string();
        assert!(
            missing.contains("192.0.2.1") && missing.contains("239.255.7.9"),
            "{missing}"
        );
    }
}
