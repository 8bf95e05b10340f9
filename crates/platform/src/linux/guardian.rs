//! The guardian: a small process that puts the machine back when the one it watches was killed.
//!
//! **Problem.** A killed process (SIGKILL, abort, out of memory) runs no destructor, and a CPU left at 400 MHz stays
//! there. **Method.** A child, forked when the journal is opened, sleeps until the process is gone: it
//! holds the read end of a pipe whose only write end is the process's, and a pidfd of the process. The byte `DONE`
//! through the pipe is a clean farewell; its end without that byte, or the pidfd, means death: then the guardian
//! undoes what is pending in the shared table (`undo.rs`), newest first, and exits.
//!
//! Choices, and what they avoid:
//! - *Forked, not executed.* A helper program would have to be installed, and found, beside every program that embeds
//!   us. The price is that the child may only make plain system calls (see `undo.rs`), and that it shares the
//!   parent's memory copy-on-write: the parent's first write to each page that exists at the fork is a page fault.
//!   So open the journal early, before data are loaded and before memory is locked (`mlockall` then takes the faults).
//! - *Twice forked.* The guardian is no child of the process, whose own `wait` calls never meet it.
//! - *A pidfd beside the pipe.* A child that the process forked without executing holds a copy of the write end and
//!   would hide its death. Kernels before 5.3 have no pidfd; there the guardian waits for such children too.
//! - *The changes in shared memory, not sent through the pipe.* Registering one is a store, cannot block and needs no
//!   answer.
//! - *A session of its own, all signals blocked, no files open, ordinary scheduling on all cores, at `/`.* Ctrl-C, a
//!   closed terminal and `kill` of the process group pass it by; it holds no pipe of the parent open and no mount busy.
//!
//! What it cannot do: survive a SIGKILL of its own (a cgroup that is killed as a whole), or regain rights that the
//! process had given up before the journal was opened.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::undo::Table;
use super::{last_error, refused};
use crate::Refusal;

/// The farewell of a process that has put everything back itself.
const DONE: &[u8] = b"D";
/// What `ps -o comm` shows; 15 bytes at most (prctl(2)).
const NAME: &std::ffi::CStr = c"punctual-guard";
/// Descriptors closed one by one on kernels without close_range (before 5.9).
const FDS_MAX: libc::c_int = 65_536;

/// The process's end of the line to its guardian.
#[derive(Debug)]
pub(super) struct Guardian {
    pipe: OwnedFd,
}

impl Guardian {
    /// Starts a guardian over `table`, which stays mapped for as long as this process lives.
    pub(super) fn start(table: &Table) -> Result<Guardian, Refusal> {
        let refusal = |why: std::io::Error| {
            refused(
                "starting the guardian that puts the machine back after a kill",
                why,
                "raise the limits on processes and open files (ulimit -u, ulimit -n)",
            )
        };
        let (read_end, write_end) = pipe().map_err(refusal)?;
        let process = pidfd_of_this_process();
        let blocked = SignalsBlocked::new(); // the guardian inherits the mask: no signal ever finds it unprepared
        // SAFETY: the child calls nothing but `become_guardian`, which makes plain system calls and never returns.
        let child = unsafe { libc::fork() };
        if child == 0 {
            become_guardian(
                table,
                read_end.as_raw_fd(),
                process.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            );
        }
        let why = last_error();
        drop(blocked);
        if child < 0 {
            return Err(refusal(why));
        }
        // The first child exits at once; another thread's `wait` may have got it before us, which is as well.
        // SAFETY: no status is asked for.
        while unsafe { libc::waitpid(child, ptr::null_mut(), 0) } < 0
            && last_error().raw_os_error() == Some(libc::EINTR)
        {}
        Ok(Guardian { pipe: write_end })
    }

