//! Which programs may connect to a node, and how their connections begin.

use std::net::SocketAddr;
use std::sync::Arc;

use mio::net::TcpStream;
use punctual_server::stream::Stream;
#[cfg(feature = "tls")]
use punctual_server::tls::Tls;
use punctual_server::users::Users;

use super::NodeError;

/// Which programs may connect, and what they speak.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Which client may do what; with none, each may do all, and this machine alone reaches the node.
    pub users: Arc<Users>,
    /// No other machine reaches the addresses, as the caller knows: they are of network namespaces of its own.
    pub is_private: bool,
    /// If given, what clients speak: TLS with these certificates, and nothing else.
    #[cfg(feature = "tls")]
    pub clients: Option<Arc<Tls>>,
    /// If given, what nodes speak with each other: TLS, each with a certificate of the authority that is named there.
    #[cfg(feature = "tls")]
    pub peers: Option<Arc<Tls>>,
}

/// Where a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// Its socket.
    pub socket: SocketAddr,
    /// What its certificate is to name, where nodes speak TLS: a host, or an address.
    pub name: String,
}

impl PeerAddress {
    /// A peer whose certificate names its address.
    pub fn of(socket: SocketAddr) -> PeerAddress {
        PeerAddress {
            socket,
            name: socket.ip().to_string(),
        }
    }
}

impl Access {
    /// Whether clients may come to this address.
    pub(super) fn check_clients(&self, clients: SocketAddr) -> Result<(), NodeError> {
        match clients.ip().is_loopback() || self.is_private || !self.users.is_empty() {
            true => Ok(()),
            false => Err(NodeError::OpenToClients(clients)),
        }
    }

    /// Whether a node may listen at these addresses.
    pub(super) fn check(&self, clients: SocketAddr, peers: SocketAddr) -> Result<(), NodeError> {
        self.check_clients(clients)?;
        if !peers.ip().is_loopback() && !self.is_private && !self.has_tls_of_nodes() {
            return Err(NodeError::OpenToPeers(peers));
        }
        Ok(())
    }

    /// Whether nodes speak TLS with each other.
    pub(super) fn has_tls_of_nodes(&self) -> bool {
        #[cfg(feature = "tls")]
        let has_tls = self.peers.is_some();
        #[cfg(not(feature = "tls"))]
        let has_tls = false;
        has_tls
    }

    /// What a client or a peer that has come speaks; `None` where TLS cannot begin.
    pub(super) fn accept(&self, socket: TcpStream, is_client: bool) -> Option<Stream> {
        #[cfg(feature = "tls")]
        if let Some(tls) = if is_client { &self.clients } else { &self.peers } {
            return Some(Stream::accepted(tls.begin().ok()?, socket));
        }
        let _ = is_client;
        Some(Stream::Plain(socket))
    }

    /// The same of a peer that was dialled; otherwise why it cannot.
    pub(super) fn dial(&self, socket: TcpStream, name: &str) -> Result<Stream, String> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.peers {
            let connection = tls.dial(name).map_err(|error| format!("{name}: {error}"))?;
            return Ok(Stream::dialled(connection, socket));
        }
        let _ = name;
        Ok(Stream::Plain(socket))
    }
}
