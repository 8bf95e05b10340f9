//! Granting of the write lock, and the wait for it.
//!
//! The model checker `loom` tries every order of the stores to memory (`tests/permit.rs`), with planted faults.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

use punctual_os::{Lock, Os, Park, Refusal, Scheduling, Tid, Wake};
use punctual_units::{Nanos, Time};

use super::atomics::{AtomicU64, Ordering};
use super::queue::{Ticket, WAITERS_MAX, WaitQueue};

/// Reason for which the lock was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The wait reached its bound while this thread held the lock.
    TimedOut(HeldBy),
    /// [`WAITERS_MAX`] threads are waiting already.
    Crowded,
    /// The calling thread holds the lock, and would wait for itself.
    Nested,
}

/// The thread that holds the write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBy {
    /// Kernel thread id of the holder.
    pub thread: Tid,
    /// Time since the lock was granted to it.
    pub held: Nanos,
    /// The thread that kept the waiter longest: this one, or an earlier holder.
    pub longest: WaitedFor,
}

/// The thread that kept a waiter waiting: the holder whose turn took the most of the wait. A thread with several
/// shorter turns may have had more of it in sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitedFor {
    /// Kernel thread id of that holder.
    pub thread: Tid,
    /// Time for which it held the lock during the wait.
    pub held: Nanos,
    /// The part of that time from the start of its commit on; `None` if it still held the lock.
    pub committing: Option<Nanos>,
}

/// The write lock and its waiting threads.
///
/// ```
/// use punctual_os::{Os, Thread};
/// use punctual_store::permit::{Denied, PermitQueue};
/// use punctual_testing::VirtualOs;
/// use punctual_units::{Clock, Nanos, Time};
/// let os = VirtualOs::new(1);
/// let queue = PermitQueue::new(os.clone());
/// let permit = queue.acquire(Time(1_000), Time::MAX).unwrap();
/// let until = os.now() + Nanos::from_millis(1);
/// let asks = || assert!(matches!(queue.acquire(Time(500), until), Err(Denied::TimedOut(_))));
/// os.together(vec![Thread::new("asks", asks)]);
/// drop(permit);
/// ```
pub struct PermitQueue<O: Os> {
    os: O,
    pub(super) state: O::Lock<State>,
    places: Box<[WaitSlot<O::Parker>]>,
    refusal: OnceLock<Refusal>,
}

/// A slot in which one thread waits for its turn.
struct WaitSlot<P> {
    parker: P,
    /// The last ticket whose turn came while its owner waited here. A wake-up can come late and be meant for an earlier
    /// owner of the slot; this number tells them apart.
    called: AtomicU64,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) holder: Option<Holder>,
    pub(super) queue: WaitQueue<Waiter>,
    pub(super) free_places: Vec<u16>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    thread: Tid,
    scheduling: Option<Scheduling>,
    place: u16,
    since: Time,
    /// The thread that has held the lock longest during the wait, of those that have released it.
    longest: Option<WaitedFor>,
}

impl Waiter {
    /// Updates `longest`: `holder` releases the lock at `now`, and has been committing since `commits`, if it has begun
    /// to.
    fn outlived(&mut self, holder: &Holder, commits: Option<Time>, now: Time) {
        let from = holder.since.max(self.since);
        let held = now.since(from);
        if self.longest.is_none_or(|longest| held > longest.held) {
            self.longest = Some(WaitedFor {
                thread: holder.thread,
                held,
                committing: Some(commits.map_or(Nanos::ZERO, |began| now.since(from.max(began)))),
            });
        }
    }
}

#[derive(Debug)]
pub(super) struct Holder {
    thread: Tid,
    since: Time,
    /// Present scheduling of the thread; read once a waiter needs it.
    runs_as: Option<Scheduling>,
    /// Scheduling before the boost; `None` without a boost.
    own: Option<Scheduling>,
    waited_for: Option<WaitedFor>,
}

/// Guard of the write lock; dropping it passes the lock on. Bound to its thread, whose priority may be raised.
#[must_use = "dropping the permit passes it on"]
pub struct Permit<'q, O: Os> {
    queue: &'q PermitQueue<O>,
    place: Option<u16>,
    /// Instant at which the holder began to commit.
    commits: Cell<Option<Time>>,
    _bound_to_thread: PhantomData<*const ()>,
}

