//! Events that release the jobs of a thread: a file descriptor becomes readable.
//!
//! | descriptor | an event is | read here |
//! |---|---|---|
//! | eventfd(2), timerfd | an increment of its counter; a read reports their number since the last one | yes |
//! | interrupt of a UIO device (`/dev/uio0`) | likewise, of the kernel's count; the job enables it again | yes |
//! | socket, pipe, any other that can be polled | readability; the job reads the data | no |
//!
//! A descriptor that is read here becomes non-blocking (`O_NONBLOCK`): if another thread read it first, a blocking read
//! would wait where no bell wakes it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use punctual_os::LinuxOs;
use punctual_units::{Clock, Time};

use super::descriptors::{poll, poll_entry, unblock};
use super::{KernelTree, last_error, refused};
use crate::Refusal;

/// An eventfd: any thread may ring it, and that wakes the thread that waits for it.
///
/// ```
/// use punctual_platform::linux::events::{Bell, EventSource, EventWait};
/// let bell = Bell::new()?;
/// let mut events = EventSource::of(&bell)?;
/// bell.ring();
/// bell.ring();
/// assert_eq!(events.wait(None, None), EventWait::Event { count: 2 });
/// # Ok::<(), punctual_platform::Refusal>(())
/// ```
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// Makes a bell that has not been rung.
    ///
    /// # Errors
    /// [`Refusal`] if the process may open no more descriptors.
    pub fn new() -> Result<Bell, Refusal> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(refused("an eventfd", last_error(), "allow more open files (ulimit -n)"));
        }
        // SAFETY: the kernel has just returned the descriptor, and no other code knows it.
        Ok(Bell(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds an event. Never waits; a full counter (2^64 - 2 events) keeps its value.
    pub fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer is as long as said.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A descriptor whose events release jobs.
#[derive(Debug)]
pub struct EventSource {
    file: File,
    takes: CounterKind,
    stop: Arc<Bell>,
}

/// Kind of counter that an event source reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CounterKind {
    /// An 8-byte counter, which reading resets to 0.
    Counter,
    /// A 4-byte counter of interrupts since the device was opened, and its previous value.
    Interrupts(Option<u32>),
    /// No counter: the job reads the data.
    Nothing,
}

/// Result of a wait for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventWait {
    /// An event, or several that were counted together.
    Event {
        /// Number of events, at least 1; always 1 if they are not counted.
        count: u64,
    },
    /// No event: a bell was rung, a signal came, or the time is over.
    Nothing,
    /// No more events can come; the text is the reason.
    Closed(String),
}

impl EventSource {
    /// Takes the events of `fd`, through a duplicate: the caller may close its own.
    ///
    /// # Errors
    /// [`Refusal`] if `fd` is a file or folder, which are readable at all times, or the process may open no more
    /// descriptors.
    pub fn of(fd: impl AsFd) -> Result<EventSource, Refusal> {
        let what = "events of a file descriptor";
        let limit = "allow more open files (ulimit -n)";
        let fd = fd.as_fd().try_clone_to_owned();
        let file = File::from(fd.map_err(|why| refused(what, why, limit))?);
        let link = KernelTree::default().path(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let link = fs::read_link(link).map_err(|why| refused(what, why, "mount /proc"))?;
        let takes = CounterKind::from_link(&link.to_string_lossy());
        let always_readable = || file.metadata().is_ok_and(|found| found.is_file() || found.is_dir());
        if takes == CounterKind::Nothing && always_readable() {
            let why = format!("{} is readable at all times, so it tells no events", link.display());
            let remedy = "give an eventfd, a timerfd, a device, a socket or a pipe";
            return Err(refused(what, why, remedy));
        }
        if takes != CounterKind::Nothing {
            unblock(&file).map_err(|why| refused(what, why, "give a descriptor that can be read"))?;
        }
        Ok(EventSource {
            file,
            takes,
            stop: Arc::new(Bell::new()?),
        })
    }

    /// A bell that ends the present wait, and every later one at once.
    pub fn stop(&self) -> Arc<Bell> {
        Arc::clone(&self.stop)
    }

    /// Sleeps until an event comes, [`stop`](Self::stop) or `bell` is rung, or the instant `until`. Returns a pending
    /// event at once. Allocates only for the reason of an `EventWait::Closed`.
    pub fn wait(&mut self, bell: Option<&Bell>, until: Option<Time>) -> EventWait {
        let bell = bell.map_or(-1, |bell| bell.0.as_raw_fd());
        let mut polled = [
            poll_entry(self.file.as_raw_fd(), libc::POLLIN | libc::POLLRDHUP),
            poll_entry(self.stop.0.as_raw_fd(), libc::POLLIN),
            poll_entry(bell, libc::POLLIN),
        ];
        let left = until.map(|until| until.since(LinuxOs.now()));
        if poll(&mut polled, left) <= 0 {
            return EventWait::Nothing;
        }
        self.heard(polled[0].revents)
    }

    /// Returns a pending event without sleeping.
    pub fn waiting(&mut self) -> EventWait {
        self.wait(None, Some(Time::ZERO))
    }

    fn heard(&mut self, told: i16) -> EventWait {
        if told & libc::POLLNVAL != 0 {
            return EventWait::Closed("its descriptor is not open".into());
        }
        if told & libc::POLLIN != 0 && !(told & (libc::POLLRDHUP | libc::POLLHUP) != 0 && self.is_empty()) {
            return match self.take() {
                Ok(0) => EventWait::Nothing, // another thread has read it
                Ok(count) => EventWait::Event { count },
                Err(why) => EventWait::Closed(format!("reading its descriptor failed: {why}")),
            };
        }
        if told & (libc::POLLHUP | libc::POLLRDHUP) != 0 {
            return EventWait::Closed("the other side was closed".into());
        }
        if told & libc::POLLERR != 0 {
            return EventWait::Closed("its descriptor has an error".into());
        }
        EventWait::Nothing
    }

    /// Whether nothing is left to read; false if the descriptor does not say.
    fn is_empty(&self) -> bool {
        let mut bytes: libc::c_int = 0;
        // SAFETY: FIONREAD writes one integer.
        let answer = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::FIONREAD, &mut bytes) };
        answer == 0 && bytes == 0
    }

    /// Reads and resets the number of pending events.
    fn take(&mut self) -> io::Result<u64> {
        let mut buffer = [0u8; 8];
        let bytes = match self.takes {
            CounterKind::Counter => 8,
            CounterKind::Interrupts(_) => 4,
            CounterKind::Nothing => return Ok(1),
        };
        match self.file.read(&mut buffer[..bytes]) {
            Ok(read) if read == bytes => Ok(self.takes.counted(buffer)),
            Ok(read) => Err(io::Error::other(format!("it gave {read} bytes, not {bytes}"))),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(why) => Err(why),
        }
    }
}

