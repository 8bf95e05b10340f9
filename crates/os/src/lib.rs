//! How does a thread wait, and under which scheduling does it run? Clock, lock, parking place, threads.
//!
//! **Problem.** Code that waits by asking the kernel can be tested only as fast as time passes, and only on the
//! interleavings that the kernel happens to choose. One process cannot hold a fleet of it.
//!
//! **Method.** An [`Os`] is what waits are made of: a clock, locks whose holder inherits priorities ([`Lock`]), places
//! where a thread parks until another wakes it or until an instant ([`Park`]), and threads. There are two:
//!
//! - `LinuxOs`: the kernel's clock, its futexes and its threads;
//! - `VirtualOs`, for tests (`punctual-testing`): threads that take turns, and a clock that jumps. All that happens
//!   follows from a seed, and a deadlock is a report instead of a test that hangs.
//!
//! Both pass the conformance suite of `punctual-testing`. What is generic over the `Os` costs nothing extra on Linux:
//! `LinuxOs` has no size, and the compiler sees through it.

#[cfg(target_os = "linux")]
pub mod linux;
mod refusal;
mod thread;

use std::ops::DerefMut;

use punctual_units::{Clock, Nanos, Time};

#[cfg(target_os = "linux")]
pub use linux::LinuxOs;
pub use refusal::Refusal;
pub use thread::{REAL_TIME_PRIORITIES, Scheduling, Thread, Tid};

/// An operating system, as far as threads wait in it. Clones are handles to the same one.
pub trait Os: Clock + Clone + Send + Sync + 'static {
    /// Its lock.
    type Lock<T: Send>: Lock<T>;
    /// Its parking place.
    type Parker: Park;

    /// A free lock around `data`.
    fn new_lock<T: Send>(&self, data: T) -> Self::Lock<T>;

    /// A parking place without a permit.
    fn new_parker(&self) -> Self::Parker;

    /// Sleeps until `wake`, not shorter; returns at once where that has passed.
    fn sleep_until(&self, wake: Time);

    /// Sleeps for `span`, not shorter.
    fn sleep(&self, span: Nanos) {
        self.sleep_until(self.now() + span);
    }

    /// The calling thread.
    fn this_thread(&self) -> Tid;

    /// How `thread` is scheduled, as set: what it inherits from those that wait for its locks does not show.
    ///
    /// # Errors
    /// [`Refusal`] where there is no such thread, or its scheduling could not be set again.
    fn scheduling(&self, thread: Tid) -> Result<Scheduling, Refusal>;

    /// As what a thread runs that `thread` waits for, so that it waits no longer than it must: as [`scheduling`], but
    /// for a thread whose scheduling cannot be given to another.
    ///
    /// # Errors
    /// Those of [`scheduling`](Os::scheduling).
    ///
    /// [`scheduling`]: Os::scheduling
    fn scheduling_to_lend(&self, thread: Tid) -> Result<Scheduling, Refusal> {
        self.scheduling(thread)
    }

    /// What `thread`, one of this process, is called; `None` where the system does not tell.
    fn thread_name(&self, _thread: Tid) -> Option<String> {
        None
    }

    /// Schedules `thread` as told.
    ///
    /// # Errors
    /// [`Refusal`] without permission, for values out of range, or where there is no such thread.
    fn set_scheduling(&self, thread: Tid, scheduling: Scheduling) -> Result<(), Refusal>;

    /// Runs `threads` beside each other, scheduled as the caller is, and returns when all have ended.
    ///
    /// # Panics
    /// With the panic of the first of them that panicked, after all have ended.
    fn together(&self, threads: Vec<Thread<'_>>);
}

/// A lock around data, whose holder runs at least as urgently as those that wait for it (priority inheritance).
/// A panic inside of the critical section unlocks it and leaves the data as they are.
pub trait Lock<T>: Send + Sync {
    /// Access to the data; unlocks when dropped, on the thread that locked.
    type Guard<'l>: DerefMut<Target = T>
    where
        Self: 'l;

    /// Waits for the lock and takes it. There is no bound but the critical sections before it: keep them short.
    ///
    /// # Panics
    /// If the calling thread holds the lock already: that would wait for ever.
    fn lock(&self) -> Self::Guard<'_>;

    /// Takes the lock if it is free.
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
}

/// A place where one thread at a time waits until another wakes it, or until a deadline.
///
/// One permit: an [`unpark`](Park::unpark) that comes before the [`park_until`](Park::park_until) is not lost, and
/// several in a row count once. What was written before `unpark` is seen after the `park_until` that it ends.
pub trait Park: Send + Sync {
    /// Waits for the permit and takes it, at most until `deadline` ([`Time::MAX`]: without bound). A permit that
    /// arrives with the deadline is taken, so that no wake-up is ever lost.
    fn park_until(&self, deadline: Time) -> Wake;

    /// Gives the permit and wakes the thread that waits for it, if one does.
    fn unpark(&self);
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// [`Park::unpark`] was called.
    Woken,
    /// The deadline came first.
    TimedOut,
}
