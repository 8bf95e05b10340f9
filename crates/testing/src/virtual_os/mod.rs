//! An operating system in virtual time: threads take turns, the clock jumps, and a seed decides the rest.
//!
//! **Method.** A task is a real thread that runs while it has the one *token*. It keeps the token between two calls
//! of the os; within a call the token may go to another task: always when the caller has to wait, and always when a
//! task of higher priority is ready. Among ready tasks of equal priority the seed decides, at every call. Hence one
//! seed gives one history, whatever the machine does, and many seeds give many interleavings.
//!
//! **Time.** The clock stands still while any task is ready, and jumps to the earliest instant that a task waits for
//! when none is. Computation takes no time; a task that sleeps stands for one that works on a core of its own.
//!
//! **Priorities** are [`Scheduling`]'s real-time priorities. A task that holds a lock runs with the highest priority
//! among those that wait for it, through chains of locks; a lock that is released passes to the most urgent waiter.
//!
//! **When nothing can go on** (all wait, and none until an instant) or time cannot
//! ([`CALLS_PER_INSTANT_MAX`] calls at one instant), the run is stopped: every task that waits panics, one after the
//! other, and [`Deadlock`] names each and what it waits for.
//!
//! **What this does not show.** Tasks switch at calls of the os only: accesses to atomics between two calls are not
//! interleaved, and weak memory orders are not tried. Code that waits by other means (a `std` mutex that is held
//! across a call) stops the whole system.

mod deadlock;
mod kernel;
mod random;

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::Builder;

use punctual_units::{Clock, Nanos, Time};

pub use deadlock::{Deadlock, DeadlockReason};
use kernel::Kernel;
pub use kernel::{CALLS_PER_INSTANT_MAX, THREADS_MAX};
use punctual_os::{Lock, Os, Park, Refusal, Scheduling, Thread, Tid, Wake};

/// A virtual operating system. The thread that makes it is its first task; [`Os::together`] starts more.
///
/// ```
/// use punctual_os::{Lock, Os, Thread};
/// use punctual_testing::VirtualOs;
/// use punctual_units::{Clock, Nanos, Time};
/// let os = VirtualOs::new(7);
/// let order = os.new_lock(Vec::new());
/// let work = |name: &'static str, seconds| {
///     let (os, order) = (&os, &order);
///     Thread::new(name, move || {
///         os.sleep(Nanos::from_secs(seconds));
///         order.lock().push(name);
///     })
/// };
/// os.together(vec![work("slow", 3600), work("quick", 60)]);
/// assert_eq!(*order.lock(), ["quick", "slow"]);
/// assert_eq!(os.now(), Time::ZERO + Nanos::from_secs(3600)); // and it took no time at all
/// ```
#[derive(Clone)]
pub struct VirtualOs {
    kernel: Arc<Kernel>,
    seed: u64,
}

impl VirtualOs {
    /// A system whose decisions follow from `seed`, at [`Time::ZERO`].
    pub fn new(seed: u64) -> VirtualOs {
        VirtualOs {
            kernel: Arc::new(Kernel::new(seed)),
            seed,
        }
    }

    /// The seed it was made with.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Lets `span` pass, as [`Os::sleep`] does; for a test that names the clock.
    pub fn advance(&self, span: Nanos) {
        self.sleep(span);
    }

    /// Suspends the machine for `span`: the clock of ages goes on, the other does not.
    pub fn suspend(&self, span: Nanos) {
        self.kernel.set_on(span.0 as i64);
    }

    /// Puts the system into a time namespace whose clock of ages is `nanos` ahead of the other, or behind it. Before
    /// any instant is read.
    pub fn in_time_namespace(self, nanos: i64) -> VirtualOs {
        self.kernel.set_on(nanos);
        self
    }

    /// The real-time priority that `thread` runs with: its own, or the highest among the threads that wait for its
    /// locks; 0 for a thread that has ended.
    pub fn runs_as(&self, thread: Tid) -> u8 {
        self.kernel.runs_as(thread)
    }

    /// A number that depends on every decision so far: two runs of equal digests took the same turns at the same
    /// instants.
    pub fn digest(&self) -> u64 {
        self.kernel.digest()
    }

    /// Why the run was stopped, if it was.
    pub fn deadlock(&self) -> Option<Deadlock> {
        self.kernel.deadlock()
    }
}

/// Runs `body` once on a virtual system for each seed.
///
/// # Panics
/// If `body` does, with the seed before its message.
pub fn explore(seeds: Range<u64>, body: impl Fn(&VirtualOs)) {
    for seed in seeds {
        let os = VirtualOs::new(seed);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(&os))) {
            panic!("seed {seed}: {}", deadlock::message(&*panic));
        }
    }
}

