//! Write locks on bytes of a file (fcntl(2)), which the kernel drops with their holder.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A write lock on the whole of a file.
pub(super) fn whole() -> libc::flock {
    // SAFETY: plain numbers, for which zero is a valid value; a length of 0 means up to the end.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = libc::F_WRLCK as libc::c_short;
    whole.l_whence = libc::SEEK_SET as libc::c_short;
    whole
}

/// Sets a lock by `F_SETLK` or `F_OFD_SETLK`; false if another holder is in the way.
pub(super) fn set(file: &File, command: libc::c_int, lock: &libc::flock) -> io::Result<bool> {
    // SAFETY: the descriptor is open, and `lock` is valid for the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, lock) } == 0 {
        return Ok(true);
    }
    let refused = io::Error::last_os_error();
    match refused.raw_os_error() {
        Some(libc::EACCES | libc::EAGAIN) => Ok(false),
        _ => Err(refused),
    }
}

/// The process in the way of a lock, 0 where the kernel does not name it; `None` if the lock is free.
pub(super) fn holder(file: &File, mut lock: libc::flock) -> io::Result<Option<libc::pid_t>> {
    // SAFETY: the descriptor is open, and `lock` is valid for the call, which writes to it.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut lock) } {
        0 => Ok((lock.l_type != libc::F_UNLCK as libc::c_short).then_some(lock.l_pid)),
        _ => Err(io::Error::last_os_error()),
    }
}
