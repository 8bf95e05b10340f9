//! Operating system interface of waiting threads: clock, lock, parking place, scheduling.
//!
//! **Problem.** Code that waits by asking the kernel can be tested only as fast as time passes, and only on the
//! interleavings that the kernel happens to choose. A single process cannot hold many instances of it.
//!
//! **Method.** An [`Os`] provides all means of waiting: a clock, locks whose holder inherits priorities ([`Lock`]),
//! places where a thread parks until another wakes it or until an instant ([`Park`]), and threads. There are two:
//!
//! - `LinuxOs`: the kernel's clock, its futexes and its threads;
//! - `VirtualOs`, for tests (`punctual-testing`): threads that take turns, and a clock that jumps. All that happens
//!   follows from a seed, and a deadlock is a report instead of a test that hangs.
//!
//! Both pass the conformance suite of `punctual-testing`. Code that is generic over the `Os` costs nothing extra on
//! Linux: `LinuxOs` has no size, and the compiler inlines it.

#[cfg(target_os = "linux")]
pub mod linux;
mod mapped;
mod refusal;
mod thread;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::DerefMut;
use std::path::Path;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use punctual_units::{Clock, Nanos, Time};

#[cfg(target_os = "linux")]
pub use linux::LinuxOs;
pub use mapped::{MappedMedium, MappedWords};
pub use refusal::Refusal;
pub use thread::{REAL_TIME_PRIORITIES, Scheduling, Thread, Tid};

/// A turn of a thread: returns until when to wait before the next one, unless unparked ([`Time::ZERO`]: not at all), or
/// `None` at the end of the thread.
pub type Turn = Box<dyn FnMut() -> Option<Time> + Send>;

/// The operating system of waiting threads. Clones are handles to the same system.
pub trait Os: Clock + Clone + Send + Sync + 'static {
    /// Lock with priority inheritance.
    type Lock<T: Send>: Lock<T>;
    /// Parking place of one thread.
    type Parker: Park;

    /// Makes a free lock around `data`.
    fn new_lock<T: Send>(&self, data: T) -> Self::Lock<T>;

    /// Makes a parking place without a permit.
    fn new_parker(&self) -> Self::Parker;

    /// Sleeps until `wake`, not shorter; returns at once if that instant has passed.
    fn sleep_until(&self, wake: Time);

    /// Sleeps for `span`, not shorter.
    fn sleep(&self, span: Nanos) {
        self.sleep_until(self.now() + span);
    }

    /// Id of the calling thread.
    fn this_thread(&self) -> Tid;

    /// Scheduling of `thread`, as set: priority inherited from threads that wait for its locks does not show.
    ///
    /// # Errors
    /// [`Refusal`] where there is no such thread, or its scheduling could not be set again.
    fn scheduling(&self, thread: Tid) -> Result<Scheduling, Refusal>;

    /// Scheduling for the thread that `thread` waits for, so that `thread` waits no longer than it must: as
    /// [`scheduling`], except for a thread whose scheduling cannot be given to another.
    ///
    /// # Errors
    /// As for [`scheduling`](Os::scheduling).
    ///
    /// [`scheduling`]: Os::scheduling
    fn scheduling_to_lend(&self, thread: Tid) -> Result<Scheduling, Refusal> {
        self.scheduling(thread)
    }

    /// Name of `thread`, which belongs to this process; `None` where the system does not provide it.
    fn thread_name(&self, _thread: Tid) -> Option<String> {
        None
    }

    /// Name of the origin that the clock's instants count from, the same in every program until the machine is started
    /// anew; `None` where it has none.
    fn clock_origin(&self) -> Option<String> {
        None
    }

    /// Maps the file at `path` as `words` words of 8 bytes, for this program alone; creates one of zeros where there is
    /// none.
    ///
    /// # Errors
    /// [`Refusal`] where the file has another length, is in use, lies on a disk, or the medium has no room.
    fn map(&self, path: &Path, _words: usize) -> Result<Box<dyn MappedWords>, Refusal> {
        Err(Refusal {
            what: format!("mapping {}", path.display()),
            why: "this system maps no files".into(),
            remedy: "leave the file out".into(),
        })
    }

    /// Sets the scheduling of `thread`.
    ///
    /// # Errors
    /// [`Refusal`] without permission, for values out of range, or where there is no such thread.
    fn set_scheduling(&self, thread: Tid, scheduling: Scheduling) -> Result<(), Refusal>;

    /// Runs `threads` concurrently, with the caller's scheduling, and returns when all have ended.
    ///
    /// # Panics
    /// With the panic of the first thread that panicked, after all have ended.
    fn together(&self, threads: Vec<Thread<'_>>);

    /// Starts a thread that takes turns, and waits at `place` between them. `None`: the system itself calls its turns,
    /// all on one thread, so no turn may wait for another thread.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    fn start(&self, name: &str, place: Arc<Self::Parker>, mut turn: Turn) -> io::Result<Option<JoinHandle<()>>> {
        let run = move || {
            while let Some(until) = turn() {
                if until > Time::ZERO {
                    place.park_until(until);
                }
            }
        };
        Builder::new().name(name.into()).spawn(run).map(Some)
    }

    /// A random number that no other program can know.
    fn random(&self) -> u64 {
        RandomState::new().hash_one(0)
    }
}

/// Gives the calling thread a claim on the processor before ordinary threads: real time of the lowest priority, or
/// where that is not allowed, a larger share. For threads that others wait for, and that never compute for long.
///
/// # Errors
/// [`Refusal`] of real time; the thread may have the larger share then.
pub fn claim_processor(os: &impl Os) -> Result<(), Refusal> {
    let thread = os.this_thread();
    let refused = os.set_scheduling(thread, Scheduling::RoundRobin(*REAL_TIME_PRIORITIES.start()));
    if refused.is_err() {
        // If this is refused as well, the thread has the share of others.
        drop(os.set_scheduling(thread, Scheduling::Other { nice: -10 }));
    }
    refused
}

/// A lock around data; its holder runs at least as urgently as the threads that wait for it (priority inheritance). A
/// panic inside of the critical section unlocks it and leaves the data as they are.
pub trait Lock<T>: Send + Sync {
    /// Access to the data; unlocks when dropped, on the thread that locked.
    type Guard<'l>: DerefMut<Target = T>
    where
        Self: 'l;

    /// Waits for the lock and takes it. The wait is bounded only by the critical sections before it: keep them short.
    ///
    /// # Panics
    /// If the calling thread holds the lock already: that would wait without end.
    fn lock(&self) -> Self::Guard<'_>;

    /// Takes the lock if it is free.
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
}

/// Lets one thread at a time wait until another wakes it, or until a deadline.
///
/// The place has a single permit: an [`unpark`](Park::unpark) before the [`park_until`](Park::park_until) is not lost,
/// and several in a row count once. Writes before `unpark` are visible after the `park_until` that it ends.
pub trait Park: Send + Sync {
    /// Waits for the permit and takes it, at most until `deadline` ([`Time::MAX`]: without bound). A permit that
    /// arrives with the deadline is taken, so that no wake-up is ever lost.
    fn park_until(&self, deadline: Time) -> Wake;

    /// Gives the permit and wakes the waiting thread, if any.
    fn unpark(&self);
}

/// Reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Another thread called [`Park::unpark`].
    Woken,
    /// The deadline came first.
    TimedOut,
}
