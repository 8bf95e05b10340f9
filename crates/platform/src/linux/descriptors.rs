//! Waits for descriptors (poll(2)).

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

pub(super) use punctual_os::linux::poll_entry;
use punctual_os::linux::timespec;
use punctual_units::Nanos;

use super::last_error;

/// Calls ppoll(2), with `at_most` as the longest wait.
pub(super) fn poll(polled: &mut [libc::pollfd], at_most: Option<Nanos>) -> libc::c_int {
    let left = at_most.map(timespec);
    let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the list is as long as said, and the time is valid or null.
    unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, left, ptr::null()) }
}

/// Makes reads and writes of the descriptor non-blocking.
pub(super) fn unblock(fd: &impl AsRawFd) -> io::Result<()> {
    let fd = fd.as_raw_fd();
    // SAFETY: no memory is passed.
    let set = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) >= 0
    };
    if set { Ok(()) } else { Err(last_error()) }
}