    /// Whether the guardian is still there.
    pub(super) fn watching(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.pipe.as_raw_fd(),
            events: 0,
            revents: 0,
        };
        // SAFETY: one valid entry. A pipe without a reader reports POLLERR on its write end (poll(2)).
        unsafe { libc::poll(&mut poll, 1, 0) };
        poll.revents & libc::POLLERR == 0
    }

    /// Says farewell: everything has been put back. Dropping the guardian without it makes it undo what is pending.
    pub(super) fn dismiss(self) {
        // A pipe without a reader would answer with SIGPIPE.
        if self.watching() {
            // SAFETY: the byte is valid.
            unsafe { libc::write(self.pipe.as_raw_fd(), DONE.as_ptr().cast(), DONE.len()) };
        }
    }
}

fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // Closed on exec, so that programs which the process starts do not keep the pipe alive.
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return Err(last_error());
    }
    // SAFETY: both are new and ours.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

fn pidfd_of_this_process() -> Option<OwnedFd> {
    // SAFETY: plain numbers; a new descriptor is ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Blocks all signals of this thread while it lives.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
        // SAFETY: both sets are initialised by the calls that fill them.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut found: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut found);
            SignalsBlocked(found)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled in by `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

/// The life of the guardian, from the fork on. `extern "C"`, so that a panic would abort here instead of unwinding
/// into a copy of the parent's stack.
extern "C" fn become_guardian(table: &Table, pipe: RawFd, process: RawFd) -> ! {
    // SAFETY: plain system calls on descriptors that this process owns; it has one thread and no destructors to run.
    unsafe {
        if libc::fork() != 0 {
            libc::_exit(0);
        }
        leave_the_parent(pipe, process);
    }
    // A negative descriptor is skipped by poll.
    if wait_for_the_end(PIPE, if process < 0 { -1 } else { PROCESS }) == End::Died {
        table.undo_all(|_| true, |_, _| {}); // no caller is left to tell
    }
    // SAFETY: ends this process.
    unsafe { libc::_exit(0) }
}

/// The numbers that the guardian's only descriptors get.
const PIPE: RawFd = 0;
const PROCESS: RawFd = 1;

/// Cuts every tie to the parent but the pipe and the pidfd.
///
/// # Safety
/// Closes every other descriptor: for a process of its own only.
unsafe fn leave_the_parent(pipe: RawFd, process: RawFd) {
    // SAFETY: plain system calls; the affinity mask and the priority are valid for their sizes.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        libc::chdir(c"/".as_ptr());
        let ordinary = libc::sched_param { sched_priority: 0 };
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &ordinary);
        let everywhere = [0xffu8; size_of::<libc::cpu_set_t>()];
        libc::sched_setaffinity(0, everywhere.len(), everywhere.as_ptr().cast());

        // Via numbers above both targets, because the parent may run without standard streams, and these be 0 or 1.
        let high_pipe = libc::fcntl(pipe, libc::F_DUPFD_CLOEXEC, 3);
        let high_process = libc::fcntl(process, libc::F_DUPFD_CLOEXEC, 3);
        libc::dup2(high_pipe, PIPE);
        libc::dup2(high_process, PROCESS);
        if libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0) != 0 {
            for fd in 2..FDS_MAX {
                libc::close(fd);
            }
        }
    }
}

#[derive(PartialEq)]
enum End {
    Farewell,
    Died,
}

/// Sleeps until the process says farewell or is gone.
fn wait_for_the_end(pipe: RawFd, process: RawFd) -> End {
    loop {
        let watch = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut line = [watch(pipe), watch(process)];
        // SAFETY: two valid entries.
        unsafe { libc::poll(line.as_mut_ptr(), 2, -1) };
        let died = line[1].revents & libc::POLLIN != 0;
        let mut byte = 0u8;
        // The farewell comes first: a process may say it and exit before we look.
        // SAFETY: one valid byte; the pipe does not block.
        match unsafe { libc::read(pipe, (&raw mut byte).cast(), 1) } {
            1 => return End::Farewell,
            0 => return End::Died, // the last write end is closed
            _ if died => return End::Died,
            _ => {} // woken for nothing
        }
    }
}
