//! The store's write lock: one holder at a time, earliest deadline first, without priority inversion, with bounded
//! waits.
//!
//! **Problem.** An engine has a write lock of its own. It serves the thread that the kernel wakes first, knows no
//! deadline, has no bound for a wait, and lets a low-priority holder that lost its core block the most urgent job
//! (priority inversion).
//!
//! **Method.** The store's lock, whose guard is a `Permit`, stands in front of the engine's and is granted to the
//! caller's own thread, so no transaction changes threads. Waiting threads line up by deadline ([`WaitQueue`]); each
//! sleeps on a word of its own until an absolute instant. On release the lock passes directly to the next in line: no
//! thread barges in, and the wait is bounded by those before it. While a thread of higher priority waits, the holder
//! runs with that thread's scheduling (priority inheritance as in L. Sha, R. Rajkumar and J. P. Lehoczky, "Priority
//! Inheritance Protocols", IEEE Trans. Computers 39(9), 1990), and gets its own back when it releases. Only real-time
//! priorities are inherited. A thread under `SCHED_DEADLINE` lends the highest of them, because its own runtime and
//! period cannot be lent. A waiter that times out leaves the boost in place until the release: at worst the holder
//! hurries.
//!
//! **Threads without a deadline** come after all others, and yet get one of [`ORDINARY_EVERY`] turns while one of them
//! waits, the longest waiting first: otherwise writers with deadlines that keep the lock busy would stop them for good.
//!
//! The queue itself is guarded by a mutex with priority inheritance, held for a few dozen instructions; when a boost is
//! due, for the system calls of the boost as well, because the holder must not change in between. Uncontended,
//! acquiring and releasing the lock make no system call.

mod granting;
mod queue;
#[cfg(all(test, target_os = "linux"))]
mod tests;

/// The types that `granting.rs` needs: the model checker substitutes its own (`tests/permit.rs`).
mod atomics {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}

pub use granting::{Denied, HeldBy, Permit, PermitQueue, WaitedFor};
pub use queue::{ORDINARY_EVERY, Ticket, WAITERS_MAX, WaitQueue};
