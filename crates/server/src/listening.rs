//! The sockets at which clients wait, of a store, a node or a balancer, before its door is open.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::Path;

use mio::net::TcpListener;
use mio::{Interest, Registry, Token};
use punctual_units::Time;

use crate::door::{Door, DoorOptions};
use crate::local::LocalListener;
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

/// A listening socket; clients wait there until the store is served.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    local: Option<LocalListener>,
}

impl Listening {
    /// Binds an address of this machine, port 0 a free one; if there are users, also one that other machines reach. The
    /// [`Options`](crate::Options) must have the same users.
    ///
    /// # Errors
    /// Any [`ServeError`], as for a port in use.
    pub fn bind(address: SocketAddr, users: &Users) -> Result<Listening, ServeError> {
        match address.ip().is_loopback() || !users.is_empty() {
            true => Listening::bind_any(address),
            false => Err(ServeError::not_loopback(address)),
        }
    }

    /// Binds an address that no stranger reaches, as the caller knows.
    ///
    /// # Errors
    /// Those of [`bind`](Listening::bind).
    pub fn bind_any(address: SocketAddr) -> Result<Listening, ServeError> {
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ServeError(format!(
                "{address}: another program listens there: end it, or choose another port (0 takes a free one)"
            )),
            _ => ServeError::of(format_args!("{address}: cannot listen"))(source),
        };
        let listener = TcpListener::bind(address).map_err(io)?;
        make_room(&listener).map_err(io)?;
        let address = listener.local_addr().map_err(io)?;
        Ok(Listening {
            listener,
            address,
            local: None,
        })
    }

    /// The socket, whose clients `registry` reports with this token from now on.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn registered(mut self, registry: &Registry, token: Token) -> Result<TcpListener, ServeError> {
        let registered = registry.register(&mut self.listener, token, Interest::READABLE);
        registered.map_err(ServeError::of("the event loop"))?;
        Ok(self.listener)
    }

    /// Opens the door at which clients come in; the host reports events of these tokens as those of the door's
    /// listener. `wake` has its loop look for results of password checks.
    ///
    /// # Errors
    /// [`ServeError`], as where the system refuses the thread that checks passwords.
    pub fn open(
        mut self,
        registry: &Registry,
        [token, local_token]: [Token; 2],
        options: DoorOptions,
        wake: impl Fn() + Send + 'static,
        now: Time,
    ) -> Result<Door, ServeError> {
        let mut local = self.local.take();
        if let Some(local) = &mut local {
            let registered = local.register(registry, local_token);
            registered.map_err(ServeError::of("the event loop"))?;
        }
        let listener = self.registered(registry, token)?;
        let door = Door::new(listener, local, options, wake, now);
        door.map_err(ServeError::of("the thread that checks passwords"))
    }

    /// Listens at a Unix socket as well, whose file gets these mode bits.
    ///
    /// # Errors
    /// Those of [`LocalListener::bind`].
    pub fn also(self, path: &Path, mode: u32) -> Result<Listening, ServeError> {
        Ok(Listening {
            local: Some(LocalListener::bind(path, mode)?),
            ..self
        })
    }

    /// The address, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
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