impl CounterKind {
    /// Chooses by the kernel's name of an open descriptor (proc_pid_fd(5)).
    fn from_link(link: &str) -> CounterKind {
        match link {
            "anon_inode:[eventfd]" | "anon_inode:[timerfd]" => CounterKind::Counter,
            device if device.starts_with("/dev/uio") => CounterKind::Interrupts(None),
            _ => CounterKind::Nothing,
        }
    }

    /// Number of events that the bytes read stand for.
    fn counted(&mut self, bytes: [u8; 8]) -> u64 {
        match self {
            CounterKind::Counter => u64::from_ne_bytes(bytes),
            CounterKind::Interrupts(before) => {
                let [a, b, c, d, ..] = bytes;
                let now = u32::from_ne_bytes([a, b, c, d]);
                let before = before.replace(now);
                // The first read counts as one: interrupts before the wait are of no interest.
                u64::from(before.map_or(1, |before| now.wrapping_sub(before)))
            }
            CounterKind::Nothing => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use punctual_testing::WAIT_MAX;
    use punctual_units::Nanos;

    use super::*;

    /// Bounds a wait that would not end where something is wrong.
    fn bound() -> Option<Time> {
        Some(LinuxOs.now() + Nanos::from_secs(WAIT_MAX.as_secs()))
    }

    #[test]
    fn an_eventfd_tells_how_many_came_together_and_then_nothing() {
        let bell = Bell::new().unwrap();
        let mut events = EventSource::of(&bell).unwrap();
        assert_eq!(events.waiting(), EventWait::Nothing);
        (0..3).for_each(|_| bell.ring());
        assert_eq!(events.wait(None, bound()), EventWait::Event { count: 3 });
        assert_eq!(events.waiting(), EventWait::Nothing);
    }

    #[test]
    fn either_bell_ends_a_wait() {
        let (source, run) = (Bell::new().unwrap(), Arc::new(Bell::new().unwrap()));
        let mut events = EventSource::of(&source).unwrap();
        let stop = events.stop();
        let (tell, told) = channel();
        let rung = Arc::clone(&run);
        std::thread::spawn(move || {
            tell.send(events.wait(Some(&rung), None)).unwrap();
            tell.send(events.wait(None, None)).unwrap();
        });
        for bell in [&run, &stop] {
            bell.ring();
            assert_eq!(told.recv_timeout(WAIT_MAX), Ok(EventWait::Nothing));
        }
    }

    #[test]
    fn a_socket_tells_until_it_is_read_and_its_end_once_it_is_empty() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let mut events = EventSource::of(&here).unwrap();
        there.write_all(b"ab").unwrap();
        drop(there);
        let mut byte = [0];
        for _ in 0..2 {
            assert_eq!(events.wait(None, bound()), EventWait::Event { count: 1 });
            here.read_exact(&mut byte).unwrap();
        }
        assert_eq!(
            events.wait(None, bound()),
            EventWait::Closed("the other side was closed".into())
        );
    }

    #[test]
    fn a_pipe_ends_when_its_writer_goes() {
        let (reader, writer) = io::pipe().unwrap();
        let mut events = EventSource::of(&reader).unwrap();
        assert_eq!(events.waiting(), EventWait::Nothing);
        drop(writer);
        assert!(matches!(events.wait(None, bound()), EventWait::Closed(_)));
    }

    #[test]
    fn a_file_is_refused_in_words() {
        let file = tempfile::tempfile().unwrap();
        let refusal = EventSource::of(&file).unwrap_err();
        assert!(refusal.why.contains("readable at all times"), "{refusal}");
        assert!(refusal.remedy.contains("eventfd"), "{refusal}");
    }

    #[test]
    fn interrupts_of_a_device_are_counted_from_the_first_one_on() {
        let mut takes = CounterKind::from_link("/dev/uio0");
        let mut told = |total: u32| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&total.to_ne_bytes());
            takes.counted(bytes)
        };
        assert_eq!([told(17), told(18), told(21)], [1, 1, 3]);
        assert_eq!(
            (told(u32::MAX), told(1)),
            (u64::from(u32::MAX - 21), 2),
            "the counter wraps"
        );
        assert_eq!(CounterKind::from_link("socket:[123]"), CounterKind::Nothing);
    }
}