impl fmt::Debug for VirtualOs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtualOs(at {})", self.now().since(Time::ZERO))
    }
}

impl Clock for VirtualOs {
    fn now(&self) -> Time {
        self.kernel.now()
    }

    fn since_boot(&self) -> Time {
        self.kernel.since_boot()
    }
}

impl Os for VirtualOs {
    type Lock<T: Send> = VirtualLock<T>;
    type Parker = VirtualParker;

    fn new_lock<T: Send>(&self, data: T) -> VirtualLock<T> {
        VirtualLock {
            kernel: Arc::clone(&self.kernel),
            id: self.kernel.number(),
            data: UnsafeCell::new(data),
        }
    }

    fn new_parker(&self) -> VirtualParker {
        VirtualParker {
            kernel: Arc::clone(&self.kernel),
            id: self.kernel.number(),
        }
    }

    fn sleep_until(&self, wake: Time) {
        self.kernel.sleep_until(wake);
    }

    fn this_thread(&self) -> Tid {
        self.kernel.this_thread()
    }

    fn scheduling(&self, thread: Tid) -> Result<Scheduling, Refusal> {
        self.kernel.scheduling(thread)
    }

    fn set_scheduling(&self, thread: Tid, scheduling: Scheduling) -> Result<(), Refusal> {
        self.kernel.set_scheduling(thread, scheduling)
    }

    fn together<'t>(&self, threads: Vec<Thread<'t>>) {
        let names = threads.iter().map(|thread| thread.name.clone()).collect();
        let tasks = self.kernel.enlist(names);
        let outcomes: Vec<std::thread::Result<()>> = std::thread::scope(|scope| {
            let kernel = &*self.kernel;
            let start = |(thread, task): (Thread<'t>, Tid)| {
                let Thread { name, body } = thread;
                let run = move || kernel.run(task, body);
                Builder::new().name(name).spawn_scoped(scope, run).map_err(|refused| {
                    kernel.end(task); // it never began
                    Box::new(format!("a thread was not started: {refused}")) as Box<_>
                })
            };
            let running: Vec<_> = threads.into_iter().zip(tasks).map(start).collect();
            kernel.wait_for_children();
            let outcome = |thread: Result<std::thread::ScopedJoinHandle<'_, ()>, _>| thread?.join();
            running.into_iter().map(outcome).collect()
        });
        if let Some(panic) = outcomes.into_iter().find_map(Result::err) {
            self.kernel.pass_on_panic(panic);
        }
    }
}

/// The virtual system's lock.
pub struct VirtualLock<T> {
    kernel: Arc<Kernel>,
    id: u64,
    data: UnsafeCell<T>,
}

// SAFETY: the lock hands `T` from thread to thread, one at a time; that asks `T: Send` and nothing more.
unsafe impl<T: Send> Sync for VirtualLock<T> {}

impl<T: Send> Lock<T> for VirtualLock<T> {
    type Guard<'l>
        = VirtualGuard<'l, T>
    where
        Self: 'l;

    fn lock(&self) -> VirtualGuard<'_, T> {
        self.kernel.lock(self.id);
        self.guard()
    }

    fn try_lock(&self) -> Option<VirtualGuard<'_, T>> {
        self.kernel.try_lock(self.id).then(|| self.guard())
    }
}

impl<T> VirtualLock<T> {
    fn guard(&self) -> VirtualGuard<'_, T> {
        VirtualGuard {
            lock: self,
            not_send: PhantomData,
        }
    }
}

/// Access to what a [`VirtualLock`] protects; unlocks when dropped.
#[must_use = "dropping the guard unlocks at once"]
pub struct VirtualGuard<'l, T> {
    lock: &'l VirtualLock<T>,
    /// The task that locked is the one that unlocks.
    not_send: PhantomData<*const ()>,
}

impl<T> Deref for VirtualGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, and the kernel gives it to one task at a time.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T> DerefMut for VirtualGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T> Drop for VirtualGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.kernel.unlock(self.lock.id);
    }
}

/// The virtual system's parking place.
pub struct VirtualParker {
    kernel: Arc<Kernel>,
    id: u64,
}

impl Park for VirtualParker {
    fn park_until(&self, deadline: Time) -> Wake {
        self.kernel.park_until(self.id, deadline)
    }

    fn unpark(&self) {
        self.kernel.unpark(self.id);
    }
}

impl Drop for VirtualParker {
    fn drop(&mut self) {
        self.kernel.forget_place(self.id);
    }
}

impl Kernel {
    /// The life of the thread that is `task`.
    fn run(&self, task: Tid, body: Box<dyn FnOnce() + Send + '_>) {
        self.begin(task);
        let outcome = catch_unwind(AssertUnwindSafe(body));
        self.end(task);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    }
}
