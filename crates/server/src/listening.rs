//! The sockets at which clients wait, of a store, a node or a balancer, before its door is open.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use mio::Token;
use punctual_os::Os;

use crate::door::{Door, DoorOptions};
use crate::net::{CLIENTS, LOCAL, Net, Sockets, Waker};
use crate::users::Users;

/// The most clients that wait to be accepted; the kernel may allow fewer (`net.core.somaxconn`).
const CONNECTING_MAX: i32 = 4096;

/// Reason for which a server did not start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ServeError(pub(crate) String);

impl ServeError {
    /// Turns an error of the system into that of an action.
    pub fn of(action: impl Display) -> impl Fn(io::Error) -> ServeError {
        move |source| ServeError(format!("{action}: {source}"))
    }

    /// Without users, only addresses that no other machine reaches are allowed.
    pub(crate) fn not_loopback(address: SocketAddr) -> ServeError {
        ServeError(format!(
            "{address}: without users, any machine that reaches this address could read and change all records: add a \
             [[user]] to the node's file, or listen on 127.0.0.1 or [::1]"
        ))
    }
}

/// The sockets at which clients wait until the store is served.
#[derive(Debug)]
pub struct Listening {
    pub(crate) net: Box<dyn Net>,
    address: SocketAddr,
    local: Option<PathBuf>,
}

impl Listening {
    /// Binds an address of this machine, port 0 a free one; if there are users, also one that other machines reach. The
    /// [`Options`](crate::Options) must have the same users.
    ///
    /// # Errors
    /// Any [`ServeError`], as for a port in use.
    pub fn bind(address: SocketAddr, users: &Users) -> Result<Listening, ServeError> {
        match address.ip().is_loopback() || !users.is_empty() {
            true => Listening::on(Box::new(Sockets::new()?), address),
            false => Err(ServeError::not_loopback(address)),
        }
    }

    /// Binds an address of a network that no stranger reaches, as the caller knows.
    ///
    /// # Errors
    /// Those of [`bind`](Listening::bind).
    pub fn on(mut net: Box<dyn Net>, address: SocketAddr) -> Result<Listening, ServeError> {
        let address = listen(&mut *net, address, CLIENTS)?;
        let local = None;
        Ok(Listening { net, address, local })
    }

    /// Opens the door at which clients come in. The network, where it listens for others, too, is the host's from now
    /// on.
    ///
    /// # Errors
    /// [`ServeError`], as where the system refuses the thread that checks passwords.
    pub fn open(self, options: DoorOptions, os: &impl Os) -> Result<(Door, Box<dyn Net>), ServeError> {
        let door = Door::new(self.local, options, os, self.net.waker());
        let door = door.map_err(ServeError::of("the thread that checks passwords"))?;
        Ok((door, self.net))
    }

    /// Listens for others than clients.
    ///
    /// # Errors
    /// Those of [`bind`](Listening::bind).
    pub fn beside(&mut self, address: SocketAddr, token: Token) -> Result<SocketAddr, ServeError> {
        listen(&mut *self.net, address, token)
    }

    /// Listens at a Unix socket as well, whose file gets these mode bits.
    ///
    /// # Errors
    /// Those of [`LocalListener::bind`](crate::local::LocalListener::bind).
    pub fn also(mut self, path: &Path, mode: u32) -> Result<Listening, ServeError> {
        self.net.listen_locally(path, mode, LOCAL)?;
        self.local = Some(path.to_owned());
        Ok(self)
    }

    /// The address, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Has the host's loop look for news.
    pub fn waker(&self) -> Waker {
        self.net.waker()
    }
}

fn listen(net: &mut dyn Net, address: SocketAddr, token: Token) -> Result<SocketAddr, ServeError> {
    net.listen(address, token).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ServeError(format!(
            "{address}: another program listens there: end it, or choose another port (0 takes a free one)"
        )),
        _ => ServeError::of(format_args!("{address}: cannot listen"))(source),
    })
}

/// Has the kernel keep up to [`CONNECTING_MAX`] clients that wait to be accepted. mio asks for 128 only, and a client
/// beyond waits a second before it tries again.
pub(crate) fn make_room(listener: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: a plain number, of a socket that is open; listening once more changes the bound only.
    match unsafe { libc::listen(listener.as_raw_fd(), CONNECTING_MAX) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
