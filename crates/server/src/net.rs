//! The network of a host's event loop: sockets of the system, or of a test's world in virtual time.
//!
//! A host names its listeners and connections by tokens, and learns by [`Net::poll`] which of them are ready. No other
//! call waits. Readiness is reported once: a socket is read or written until it returns
//! [`WouldBlock`](io::ErrorKind::WouldBlock), or less than was asked for.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use mio::net::{TcpListener, TcpStream, UnixStream};
use mio::{Events, Interest, Poll, Token};
use punctual_units::Nanos;

use crate::listening::{ServeError, make_room};
use crate::local::{LocalListener, as_tcp};
use crate::stream::Ready;

/// Token of no socket: the system's wake-ups.
const WAKER: Token = Token(0);
/// Token of the listener for clients.
pub const CLIENTS: Token = Token(1);
/// Token of the Unix socket for clients.
pub const LOCAL: Token = Token(2);
/// The least token of a host's own sockets.
pub const FIRST: usize = 3;
/// The most sockets that one call of the system reports as ready.
const READY_MAX: usize = 1024;

/// Has a host's loop look for what other threads have left.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// A non-blocking connection.
pub trait Socket: Read + Write + Send + fmt::Debug {
    /// Address of this side.
    ///
    /// # Errors
    /// The connection has none, or has failed.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Address of the other side.
    ///
    /// # Errors
    /// As of [`local_addr`](Socket::local_addr).
    fn peer_addr(&self) -> io::Result<SocketAddr>;

    /// Number of the connection, as operators see it.
    fn descriptor(&self) -> i32;
}

/// Where a process listens.
#[derive(Clone, Copy, Debug)]
pub enum Remote<'r> {
    /// An address of TCP.
    Address(SocketAddr),
    /// The file of a Unix socket.
    File(&'r Path),
}

/// Listeners and connections of one host.
pub trait Net: Send + fmt::Debug {
    /// Listens at an address, port 0 a free one; returns the address with its port.
    ///
    /// # Errors
    /// The error of the system, as for a port in use.
    fn listen(&mut self, at: SocketAddr, token: Token) -> io::Result<SocketAddr>;

    /// Listens at a Unix socket, whose file gets these mode bits.
    ///
    /// # Errors
    /// Those of [`LocalListener::bind`].
    fn listen_locally(&mut self, at: &Path, mode: u32, token: Token) -> Result<(), ServeError>;

    /// Ends a listener; clients that wait there are refused.
    fn close(&mut self, listener: Token);

    /// Accepts a client that waits at a listener; its connection gets the second token.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if none waits; `ConnectionAborted` if this one has gone, and another
    /// may wait.
    fn accept(&mut self, listener: Token, token: Token) -> io::Result<Box<dyn Socket>>;

    /// Begins a connection, which is established once it is reported as writable without an end.
    ///
    /// # Errors
    /// The error of the system.
    fn connect(&mut self, to: Remote<'_>, token: Token) -> io::Result<Box<dyn Socket>>;

    /// Waits until a socket is ready, the host is woken, or `wait` has passed. Appends what is ready to `ready`.
    ///
    /// # Errors
    /// The error of the system: nothing can go on.
    fn poll(&mut self, ready: &mut Vec<(Token, Ready)>, wait: Nanos) -> io::Result<()>;

    /// Has `poll` return, from any thread.
    fn waker(&self) -> Waker;
}

/// Sockets of the system.
#[derive(Debug)]
pub struct Sockets {
    poll: Poll,
    events: Events,
    waker: Arc<mio::Waker>,
    listeners: Vec<(Token, Listener)>,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Local(LocalListener),
}

impl Sockets {
    /// Makes a host without sockets.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new() -> Result<Sockets, ServeError> {
        let refused = ServeError::of("the event loop");
        let poll = Poll::new().map_err(&refused)?;
        Ok(Sockets {
            waker: Arc::new(mio::Waker::new(poll.registry(), WAKER).map_err(refused)?),
            poll,
            events: Events::with_capacity(READY_MAX),
            listeners: Vec::new(),
        })
    }

    fn registered(&self, mut socket: TcpStream, token: Token) -> io::Result<Box<dyn Socket>> {
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut socket, token, both)?;
        Ok(Box::new(socket))
    }
}

impl Net for Sockets {
    fn listen(&mut self, at: SocketAddr, token: Token) -> io::Result<SocketAddr> {
        let mut listener = TcpListener::bind(at)?;
        make_room(&listener)?;
        let registry = self.poll.registry();
        registry.register(&mut listener, token, Interest::READABLE)?;
        let address = listener.local_addr();
        self.listeners.push((token, Listener::Tcp(listener)));
        address
    }

    fn listen_locally(&mut self, at: &Path, mode: u32, token: Token) -> Result<(), ServeError> {
        let mut listener = LocalListener::bind(at, mode)?;
        let registered = listener.register(self.poll.registry(), token);
        registered.map_err(ServeError::of("the event loop"))?;
        self.listeners.push((token, Listener::Local(listener)));
        Ok(())
    }

    fn close(&mut self, listener: Token) {
        self.listeners.retain(|(token, _)| *token != listener);
    }

    fn accept(&mut self, listener: Token, token: Token) -> io::Result<Box<dyn Socket>> {
        let found = self.listeners.iter().find(|(at, _)| *at == listener);
        let socket = match found.map(|(_, listener)| listener) {
            Some(Listener::Tcp(listener)) => {
                let (socket, _) = listener.accept()?;
                // The call fails only on a connection that has ended.
                socket.set_nodelay(true).map_err(|_| io::ErrorKind::ConnectionAborted)?;
                socket
            }
            Some(Listener::Local(listener)) => listener.accept()?,
            None => return Err(io::ErrorKind::WouldBlock.into()),
        };
        let registered = self.registered(socket, token);
        registered.map_err(|_| io::ErrorKind::ConnectionAborted.into())
    }

    fn connect(&mut self, to: Remote<'_>, token: Token) -> io::Result<Box<dyn Socket>> {
        let socket = match to {
            Remote::Address(address) => {
                let socket = TcpStream::connect(address)?;
                socket.set_nodelay(true)?;
                socket
            }
            Remote::File(path) => as_tcp(UnixStream::connect(path)?),
        };
        self.registered(socket, token)
    }

    fn poll(&mut self, ready: &mut Vec<(Token, Ready)>, wait: Nanos) -> io::Result<()> {
        if let Err(error) = self.poll.poll(&mut self.events, Some(wait.into()))
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(error);
        }
        for event in &self.events {
            if event.token() != WAKER {
                ready.push((event.token(), Ready::from(event)));
            }
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        let waker = Arc::clone(&self.waker);
        // If the waker fails, the loop notices the results at its next look.
        Arc::new(move || drop(waker.wake()))
    }
}

impl Socket for TcpStream {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpStream::local_addr(self)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        TcpStream::peer_addr(self)
    }

    fn descriptor(&self) -> i32 {
        self.as_raw_fd()
    }
}
