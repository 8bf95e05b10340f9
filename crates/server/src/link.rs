//! A non-blocking socket with its unsent bytes.

use std::io::{self, Read, Write};

use crate::stream::{Ready, Stream};

/// The most bytes of one read.
pub(crate) const READ_AT_ONCE: usize = 64 << 10;
/// The most bytes that are read from one connection in one turn.
pub(crate) const READ_TURN: usize = 256 << 10;
/// The most room that an idle connection keeps, in bytes.
const KEPT_MAX: usize = 16 << 10;

/// Bytes in and out of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Bytes read from sockets.
    pub read: u64,
    /// Bytes written to sockets.
    pub written: u64,
}

/// A socket with its unsent bytes and its readiness.
pub struct Link {
    pub stream: Stream,
    pub out: Vec<u8>,
    sent: usize,
    pub is_readable: bool,
    pub is_writable: bool,
    /// Whether an event has reported the end; reads continue until they return it.
    pub has_end: bool,
    /// Bytes read and written since the owner last took these counts.
    pub bytes: Bytes,
}

/// Result of a turn of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// All bytes that arrived are read.
    Empty,
    /// There may be more to read, in another turn.
    More,
    /// No more bytes will come from the other side.
    Ended,
}

impl Link {
    /// Makes a link of a socket that is connected or still connecting.
    pub fn new(stream: Stream) -> Link {
        Link {
            stream,
            out: Vec::new(),
            sent: 0,
            is_readable: false,
            is_writable: false,
            has_end: false,
            bytes: Bytes::default(),
        }
    }

    /// Bytes that the socket has not taken; at least 1 while encrypted bytes wait.
    pub fn unsent(&self) -> usize {
        (self.out.len() - self.sent).max(usize::from(self.stream.is_pending()))
    }

    /// Takes note that the socket can be read or written.
    pub fn ready(&mut self, ready: Ready) {
        let is_any = self.stream.is_both_ways();
        self.is_readable |= ready.reads || is_any;
        self.is_writable |= ready.writes || is_any;
        self.has_end |= ready.ends;
    }

    /// Reads the bytes that have arrived, up to `READ_TURN`.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn read(&mut self, scratch: &mut Vec<u8>, mut take: impl FnMut(&[u8])) -> io::Result<Turn> {
        scratch.resize(READ_AT_ONCE, 0);
        let mut budget = READ_TURN;
        while self.is_readable && budget > 0 {
            match self.read_once(scratch)? {
                Some(0) => return Ok(Turn::Ended),
                Some(count) => {
                    take(&scratch[..count]);
                    budget = budget.saturating_sub(count);
                }
                None => {}
            }
        }
        Ok(if self.is_readable { Turn::More } else { Turn::Empty })
    }

    /// Reads bytes that have arrived; returns their number, 0 at the end of the stream, `None` if there are none now.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn read_once(&mut self, scratch: &mut [u8]) -> io::Result<Option<usize>> {
        match self.stream.read(scratch) {
            Ok(0) => Ok(Some(0)),
            Ok(count) => {
                self.bytes.read += count as u64;
                self.is_readable = self.has_end || !self.stream.is_drained(count, scratch.len());
                Ok(Some(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_readable = false;
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes unsent bytes as far as the socket takes them; returns whether it took any.
    pub fn flush(&mut self) -> io::Result<bool> {
        let mut taken = 0;
        while self.is_writable && self.unsent() > 0 {
            let unsent = &self.out[self.sent..];
            let sent = match unsent.is_empty() {
                true => self.stream.flush().map(|()| 0),
                false => self.stream.write(unsent),
            };
            match sent {
                Ok(0) if !unsent.is_empty() => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent += count;
                    taken += count;
                    self.bytes.written += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
            if self.out.capacity() > KEPT_MAX {
                self.out = Vec::new();
            }
        } else if self.sent > KEPT_MAX {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        Ok(taken > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};

    use mio::{Events, Interest, Poll, Token};

    use super::*;

    /// Events tell of an end once, with the bytes before it.
    #[test]
    fn an_end_that_comes_with_bytes_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        other.write_all(b"abc").unwrap();
        other.shutdown(Shutdown::Write).unwrap();
        let mut stream = mio::net::TcpStream::from_std(stream);
        let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(8));
        // By now both have come: an end is not told of before the system has it.
        while stream.peek(&mut [0; 8]).is_err()
            || !{
                poll.registry()
                    .register(&mut stream, Token(0), Interest::READABLE)
                    .unwrap();
                poll.poll(&mut events, None).unwrap();
                let ends = events.iter().any(|event| Ready::from(event).ends);
                if !ends {
                    poll.registry().deregister(&mut stream).unwrap();
                }
                ends
            }
        {}
        let mut link = Link::new(Stream::Plain(Box::new(stream)));
        events.iter().for_each(|event| link.ready(Ready::from(event)));
        let (mut scratch, mut came) = (Vec::new(), Vec::new());
        let turns = [(); 2].map(|()| link.read(&mut scratch, |bytes| came.extend_from_slice(bytes)).unwrap());
        assert!(turns.contains(&Turn::Ended), "{turns:?}");
        assert_eq!(came, b"abc");
    }

    /// What has filled its room may be followed by more; what has not is all.
    #[test]
    fn a_socket_that_is_drained_is_not_read_again() {
        let (stream, mut other) = mio::net::UnixStream::pair().unwrap();
        let mut link = Link::new(Stream::Plain(Box::new(crate::local::as_tcp(stream))));
        let ready = Ready {
            reads: true,
            ..Ready::default()
        };
        for (length, calls) in [(5, 1), (READ_AT_ONCE, 1), (READ_AT_ONCE + 7, 2)] {
            let mut sent = 0;
            let (mut scratch, mut taken, mut came) = (Vec::new(), 0, 0);
            while came < length {
                sent += other.write(&vec![7; length - sent]).unwrap_or(0);
                link.ready(ready);
                link.read(&mut scratch, |bytes| {
                    came += bytes.len();
                    taken += 1;
                })
                .unwrap();
            }
            assert!(taken >= calls && came == length, "{length}: {taken} reads of {came}");
        }
        assert!(!link.is_readable);
    }
}
