//! Waits on a word, and wakes the waiting thread (futex(2)).

use std::ptr;
use std::sync::atomic::AtomicU32;

use punctual_units::{Nanos, Time};

use super::clock::timespec;

/// Sleeps while `word` holds `expected`, at most until `deadline`; returns whether the deadline has passed. May wake
/// spuriously.
pub(super) fn wait(word: &AtomicU32, expected: u32, deadline: Time) -> bool {
    let until = timespec(Nanos(deadline.0));
    let until = if deadline == Time::MAX { ptr::null() } else { &until };
    // SAFETY: the word outlives the call, `until` is null or valid; the kernel only reads them. WAIT_BITSET is the
    // operation whose timeout is absolute, on CLOCK_MONOTONIC (futex(2)).
    let answer = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            expected,
            until,
            ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY as u32,
        )
    };
    answer < 0 && super::last_error().raw_os_error() == Some(libc::ETIMEDOUT)
}

/// Wakes the thread that sleeps on `word`, if any.
pub(super) fn wake_one(word: &AtomicU32) {
    let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel uses the address only to find the threads that sleep on it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wake, 1) };
}
