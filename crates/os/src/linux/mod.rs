//! Linux: `CLOCK_MONOTONIC`, futexes, and kernel threads.

mod boot;
mod clock;
#[cfg(target_arch = "x86_64")]
mod flush;
mod futex;
pub mod mapped;
pub mod mapping;
mod parker;
mod stamp;
pub mod sync;
pub mod thread;

use std::panic::resume_unwind;
use std::path::Path;
use std::thread::Builder;

use punctual_units::{Clock, Time};

use crate::{Lock, MappedWords, Os, Park, Refusal, Scheduling, Thread, Tid, Wake};
pub use boot::{boot_id, clock_origin};
pub use clock::timespec;
use sync::{Parker, PiGuard, PiMutex};

/// Atomics of `parker.rs`; the model checker replaces them by its own (`tests/parker.rs`).
mod atomics {
    pub(super) use std::sync::atomic::{AtomicU32, Ordering};
}

/// Handle to Linux. Takes no memory and costs nothing to clone.
///
/// ```
/// use punctual_os::{LinuxOs, Lock, Os, Park, Wake};
/// use punctual_units::{Clock, Nanos};
/// let os = LinuxOs;
/// let counter = os.new_lock(0);
/// *counter.lock() += 1;
/// let place = os.new_parker();
/// assert_eq!(place.park_until(os.now() + Nanos::from_millis(1)), Wake::TimedOut);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinuxOs;

impl LinuxOs {
    /// Sleeps as [`Os::sleep_until`]. Signals do not end the sleep early, and a periodic sleeper does not drift.
    pub fn sleep_until(&self, wake: Time) {
        clock::sleep_until(wake);
    }
}

impl Clock for LinuxOs {
    #[inline]
    fn now(&self) -> Time {
        clock::now()
    }

    #[inline]
    fn since_boot(&self) -> Time {
        clock::since_boot()
    }

    #[inline]
    fn stamp(&self) -> Time {
        stamp::stamp()
    }
}

impl Os for LinuxOs {
    type Lock<T: Send> = PiMutex<T>;
    type Parker = Parker;

    fn new_lock<T: Send>(&self, data: T) -> PiMutex<T> {
        PiMutex::new(data)
    }

    fn new_parker(&self) -> Parker {
        Parker::new()
    }

    fn sleep_until(&self, wake: Time) {
        clock::sleep_until(wake);
    }

    /// Makes the system call only once for each thread.
    #[inline]
    fn this_thread(&self) -> Tid {
        thread_local!(static THREAD: Tid = Tid::current());
        THREAD.with(|thread| *thread)
    }

    fn scheduling(&self, thread: Tid) -> Result<Scheduling, Refusal> {
        thread::scheduling(thread)
    }

    fn scheduling_to_lend(&self, thread: Tid) -> Result<Scheduling, Refusal> {
        thread::scheduling_to_lend(thread)
    }

    fn thread_name(&self, thread: Tid) -> Option<String> {
        thread::name_of(thread)
    }

    fn clock_origin(&self) -> Option<String> {
        clock_origin()
    }

    fn map(&self, path: &Path, words: usize) -> Result<Box<dyn MappedWords>, Refusal> {
        Ok(Box::new(mapped::MappedFile::open(path, words)?))
    }

    fn set_scheduling(&self, thread: Tid, scheduling: Scheduling) -> Result<(), Refusal> {
        thread::set_scheduling(thread, scheduling)
    }

    fn together<'t>(&self, threads: Vec<Thread<'t>>) {
        std::thread::scope(|scope| {
            let start = |thread: Thread<'t>| {
                let Thread { name, body } = thread;
                let started = Builder::new().name(name.clone()).spawn_scoped(scope, body);
                started.unwrap_or_else(|refused| panic!("thread {name} was not started: {refused}"))
            };
            let running: Vec<_> = threads.into_iter().map(start).collect();
            let outcomes: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
            if let Some(panic) = outcomes.into_iter().find_map(Result::err) {
                resume_unwind(panic);
            }
        });
    }
}

impl<T: Send> Lock<T> for PiMutex<T> {
    type Guard<'l>
        = PiGuard<'l, T>
    where
        Self: 'l;

    #[inline]
    fn lock(&self) -> PiGuard<'_, T> {
        self.lock()
    }

    #[inline]
    fn try_lock(&self) -> Option<PiGuard<'_, T>> {
        self.try_lock()
    }
}

impl Park for Parker {
    fn park_until(&self, deadline: Time) -> Wake {
        self.park_until(deadline)
    }

    fn unpark(&self) {
        self.unpark();
    }
}

/// Makes a refusal of `what` for the kernel's reason.
pub fn refused(what: impl Into<String>, why: impl std::fmt::Display, remedy: impl Into<String>) -> Refusal {
    Refusal {
        what: what.into(),
        why: why.to_string(),
        remedy: remedy.into(),
    }
}

/// Entry of a list for poll(2); a negative descriptor has no events.
pub fn poll_entry(fd: std::os::fd::RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Error of this thread's last failed call into the C library.
pub fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}

/// Error number of the last system call (errno(3)).
pub fn errno() -> i32 {
    last_error().raw_os_error().unwrap_or(libc::EIO)
}
