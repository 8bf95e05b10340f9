//! One socket that is never waited for: what was read of it, and what waits to be written.

use std::io::{self, Read, Write};

use mio::net::UnixStream;
use punctual_server::stream::Stream;

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
}

impl Socket for UnixStream {
    fn is_pending(&self) -> bool {
        false
    }

    fn is_both_ways(&self) -> bool {
        false
    }
}

impl Socket for Stream {
    fn is_pending(&self) -> bool {
        Stream::is_pending(self)
    }

    fn is_both_ways(&self) -> bool {
        Stream::is_both_ways(self)
    }
}

/// A socket.
pub(super) struct Link<S> {
    pub stream: S,
    pub out: Vec<u8>,
    sent: usize,
    pub is_readable: bool,
    pub is_writable: bool,
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
            bytes: Bytes::default(),
        }
    }

    /// Bytes that the socket has not taken; one at least while some are encrypted and wait.
    pub fn unsent(&self) -> usize {
        (self.out.len() - self.sent).max(usize::from(self.stream.is_pending()))
    }

    /// The system says that it can be read or written.
    pub fn ready(&mut self, is_readable: bool, is_writable: bool) {
        let is_any = self.stream.is_both_ways();
        self.is_readable |= is_readable || is_any;
        self.is_writable |= is_writable || is_any;
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
