//! The bytes of a connection: as they are, or by TLS. No call waits.

use std::io::{self, Read, Write};

use mio::event::Event;
use mio::net::TcpStream;
#[cfg(feature = "tls")]
use rustls::{ClientConnection, ConnectionCommon, ServerConnection, SideData, StreamOwned};

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// As the bytes are.
    Plain(TcpStream),
    /// By TLS; the other side has dialled.
    #[cfg(feature = "tls")]
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
    /// By TLS; this side has dialled.
    #[cfg(feature = "tls")]
    Dialled(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// About what a connection by TLS keeps beside what waits: what is encrypted and not sent, and a record that is read.
#[cfg(feature = "tls")]
const TLS_BYTES: usize = crate::tls::UNSENT_MAX + (16 << 10);

impl Stream {
    /// By TLS, for a client that has come.
    #[cfg(feature = "tls")]
    pub fn accepted(connection: ServerConnection, socket: TcpStream) -> Stream {
        Stream::Tls(Box::new(StreamOwned::new(connection, socket)))
    }

    /// By TLS, to a server that was dialled.
    #[cfg(feature = "tls")]
    pub fn dialled(connection: ClientConnection, socket: TcpStream) -> Stream {
        Stream::Dialled(Box::new(StreamOwned::new(connection, socket)))
    }

    /// The socket below.
    pub fn socket(&mut self) -> &mut TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => &mut stream.sock,
            #[cfg(feature = "tls")]
            Stream::Dialled(stream) => &mut stream.sock,
        }
    }

    /// Whether bytes are encrypted and not sent.
    pub fn is_pending(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.conn.wants_write(),
            #[cfg(feature = "tls")]
            Stream::Dialled(stream) => stream.conn.wants_write(),
        }
    }

    /// Whether both sides have still to agree on keys.
    pub fn is_handshaking(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.conn.is_handshaking(),
            #[cfg(feature = "tls")]
            Stream::Dialled(stream) => stream.conn.is_handshaking(),
        }
    }

    /// Whether nothing is left to be read after a read that filled so little of its room. The system says so of a
    /// stream of bytes (epoll(7)), and an event tells of what comes later. An end of the stream is read like bytes, so
    /// this does not hold where one was told: [`Ready::ends`].
    pub fn is_drained(&self, count: usize, room: usize) -> bool {
        matches!(self, Stream::Plain(_)) && count < room
    }

    /// To read may be to write, and the other way round.
    pub fn is_both_ways(&self) -> bool {
        !matches!(self, Stream::Plain(_))
    }

    /// The bytes that it takes here.
    pub fn kept(&self) -> usize {
        match self {
            Stream::Plain(_) => 0,
            #[cfg(feature = "tls")]
            Stream::Tls(_) | Stream::Dialled(_) => TLS_BYTES,
        }
    }

    /// Says that no more will come, as far as the socket takes it at once.
    pub fn end(&mut self) {
        match self {
            Stream::Plain(_) => {}
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => end(stream),
            #[cfg(feature = "tls")]
            Stream::Dialled(stream) => end(stream),
        }
    }
}

#[cfg(feature = "tls")]
fn end<C, D>(stream: &mut StreamOwned<C, TcpStream>)
where
    C: std::ops::DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
{
    stream.conn.send_close_notify();
    drop(stream.conn.write_tls(&mut stream.sock));
}

#[cfg(feature = "tls")]
fn read<C, D>(stream: &mut StreamOwned<C, TcpStream>, buffer: &mut [u8]) -> io::Result<usize>
where
    C: std::ops::DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
{
    match stream.read(buffer) {
        // The other side closed the socket without a word.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    }
}

#[cfg(feature = "tls")]
fn write<C, D>(stream: &mut StreamOwned<C, TcpStream>, bytes: &[u8]) -> io::Result<usize>
where
    C: std::ops::DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
{
    match stream.write(bytes) {
        // rustls is full. It has read in place of writing where the socket took nothing, so that this is no end: an
        // event comes once the socket takes bytes again, or the handshake goes on.
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

/// What an event says of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// It can be read.
    pub reads: bool,
    /// It can be written.
    pub writes: bool,
    /// The other side sends no more, or the socket has failed: it is to be read until that shows.
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

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => read(stream, buffer),
            #[cfg(feature = "tls")]
            Stream::Dialled(stream) => read(stream, buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => write(stream, bytes),
            #[cfg(feature = "tls")]
            Stream::Dialled(stream) => write(stream, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.flush(),
            #[cfg(feature = "tls")]
            Stream::Dialled(stream) => stream.flush(),
        }
    }
}

#[cfg(all(test, feature = "tls", target_os = "linux"))]
mod tests {
    use super::*;
    use crate::tls::tests::{Shown, client};

    /// It sends while replies wait, so that TLS reads where it was to write: that it takes no more is no end.
    #[test]
    fn a_client_that_sends_while_replies_wait_is_not_cut_off() {
        const REPLY: [u8; 8192] = [b'x'; 8192];
        let shown = Shown::new();
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
        let mut fill = |stream: &mut Stream| loop {
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
