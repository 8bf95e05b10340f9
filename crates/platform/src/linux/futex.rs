//! Waits for a word that several processes share (futex(2)).

use std::sync::atomic::AtomicU32;

use punctual_os::linux::timespec;
use punctual_units::Nanos;

/// Waits until another thread wakes this one, a signal comes, or `at_most` is over. Returns at once if `word` is not
/// `expected` any more. May return without a reason: check the word again.
pub fn wait(word: &AtomicU32, expected: u32, at_most: Option<Nanos>) {
    let timeout = at_most.map(timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word lives as long as the call, and the time is valid or missing.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, timeout) };
}

/// Wakes all threads that wait for `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the word lives as long as the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
