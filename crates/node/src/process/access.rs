//! Access control of a node: programs that may connect, and the protocol on their connections.

use std::net::SocketAddr;
use std::sync::Arc;

use punctual_server::listening::{Listening, ServeError};
use punctual_server::net::{Net, Socket, Sockets};
use punctual_server::stream::Stream;
use punctual_server::tls::Tls;
use punctual_server::users::Users;

use super::NodeError;
use crate::wire::{OLDEST, VERSION};

/// Programs that may connect, and the protocol that they use.
#[derive(Clone, Debug)]
pub struct Access {
    /// Users and their rights; without users, each client may do all, and only this machine reaches the node.
    pub users: Arc<Users>,
    /// Whether no other machine reaches the addresses, as the caller knows: they are in network namespaces of its own.
    pub is_private: bool,
    /// The oldest and the newest version that the node speaks with others: [`OLDEST`] and [`VERSION`], unless a test
    /// has it be an older program.
    pub versions: [u8; 2],
    /// Certificates for TLS with clients; if given, clients speak nothing else.
    pub clients: Option<Arc<Tls>>,
    /// Certificates for TLS between nodes; if given, each node needs a certificate of the authority named there.
    pub peers: Option<Arc<Tls>>,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            users: Arc::default(),
            is_private: false,
            versions: [OLDEST, VERSION],
            clients: None,
            peers: None,
        }
    }
}

/// Address of a peer, with its name for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// Socket address to dial, of the peer's listener.
    pub socket: SocketAddr,
    /// Host or address that the peer's certificate must name, where nodes speak TLS.
    pub name: String,
}

impl PeerAddress {
    /// Makes the address of a peer whose certificate names its IP address.
    pub fn of(socket: SocketAddr) -> PeerAddress {
        PeerAddress {
            socket,
            name: socket.ip().to_string(),
        }
    }
}

impl Access {
    /// Binds an address for clients: of `net`, or of the system.
    pub(super) fn listen(&self, net: Option<Box<dyn Net>>, clients: SocketAddr) -> Result<Listening, ServeError> {
        match net {
            Some(net) => Listening::on(net, clients),
            None if self.is_private => Listening::on(Box::new(Sockets::new()?), clients),
            None => Listening::bind(clients, &self.users),
        }
    }

    /// Checks that a node may listen at this address for others.
    pub(super) fn check_peers(&self, peers: SocketAddr) -> Result<(), NodeError> {
        match peers.ip().is_loopback() || self.is_private || self.has_tls_of_nodes() {
            true => Ok(()),
            false => Err(NodeError::OpenToPeers(peers)),
        }
    }

    /// Whether nodes speak TLS with each other.
    pub(super) fn has_tls_of_nodes(&self) -> bool {
        self.peers.is_some()
    }

    /// Begins the stream of a client or peer that has connected; `None` if TLS cannot begin.
    pub(super) fn accept(&self, socket: Box<dyn Socket>, is_client: bool) -> Option<Stream> {
        if let Some(tls) = if is_client { &self.clients } else { &self.peers } {
            return Some(Stream::accepted(tls.begin().ok()?, socket));
        }
        Some(Stream::Plain(socket))
    }

    /// Begins the stream of a peer that was dialled, or returns the reason why it cannot.
    pub(super) fn dial(&self, socket: Box<dyn Socket>, name: &str) -> Result<Stream, String> {
        if let Some(tls) = &self.peers {
            let connection = tls.dial(name).map_err(|error| format!("{name}: {error}"))?;
            return Ok(Stream::dialled(connection, socket));
        }
        Ok(Stream::Plain(socket))
    }
}
