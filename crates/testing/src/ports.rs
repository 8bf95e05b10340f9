//! Ports for servers whose files name one before they listen.
//!
//! A port that was probed and released can be given to another program before its server binds it. So a reservation is
//! a socket that stays bound until this process ends. It has SO_REUSEADDR and never listens: then Linux lets another
//! socket with SO_REUSEADDR bind the same port and listen there, as listeners of std, mio, Go and Redis do, and gives
//! the port neither to a bind to port 0 nor to a connection.

use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Sockets of all reservations, open until this process ends; children do not inherit them.
static RESERVED: Mutex<Vec<TcpListener>> = Mutex::new(Vec::new());

/// Ports of 127.0.0.1 that Linux gives to no other program while this process lives; servers may listen on them.
///
/// # Panics
/// If no port can be bound.
pub fn reserved_ports<const N: usize>() -> [u16; N] {
    [(); N].map(|()| {
        let socket = bound().expect("a port");
        let port = socket.local_addr().expect("its address").port();
        RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
        port
    })
}

/// A socket bound to a port that the kernel chooses. std has no type for one that does not listen.
fn bound() -> io::Result<TcpListener> {
    // SAFETY: a plain system call.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: an open descriptor that this function alone has.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let one: libc::c_int = 1;
    // SAFETY: `sockaddr_in` is valid when it is all zero.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
    // SAFETY: both calls read structures of this frame, of the sizes given.
    let ended = unsafe {
        let reuse = libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            (&raw const one).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
        let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        reuse | libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size)
    };
    if ended != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};

    use super::*;

    #[test]
    fn a_reserved_port_is_for_its_server_alone() {
        let [port, other] = reserved_ports();
        assert_ne!(port, other);
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert_eq!(
            TcpStream::connect(at).expect_err("a listener").kind(),
            io::ErrorKind::ConnectionRefused
        );
        // Kept, so that each is another one.
        let any: Vec<TcpListener> = (0..200)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"))
            .collect();
        let ports: Vec<u16> = any
            .iter()
            .map(|listener| listener.local_addr().expect("an address").port())
            .collect();
        assert!(!ports.contains(&port) && !ports.contains(&other), "{ports:?}");
        // A server that comes, goes and comes again.
        for _ in 0..2 {
            let server = TcpListener::bind(at).expect("it listens");
            let mut client = TcpStream::connect(at).expect("a connection");
            let (mut served, from) = server.accept().expect("a client");
            assert!(![port, other].contains(&from.port()));
            io::Write::write_all(&mut client, b"a").expect("a byte");
            io::Read::read_exact(&mut served, &mut [0]).expect("a byte");
        }
    }
}
