//! The bytes of a connection, plain or by TLS. No call blocks.

use std::io::{self, Read, Write};

use mio::event::Event;
use rustls::{ClientConnection, ConnectionCommon, ServerConnection, SideData, StreamOwned};

use crate::net::Socket;

/// A connection's stream of bytes, over its socket.
#[derive(Debug)]
pub enum Stream<S: Read + Write = Box<dyn Socket>> {
    /// Bytes as the socket carries them.
    Plain(S),
    /// TLS on a connection that was accepted.
    Tls(Box<StreamOwned<ServerConnection, S>>),
    /// TLS on a connection that this side dialled.
    Dialled(Box<StreamOwned<ClientConnection, S>>),
}

/// Estimated memory of a TLS connection beside its buffers: bytes encrypted but not sent, and a record being read.
const TLS_BYTES: usize = crate::tls::UNSENT_MAX + (16 << 10);

impl<S: Read + Write> Stream<S> {
    /// Makes the TLS stream of an accepted connection.
    pub fn accepted(connection: ServerConnection, socket: S) -> Self {
        Stream::Tls(Box::new(StreamOwned::new(connection, socket)))
    }

    /// Makes the TLS stream of a dialled connection.
    pub fn dialled(connection: ClientConnection, socket: S) -> Self {
        Stream::Dialled(Box::new(StreamOwned::new(connection, socket)))
    }

    /// The socket below the stream.
    pub fn socket(&mut self) -> &mut S {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &mut stream.sock,
            Stream::Dialled(stream) => &mut stream.sock,
        }
    }

    /// Whether encrypted bytes wait to be sent.
    pub fn is_pending(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.conn.wants_write(),
            Stream::Dialled(stream) => stream.conn.wants_write(),
        }
    }

    /// Whether the TLS handshake is not over.
    pub fn is_handshaking(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.conn.is_handshaking(),
            Stream::Dialled(stream) => stream.conn.is_handshaking(),
        }
    }

    /// Whether a read of `count` bytes into `room` has emptied the socket: a short read has (epoll(7)), and an event
    /// reports later bytes. Does not hold once an event has reported the end of the stream, which shows only in a
    /// further read: [`Ready::ends`].
    pub fn is_drained(&self, count: usize, room: usize) -> bool {
        matches!(self, Stream::Plain(_)) && count < room
    }

    /// Whether a read may need the socket to be writable, and a write may need it readable, as in TLS.
    pub fn is_both_ways(&self) -> bool {
        !matches!(self, Stream::Plain(_))
    }

    /// Estimated memory of the stream, in bytes.
    pub fn kept(&self) -> usize {
        match self {
            Stream::Plain(_) => 0,
            Stream::Tls(_) | Stream::Dialled(_) => TLS_BYTES,
        }
    }

    /// Sends TLS's close_notify, as far as the socket takes it at once.
    pub fn end(&mut self) {
        match self {
            Stream::Plain(_) => {}
            Stream::Tls(stream) => end(stream),
            Stream::Dialled(stream) => end(stream),
        }
    }
}

fn end<C, D>(stream: &mut StreamOwned<C, impl Read + Write>)
where
    C: std::ops::DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
{
    stream.conn.send_close_notify();
    drop(stream.conn.write_tls(&mut stream.sock));
}

fn read<C, D>(stream: &mut StreamOwned<C, impl Read + Write>, buffer: &mut [u8]) -> io::Result<usize>
where
    C: std::ops::DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
{
    match stream.read(buffer) {
        // A socket was closed without close_notify.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    }
}

fn write<C, D>(stream: &mut StreamOwned<C, impl Read + Write>, bytes: &[u8]) -> io::Result<usize>
where
    C: std::ops::DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
{
    match stream.write(bytes) {
        // rustls is full. It has read in place of writing because the socket took nothing, so this is no end: an event
        // comes once the socket takes bytes again, or the handshake goes on.
        Ok(0) if !bytes.is_empty() => {
            let waits = stream.conn.wants_write() || stream.conn.is_handshaking();
            Err(if waits {
                io::ErrorKind::WouldBlock
            } else {
                io::ErrorKind::Interrupted
            }
            .into())
        }
        written => written,
    }
}

/// The state of a socket, from an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// The socket can be read.
    pub reads: bool,
    /// The socket can be written.
    pub writes: bool,
    /// No more bytes will come from the other side, or the socket has failed; reads continue until they return that.
    pub ends: bool,
}

impl From<&Event> for Ready {
    fn from(event: &Event) -> Ready {
        let ends = event.is_read_closed() || event.is_error();
        Ready {
            reads: event.is_readable() || ends,
            writes: event.is_writable() || event.is_error(),
            ends,
        }
    }
}

impl<S: Read + Write> Read for Stream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => read(stream, buffer),
            Stream::Dialled(stream) => read(stream, buffer),
        }
    }
}

impl<S: Read + Write> Write for Stream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => write(stream, bytes),
            Stream::Dialled(stream) => write(stream, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
            Stream::Dialled(stream) => stream.flush(),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use mio::net::TcpStream;

    use super::*;
    use crate::tls::tests::{TestCertificate, client};

    /// A client that sends while replies wait makes TLS read where it was to write; a full buffer of TLS is no end of
    /// the connection.
    #[test]
    fn a_client_that_sends_while_replies_wait_is_not_cut_off() {
        const REPLY: [u8; 8192] = [b'x'; 8192];
        let shown = TestCertificate::new();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut near = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let (far, _) = listener.accept().expect("a client");
        far.set_nonblocking(true).expect("a socket");
        let connection = shown.tls.begin().expect("a connection");
        let tls = rustls::StreamOwned::new(connection, TcpStream::from_std(far));
        let mut stream = Stream::Tls(Box::new(tls));
        let mut client = client(&shown.authority);
        near.set_nonblocking(true).expect("a socket");
        let mut scratch = [0; 64];
        while client.is_handshaking() || stream.is_handshaking() {
            let _ = client.complete_io(&mut near);
            let _ = stream.read(&mut scratch);
        }
        // Until neither TLS nor the socket takes more.
        let mut sent = 0;
        let mut fill = |stream: &mut Stream<TcpStream>| loop {
            match stream.write(&REPLY) {
                Ok(0) => panic!("that would be the end of the connection"),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        };
        fill(&mut stream);
        near.set_nonblocking(false).expect("a socket");
        for _ in 0..4 {
            client.writer().write_all(&[b'y'; 16_000]).expect("it takes bytes");
            while client.wants_write() {
                client.write_tls(&mut near).expect("it takes bytes");
            }
            let Stream::Tls(tls) = &stream else { panic!("it is TLS") };
            while tls.sock.peek(&mut scratch).is_err() {
                std::thread::yield_now();
            }
            fill(&mut stream);
            // TLS reads no more while there is something to take, so that the next round begins without.
            let mut taken = [0; 4096];
            while stream.read(&mut taken).is_ok_and(|count| count > 0) {}
        }
        // All that was taken comes.
        let mut tls = rustls::StreamOwned::new(client, near);
        let reads = std::thread::spawn(move || {
            let mut all = vec![0; sent];
            tls.read_exact(&mut all).map(|()| all)
        });
        while stream.is_pending() && !reads.is_finished() {
            let _ = stream.flush();
            std::thread::yield_now();
        }
        let all = reads.join().expect("a thread").expect("all bytes");
        assert!(sent > 0 && all.iter().all(|byte| *byte == b'x'));
    }
}
