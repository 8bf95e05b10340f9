//! Recordings and sound over descriptors that may block for long: no wait outlasts the user's stop request.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Interval at which a wait checks for the user's stop request, in milliseconds.
const LOOK_MS: i32 = 100;
/// Bytes read at a time: the usual capacity of a pipe.
const READ: usize = 1 << 16;
/// Bytes written at a time: a ready pipe takes this many without blocking (pipe(7), PIPE_BUF).
const WRITE: usize = 4096;

/// The latest values of a stream, for measurements. The writing thread never waits for a reader.
#[derive(Debug)]
pub struct Tap<T>(Mutex<VecDeque<T>>, usize);

impl<T: Copy> Tap<T> {
    /// A tap that keeps the last `room` values.
    pub fn new(room: usize) -> Tap<T> {
        Tap(Mutex::new(VecDeque::with_capacity(room)), room)
    }

    /// Adds values, unless another thread reads at the moment.
    pub fn add(&self, values: &[T]) {
        let Ok(mut kept) = self.0.try_lock() else { return };
        let values = &values[values.len().saturating_sub(self.1)..];
        let surplus = (kept.len() + values.len()).saturating_sub(self.1);
        kept.drain(..surplus);
        kept.extend(values);
    }

    /// The latest values, oldest first.
    pub fn latest(&self) -> Vec<T> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().copied().collect()
    }
}

/// A file or pipe that is read until its end, or until the user asks to stop.
pub struct Incoming {
    file: BufReader<File>,
    stop: Arc<AtomicBool>,
}

impl Incoming {
    /// Opens `path`; standard input for `-`. A named pipe may get its writer later.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(path: &Path, stop: &Arc<AtomicBool>) -> io::Result<Incoming> {
        let file = match path == Path::new("-") {
            true => File::from(io::stdin().as_fd().try_clone_to_owned()?),
            false => { OpenOptions::new() }
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(path)?,
        };
        Ok(Incoming {
            file: BufReader::with_capacity(READ, file),
            stop: Arc::clone(stop),
        })
    }
}

impl Read for Incoming {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.file.buffer().is_empty() {
                wait(self.file.get_ref().as_fd(), libc::POLLIN, &self.stop)?;
            }
            match self.file.read(into) {
                Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

/// A reader that copies its bytes to a tap, and fails once the user asks to stop.
pub struct TappedReader<R> {
    pub reader: R,
    pub tap: Arc<Tap<u8>>,
    pub stop: Arc<AtomicBool>,
}

impl<R: Read> Read for TappedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Acquire) {
            return Err(stopped());
        }
        let read = self.reader.read(into)?;
        self.tap.add(&into[..read]);
        Ok(read)
    }
}

/// Standard output as a pipe that is written until the user asks to stop.
pub struct Outgoing {
    file: File,
    stop: Arc<AtomicBool>,
}

impl Outgoing {
    /// # Errors
    /// Those of the system, if there is no standard output.
    pub fn stdout(stop: &Arc<AtomicBool>) -> io::Result<Outgoing> {
        Ok(Outgoing {
            file: File::from(io::stdout().as_fd().try_clone_to_owned()?),
            stop: Arc::clone(stop),
        })
    }
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        wait(self.file.as_fd(), libc::POLLOUT, &self.stop)?;
        self.file.write(&bytes[..bytes.len().min(WRITE)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until the descriptor is ready, at its end or failed. A ready one is used even after a stop request.
fn wait(descriptor: BorrowedFd<'_>, events: i16, stop: &AtomicBool) -> io::Result<()> {
    let mut poll = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: one valid entry.
    while unsafe { libc::poll(&mut poll, 1, LOOK_MS) } < 1 {
        if stop.load(Ordering::Acquire) {
            return Err(stopped());
        }
    }
    Ok(())
}

fn stopped() -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, "ended by the user")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pipe_without_a_writer_waits_until_the_user_wants_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a valid name.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let stop = Arc::new(AtomicBool::new(false));
        let mut incoming = Incoming::open(&path, &stop).unwrap();
        let mut room = [0; 4];
        {
            let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
            writer.write_all(b"abc").unwrap();
            assert_eq!(incoming.read(&mut room).unwrap(), 3);
            stop.store(true, Ordering::Release);
            let why = incoming.read(&mut room).unwrap_err();
            assert_eq!(why.kind(), ErrorKind::ConnectionAborted);
        }
        assert_eq!(incoming.read(&mut room).unwrap(), 0, "its writer has gone");
    }

    proptest! {
        #[test]
        fn a_tap_keeps_the_latest(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20)) {
            let tap = Tap::new(8);
            pieces.iter().for_each(|piece| tap.add(piece));
            let all = pieces.concat();
            prop_assert_eq!(tap.latest(), all[all.len().saturating_sub(8)..].to_vec());
        }
    }
}