impl<O: Os> PermitQueue<O> {
    /// A free lock, for threads of `os`.
    pub fn new(os: O) -> Self {
        let free_places = (0..WAITERS_MAX as u16).collect();
        let place = |_| WaitSlot {
            parker: os.new_parker(),
            called: AtomicU64::new(0),
        };
        PermitQueue {
            state: os.new_lock(State {
                holder: None,
                queue: WaitQueue::default(),
                free_places,
            }),
            places: (0..WAITERS_MAX).map(place).collect(),
            refusal: OnceLock::new(),
            os,
        }
    }

    /// Acquires the lock, after all threads that wait with an earlier or the same `deadline`; times out at `until`, an
    /// instant of the system's clock ([`Time::MAX`]: never). A thread without a deadline ([`Time::MAX`]) is served
    /// last, but in at least one of [`ORDINARY_EVERY`](super::ORDINARY_EVERY) turns.
    ///
    /// # Errors
    /// [`Denied`]: this thread does not hold the lock and does not wait any more.
    #[inline]
    pub fn acquire(&self, deadline: Time, until: Time) -> Result<Permit<'_, O>, Denied> {
        match self.try_acquire(self.os.now()) {
            Some(permit) => Ok(permit),
            None => self.wait(deadline, until),
        }
    }

    /// Acquires the lock if it is free; the hold counts from `now`.
    #[inline]
    pub fn try_acquire(&self, now: Time) -> Option<Permit<'_, O>> {
        let mut state = self.state.lock();
        // While the lock is free no thread waits for it: a release passes it on.
        if state.holder.is_some() {
            return None;
        }
        state.holder = Some(Holder {
            thread: self.os.this_thread(),
            since: now,
            runs_as: None,
            own: None,
            waited_for: None,
        });
        Some(self.permit(None))
    }

    /// The refusal of the first attempt to inherit a priority; `None` if none was refused.
    #[cfg(test)]
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.get()
    }

    fn permit(&self, place: Option<u16>) -> Permit<'_, O> {
        Permit {
            queue: self,
            place,
            commits: Cell::new(None),
            _bound_to_thread: PhantomData,
        }
    }

    #[cold]
    fn wait(&self, deadline: Time, until: Time) -> Result<Permit<'_, O>, Denied> {
        let thread = self.os.this_thread();
        let scheduling = self.os.scheduling_to_lend(thread).ok(); // before the lock: it is a system call
        let Some((ticket, place)) = self.line_up(deadline, thread, scheduling)? else {
            return Ok(self.permit(None)); // released meanwhile
        };
        let seat = &self.places[place as usize];
        loop {
            let wake = seat.parker.park_until(until);
            if seat.called.load(Ordering::Acquire) == ticket.0 {
                return Ok(self.permit(Some(place)));
            }
            if wake == Wake::TimedOut {
                let mut state = self.state.lock();
                let Some(waiter) = state.queue.remove(ticket) else {
                    return Ok(self.permit(Some(place))); // its turn came with the timeout
                };
                state.free_places.push(place);
                let Some(Holder { thread, since, .. }) = state.holder else {
                    unreachable!("no thread waits for a permit that none holds: a release passes it on");
                };
                let now = self.os.now();
                let last = WaitedFor {
                    thread,
                    held: now.since(since.max(waiter.since)),
                    committing: None, // only the holder knows
                };
                let longest = waiter.longest.filter(|longest| longest.held > last.held);
                return Err(Denied::TimedOut(HeldBy {
                    thread,
                    held: now.since(since),
                    longest: longest.unwrap_or(last),
                }));
            }
        }
    }

    /// Queues the thread and returns its ticket and slot; `None` if the lock was free and is acquired now.
    fn line_up(
        &self,
        deadline: Time,
        thread: Tid,
        scheduling: Option<Scheduling>,
    ) -> Result<Option<(Ticket, u16)>, Denied> {
        let mut state = self.state.lock();
        let State {
            holder: Some(holder),
            queue,
            free_places,
        } = &mut *state
        else {
            state.holder = Some(Holder {
                thread,
                since: self.os.now(),
                runs_as: scheduling,
                own: None,
                waited_for: None,
            });
            return Ok(None);
        };
        if holder.thread == thread {
            return Err(Denied::Nested);
        }
        let place = free_places.pop().ok_or(Denied::Crowded)?;
        let Some(ticket) = queue.push(
            deadline,
            Waiter {
                thread,
                scheduling,
                place,
                since: self.os.now(),
                longest: None,
            },
        ) else {
            free_places.push(place);
            return Err(Denied::Crowded);
        };
        self.inherit(holder, scheduling);
        Ok(Some((ticket, place)))
    }

    /// Runs the holder with the waiter's scheduling, if that has the higher priority.
    fn inherit(&self, holder: &mut Holder, waiter: Option<Scheduling>) {
        let Some(waiter) = waiter.filter(|waiter| waiter.rank() > 0) else {
            return;
        };
        if self.refusal.get().is_some() {
            return;
        }
        holder.runs_as = holder.runs_as.or_else(|| self.os.scheduling(holder.thread).ok());
        let Some(current) = holder.runs_as.filter(|current| current.rank() < waiter.rank()) else {
            return;
        };
        match self.os.set_scheduling(holder.thread, waiter) {
            Ok(()) => {
                holder.own.get_or_insert(current);
                holder.runs_as = Some(waiter);
            }
            Err(refusal) => self.refusal.set(refusal).unwrap_or(()), // the first one is kept
        }
    }

    fn release(&self, place: Option<u16>, commits: Option<Time>) {
        let (next, own) = {
            let mut state = self.state.lock();
            state.free_places.extend(place);
            let holder = state.holder.take();
            let now = state.queue.iter().next().map(|_| self.os.now());
            if let Some((now, holder)) = now.zip(holder.as_ref()) {
                let waiters = state.queue.iter_mut();
                waiters.for_each(|waiter| waiter.outlived(holder, commits, now));
            }
            let own = holder.and_then(|holder| holder.own);
            let next = state.queue.pop();
            if let Some(((ticket, waiter), now)) = next.zip(now) {
                let mut holder = Holder {
                    thread: waiter.thread,
                    since: now,
                    runs_as: waiter.scheduling,
                    own: None,
                    waited_for: waiter.longest,
                };
                // Deadlines order the queue, priorities do not: a thread further behind may have the higher priority.
                let highest = state
                    .queue
                    .iter()
                    .filter_map(|waiter| waiter.scheduling)
                    .max_by_key(|scheduling| scheduling.rank());
                self.inherit(&mut holder, highest);
                state.holder = Some(holder);
                self.places[waiter.place as usize]
                    .called
                    .store(ticket.0, Ordering::Release);
            }
            (next, own)
        };
        // Wakes outside of the mutex, so that the woken thread need not wait for it, and before this thread drops its
        // boost: otherwise it could lose its core with the wake-up undone.
        if let Some((_, waiter)) = next {
            self.places[waiter.place as usize].parker.unpark();
        }
        if let Some(own) = own
            && let Err(refusal) = self.os.set_scheduling(self.os.this_thread(), own)
        {
            self.refusal.set(refusal).unwrap_or(());
        }
    }
}

impl<O: Os> PermitQueue<O> {
    /// Whether the calling thread holds the lock.
    pub fn is_mine(&self) -> bool {
        let holder = &self.state.lock().holder;
        holder
            .as_ref()
            .is_some_and(|holder| holder.thread == self.os.this_thread())
    }
}

impl<O: Os> Permit<'_, O> {
    /// Whether another thread waits for the lock.
    pub fn is_wanted(&self) -> bool {
        self.queue.state.lock().queue.iter().next().is_some()
    }

    /// Whether a thread with a deadline waits for the lock.
    pub fn is_urgent(&self) -> bool {
        self.queue.state.lock().queue.has_deadline()
    }

    /// The thread that the holder waited for longest; `None` if the lock was free.
    pub fn waited_for(&self) -> Option<WaitedFor> {
        self.place?;
        self.queue.state.lock().holder.as_ref()?.waited_for
    }

    /// Records that the holder commits from `since` on, or not yet; waiters read it as `WaitedFor::committing` after
    /// the release.
    #[inline]
    pub fn commits(&self, since: Option<Time>) {
        self.commits.set(since);
    }
}

impl<O: Os> Drop for Permit<'_, O> {
    fn drop(&mut self) {
        self.queue.release(self.place, self.commits.get());
    }
}
