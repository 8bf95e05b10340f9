//! One socket that is never waited for: what was read of it, and what waits to be written.

use std::io::{self, Read, Write};

use mio::net::UnixStream;
use punctual_server::stream::{Ready, Stream};

use crate::figures::Bytes;

/// The bytes of one read.
const READ_AT_ONCE: usize = 64 << 10;
/// How many bytes of one connection are read before others have their turn.
const READ_TURN: usize = 1 << 20;
/// What an idle connection keeps.
const KEPT_MAX: usize = 64 << 10;

/// What a link may be made of.
pub(super) trait Socket: Read + Write {
    /// Whether it has taken bytes that are not sent.
    fn is_pending(&self) -> bool;
    /// Whether to read may be to write, and the other way round.
    fn is_both_ways(&self) -> bool;
    /// Whether nothing is left to be read after a read that filled so little of its room: [`Stream::is_drained`].
    fn is_drained(&self, count: usize, room: usize) -> bool;
}

impl Socket for UnixStream {
    fn is_pending(&self) -> bool {
        false
    }

    fn is_both_ways(&self) -> bool {
        false
    }

    fn is_drained(&self, count: usize, room: usize) -> bool {
        count < room
    }
}

impl Socket for Stream {
    fn is_pending(&self) -> bool {
        Stream::is_pending(self)
    }

    fn is_both_ways(&self) -> bool {
        Stream::is_both_ways(self)
    }

    fn is_drained(&self, count: usize, room: usize) -> bool {
        Stream::is_drained(self, count, room)
    }
}

/// A socket.
pub(super) struct Link<S> {
    pub stream: S,
    pub out: Vec<u8>,
    sent: usize,
    pub is_readable: bool,
    pub is_writable: bool,
    /// An end has been told, so that it is read until that shows.
    has_end: bool,
    /// Bytes since they were last looked at.
    pub bytes: Bytes,
}

/// What a turn of reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// All that has come is read.
    Empty,
    /// There may be more: another turn.
    More,
    /// The other side sends no more.
    Ended,
}

impl<S: Socket> Link<S> {
    /// A socket that may have come, or may still be under way.
    pub fn new(stream: S) -> Link<S> {
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

    /// Bytes that the socket has not taken; one at least while some are encrypted and wait.
    pub fn unsent(&self) -> usize {
        (self.out.len() - self.sent).max(usize::from(self.stream.is_pending()))
    }

    /// The system says that it can be read or written.
    pub fn ready(&mut self, ready: Ready) {
        let is_any = self.stream.is_both_ways();
        self.is_readable |= ready.reads || is_any;
        self.is_writable |= ready.writes || is_any;
        self.has_end |= ready.ends;
    }

    /// Reads what has come.
    pub fn read(&mut self, scratch: &mut Vec<u8>, mut take: impl FnMut(&[u8])) -> io::Result<Turn> {
        scratch.resize(READ_AT_ONCE, 0);
        let mut budget = READ_TURN;
        while self.is_readable && budget > 0 {
            match self.stream.read(scratch) {
                Ok(0) => return Ok(Turn::Ended),
                Ok(count) => {
                    take(&scratch[..count]);
                    self.bytes.read += count as u64;
                    budget = budget.saturating_sub(count);
                    self.is_readable = self.has_end || !self.stream.is_drained(count, scratch.len());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(if self.is_readable { Turn::More } else { Turn::Empty })
    }

    /// Writes what waits, as far as it is taken; whether any of it was.
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
        let mut link = Link::new(Stream::Plain(stream));
        events.iter().for_each(|event| link.ready(Ready::from(event)));
        let (mut scratch, mut came) = (Vec::new(), Vec::new());
        let turns = [(); 2].map(|()| link.read(&mut scratch, |bytes| came.extend_from_slice(bytes)).unwrap());
        assert!(turns.contains(&Turn::Ended), "{turns:?}");
        assert_eq!(came, b"abc");
    }

    /// What has filled its room may be followed by more; what has not is all.
    #[test]
    fn a_socket_that_is_drained_is_not_read_again() {
        let (stream, mut other) = UnixStream::pair().unwrap();
        let mut link = Link::new(stream);
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
