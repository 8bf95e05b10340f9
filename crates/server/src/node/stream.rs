//! The bytes of a connection: as they are, or by TLS.

use std::io::{self, Read, Write};

use mio::net::TcpStream;

pub(super) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<rustls::StreamOwned<rustls::ServerConnection, TcpStream>>),
}

/// About what a connection by TLS keeps beside what waits.
#[cfg(feature = "tls")]
const TLS_BYTES: usize = 32 << 10;

impl Stream {
    pub fn socket(&mut self) -> &mut TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => &mut stream.sock,
        }
    }

    /// Whether bytes are encrypted and not sent.
    pub fn is_pending(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.conn.wants_write(),
        }
    }

    /// Whether client and server have still to agree on keys.
    pub fn is_handshaking(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.conn.is_handshaking(),
        }
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
            Stream::Tls(_) => TLS_BYTES,
        }
    }

    /// Says that no more will come, as far as the socket takes it at once.
    pub fn end(&mut self) {
        #[cfg(feature = "tls")]
        if let Stream::Tls(stream) = self {
            stream.conn.send_close_notify();
            drop(stream.conn.write_tls(&mut stream.sock));
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => match stream.read(buffer) {
                // Its client closed the socket without a word.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                read => read,
            },
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.flush(),
        }
    }
}
