//! One socket that is never waited for: what was read of it, and what waits to be written.

use std::io::{self, Read, Write};

use crate::figures::Bytes;

/// The bytes of one read.
const READ_AT_ONCE: usize = 64 << 10;
/// How many bytes of one connection are read before others have their turn.
const READ_TURN: usize = 1 << 20;
/// What an idle connection keeps.
const KEPT_MAX: usize = 64 << 10;

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

impl<S: Read + Write> Link<S> {
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

    pub fn unsent(&self) -> usize {
        self.out.len() - self.sent
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
        while self.is_writable && self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
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
        if self.unsent() == 0 {
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
