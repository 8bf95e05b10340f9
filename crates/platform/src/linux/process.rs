//! Processes: children that end with their parent, and notice of their end.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use punctual_custody::stat;
use punctual_os::linux::thread::process_cpu_time_of;
use punctual_units::Nanos;

use super::descriptors::{poll, poll_entry};
use super::last_error;

/// A process, distinguished from a later one of the same number by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    /// The number (pid) of the process.
    pub pid: i32,
    /// Start time of the process, in ticks since boot.
    pub started: u64,
}

impl ProcessId {
    /// The process that has this number now; `None` if there is none.
    pub fn of(pid: i32) -> Option<ProcessId> {
        let (ended, started) = stat::of(pid)?;
        (!ended).then_some(ProcessId { pid, started })
    }

    /// The identity of the calling process.
    pub fn own() -> ProcessId {
        let pid = std::process::id() as i32;
        ProcessId::of(pid).unwrap_or(ProcessId { pid, started: 0 })
    }

    /// Whether the process still runs; false if its number was reused.
    pub fn lives(self) -> bool {
        ProcessId::of(self.pid) == Some(self)
    }

    /// A descriptor that becomes readable when the process ends (pidfd_open(2)); `None` if it has ended.
    pub fn watch(self) -> Option<OwnedFd> {
        // SAFETY: plain numbers; a new descriptor is ours.
        let watch = unsafe {
            match libc::syscall(libc::SYS_pidfd_open, self.pid, 0) {
                fd if fd >= 0 => OwnedFd::from_raw_fd(fd as i32),
                _ => return None,
            }
        };
        // Checked after the descriptor exists: it then belongs to this process, not to a later one.
        self.lives().then_some(watch)
    }

    /// Kills the process; returns whether it was still there.
    pub fn kill(self) -> bool {
        let Some(watch) = self.watch() else { return false };
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and no further information is sent.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, watch.as_raw_fd(), libc::SIGKILL, none, 0) };
        sent == 0
    }

    /// Waits until the process has ended, `at_most` that long; returns whether it has.
    pub fn wait_gone(self, at_most: Nanos) -> bool {
        let Some(watch) = self.watch() else { return true };
        poll(&mut [poll_entry(watch.as_raw_fd(), libc::POLLIN)], Some(at_most)) > 0
    }
}

/// Waits until one of these descriptors is readable, for `at_most`.
pub fn wait_any(watched: &[&OwnedFd], at_most: Nanos) {
    let entry = |watched: &&OwnedFd| poll_entry(watched.as_raw_fd(), libc::POLLIN);
    let mut entries: Vec<_> = watched.iter().map(entry).collect();
    poll(&mut entries, Some(at_most));
}

/// Makes the kernel kill this process when the thread that started it ends; `parent` is that thread's process. If the
/// parent has ended already, this process ends now.
pub fn die_with(parent: i32) {
    // SAFETY: plain numbers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
    }
}

/// Makes this process, and those that it starts, ignore Ctrl-C, SIGTERM and SIGHUP: a terminal or a service manager
/// sends them to all processes of a program, and the first one ends the others in order. With [`die_with`] they still
/// end with it.
pub fn leave_signals_to_parent() {
    pass_over(libc::SIGINT);
    pass_over(libc::SIGTERM);
    pass_over(libc::SIGHUP);
}

/// Makes this process, and those that it starts, ignore a signal.
fn pass_over(signal: libc::c_int) {
    // SAFETY: no handler is set; a process that ignores a signal goes on.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Forks this process; returns the child's number, and `None` in the child.
///
/// # Safety
/// This process must have one thread. The child inherits everything, and must not return from the caller's `main`.
///
/// # Errors
/// The kernel's error, for example for too many processes.
pub unsafe fn fork() -> io::Result<Option<i32>> {
    // SAFETY: by contract.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        child if child > 0 => Ok(Some(child)),
        _ => Err(last_error()),
    }
}

/// Stands for the number of this process.
pub const OWN: i32 = 0;

/// CPU time of all threads of a process, by its CPU clock (clock_getcpuclockid(3)); `None` if there is no such process.
/// [`OWN`]: this process.
pub fn cpu_time(pid: i32) -> Option<Nanos> {
    process_cpu_time_of(u32::try_from(pid).ok()?)
}

/// Resident memory of a process in bytes, shared pages included (/proc/PID/statm); `None` if there is no such process.
pub fn resident_bytes(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: a plain number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * page.max(0) as u64)
}

/// Ends this process at once, without destructors.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends this process.
    unsafe { libc::_exit(code) }
}

/// Ends this process as if another one had killed it (`SIGKILL`).
pub fn kill_now() -> ! {
    loop {
        // SAFETY: sends a signal to this process, which it does not survive.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

/// The end of a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildExit {
    /// The number (pid) of the child.
    pub pid: i32,
    /// The child's exit code; `None` if a signal killed it.
    pub code: Option<i32>,
    /// CPU time that the child used.
    pub ran: Nanos,
}

/// Collects a child of this process that has ended; `None` if there is none.
pub fn reap() -> Option<ChildExit> {
    let mut status = 0;
    // SAFETY: all zeros is a valid account, and status and account are valid rooms.
    let (pid, used) = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        (libc::wait4(-1, &mut status, libc::WNOHANG, &mut used), used)
    };
    let span = |time: libc::timeval| Nanos::from_secs(time.tv_sec as u64) + Nanos::from_micros(time.tv_usec as u64);
    (pid > 0).then(|| ChildExit {
        pid,
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        ran: span(used.ru_utime) + span(used.ru_stime),
    })
}

static ENDED: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// Counts ended children in `word`, from the signal handler. A thread that waits for the word is interrupted, and one
/// that is about to wait sees the new count.
pub fn count_ended_children(word: &'static AtomicU32) {
    extern "C" fn ended(_: libc::c_int) {
        let word = ENDED.load(Ordering::Acquire);
        // SAFETY: set below to a word that is never freed.
        if let Some(word) = unsafe { word.as_ref() } {
            word.fetch_add(1, Ordering::SeqCst);
        }
    }
    ENDED.store(std::ptr::from_ref(word).cast_mut(), Ordering::Release);
    let handler: extern "C" fn(libc::c_int) = ended;
    // SAFETY: an all-zero action is valid; the handler makes one atomic addition.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_NOCLDSTOP;
        libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut());
    }
}
