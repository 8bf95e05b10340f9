//! Files that a user names, read in bounded time and memory.
//!
//! **Problem.** A path may lead to a pipe without a writer, or to a device that never ends.
//!
//! **Method.** An ordinary file ends by itself; one beyond `FILE_MAX` is refused. Any other file (a pipe such as the
//! shell's `<(...)`, a terminal) is read for at most `TIME_MAX` and `STREAM_MAX` bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Greatest length of an ordinary file, in bytes.
const FILE_MAX: u64 = 1 << 30;
/// Most bytes that are read from a pipe or a device, and the longest time spent on it.
const STREAM_MAX: u64 = 64 << 20;
const TIME_MAX: Duration = Duration::from_secs(10);

/// File that is read within these bounds; a read beyond them fails.
#[derive(Debug)]
pub struct BoundedFile {
    file: File,
    left: u64,
    max: u64,
    /// Deadline of reads; `None` for an ordinary file, which never blocks.
    until: Option<Instant>,
}

/// Opens the file at `path` for reading.
///
/// # Errors
/// As [`File::open`].
pub fn open(path: &Path) -> io::Result<BoundedFile> {
    // Without `O_NONBLOCK`, opening a pipe without a writer would block without limit.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let ordinary = file.metadata()?.is_file();
    let max = if ordinary { FILE_MAX } else { STREAM_MAX };
    Ok(BoundedFile {
        file,
        left: max,
        max,
        until: (!ordinary).then(|| Instant::now() + TIME_MAX),
    })
}

/// Reads the whole file at `path`.
///
/// # Errors
/// As [`File::open`]; where a bound is met, another kind, with a sentence as its message.
pub fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the whole file at `path` as text.
///
/// # Errors
/// As [`bytes`]; [`ErrorKind::InvalidData`] if the file is not UTF-8.
pub fn text(path: &Path) -> io::Result<String> {
    String::from_utf8(bytes(path)?).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        io::Error::new(ErrorKind::InvalidData, format!("not text: line {line} is not UTF-8"))
    })
}

/// Reads the whole file at `path` as text, for a user that named it in place of `expected`.
///
/// # Errors
/// [`Failure::Input`] with the path, the reason and `expected`.
pub fn named_text(path: &Path, expected: &str) -> Result<String, Failure> {
    text(path).map_err(|error| Failure::of(format!("{}: {}; name {expected}", path.display(), why(&error))))
}

/// Reason why a file cannot be read, in a few words.
pub fn why(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file".into(),
        ErrorKind::Other | ErrorKind::TimedOut | ErrorKind::FileTooLarge | ErrorKind::InvalidData => error.to_string(),
        kind => kind.to_string(),
    }
}

impl BoundedFile {
    /// Waits until input is available, at most until `until`.
    fn wait(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let mut asked = libc::pollfd {
            fd: self.file.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let millis = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one entry, valid for the call.
        match unsafe { libc::poll(&mut asked, 1, millis) } {
            0 => Err(silent()),
            _ => Ok(()), // an error of poll(2) shows at the next read
        }
    }
}

fn silent() -> io::Error {
    let what = format!("it has not ended after {} s; name an ordinary file", TIME_MAX.as_secs());
    io::Error::new(ErrorKind::TimedOut, what)
}

impl Read for BoundedFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.until.is_some_and(|until| Instant::now() >= until) {
                return Err(silent());
            }
            match (self.file.read(into), self.until) {
                (Err(empty), Some(until)) if empty.kind() == ErrorKind::WouldBlock => self.wait(until)?,
                (Ok(0), Some(_)) if self.left == self.max => {
                    let what = "it holds no data; name an ordinary file, or a pipe that is written to";
                    return Err(io::Error::other(what));
                }
                (Ok(read), _) => {
                    let left = self.left.checked_sub(read as u64);
                    self.left = left.ok_or_else(|| {
                        let what = format!("it exceeds {}; name the right file", crate::size::shown(self.max));
                        io::Error::new(ErrorKind::FileTooLarge, what)
                    })?;
                    return Ok(read);
                }
                (Err(refused), _) => return Err(refused),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn files_and_pipes_are_read_to_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(text(&path).unwrap(), "text");
        let (read, mut write) = std::io::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            // The reader waits, or finds it there: both are right.
            write.write_all(b"through a pipe").unwrap();
        });
        let name = format!("/proc/self/fd/{}", read.as_raw_fd());
        assert_eq!(text(Path::new(&name)).unwrap(), "through a pipe");
        writer.join().unwrap();
    }

    #[test]
    fn what_never_ends_is_refused() {
        let told = bytes(Path::new("/dev/zero")).unwrap_err();
        assert!(why(&told).contains("64.0 MiB"), "{told}");
        let told = bytes(Path::new("/dev/null")).unwrap_err();
        assert!(why(&told).contains("no data"), "{told}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        File::create(&path).unwrap().set_len(FILE_MAX + 1).unwrap();
        let mut large = open(&path).unwrap();
        large.left = 10; // as if most of it had been read
        let told = large.read(&mut [0; 11]).unwrap_err();
        assert!(why(&told).contains("1.00 GiB"), "{told}");
    }
}
