//! The guardian: a small process that restores the machine after the process that it watches was killed.
//!
//! **Problem.** A killed process (SIGKILL, abort, out of memory) runs no destructor, and a CPU left at 400 MHz stays
//! there. **Method.** A child, forked when the journal is opened, sleeps until the process is gone: it holds the read
//! end of a pipe whose only write end is the process's, and a pidfd of the process. The byte `DONE` through the pipe is
//! a clean farewell; its end without that byte, or the pidfd, means death: then the guardian undoes the changes that
//! the ledger records of that process, newest first, and exits. A thread of the process sleeps until the guardian dies
//! and starts another one ([`Watch`]).
//!
//! Design choices, and the problems that they avoid:
//! - *Forked, not executed.* A helper program would have to be installed, and found, beside every program that embeds
//!   us. The price is that the child may only make plain system calls (see `undo.rs`), and that it shares the
//!   parent's memory copy-on-write: the parent's first write to each page that exists at the fork is a page fault.
//!   So open the journal early, before data are loaded and before memory is locked (`mlockall` then takes the faults).
//!   Replacing a guardian that died pays that price once more: locked memory does not spare it
//!   (`examples/guardian_cost.rs` measures it).
//! - *Twice forked.* The guardian is no child of the process, so the process's own `wait` calls never see it.
//! - *A pidfd beside the pipe.* A child that the process forked without executing holds a copy of the write end and
//!   would hide the process's death. Kernels before 5.3 have no pidfd; there the guardian waits for such children too.
//! - *Changes in shared memory, not sent through the pipe.* Recording a change needs no reply.
//! - *A session of its own, all signals blocked, no files open, ordinary scheduling on all cores, at `/`.* Ctrl-C, a
//!   closed terminal and a `kill` of the process group do not reach it; it keeps no pipe of the parent open and no
//!   mount busy.
//! - *In the topmost control groups, if permitted.* A service manager kills all processes in a service's group; a
//!   guardian in that group would die with the process. If the move is refused, it stays.
//!
//! Limits: it cannot survive a SIGKILL together with the process (`recovery.rs` then restores the machine), or regain
//! rights that the process had given up before the journal was opened.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use punctual_os::Tid;
use punctual_os::linux::{poll_entry, thread::set_policy};

use super::ledger::{Handle, HolderId, Ledger};
use super::mounts::mount_points;
use super::recovery::{RUN_SOCKET, SocketName};
use super::undo::{Patience, write_file};
use super::{heirs, last_error, refused};
use crate::Refusal;

/// Farewell byte of a process that has restored everything itself.
const DONE: &[u8] = b"D";
/// Process name in `ps -o comm`; at most 15 bytes (prctl(2)).
const NAME: &std::ffi::CStr = c"punctual-guard";
/// Upper bound on descriptors closed one by one, on kernels without close_range (before 5.9).
const FDS_MAX: libc::c_int = 65_536;

/// Upper bound on replacements of dead guardians per process: more than a few deaths are no accident.
const REPLACEMENTS_MAX: u32 = 1000;
/// Pause of the watching thread between two replacements.
const REPLACEMENT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
/// Longest wait of a guardian for a process whose pipe is closed to close its sockets as well: it may live on.
const SOCKET_WAIT_MS: libc::c_int = 1000;
/// Stack of the watching thread, in bytes: small, because memory may be locked.
const WATCH_STACK: usize = 64 * 1024;
/// Upper bound on the control group hierarchies that a guardian leaves: more than the kernel has controllers.
const HIERARCHIES_MAX: usize = 32;

/// The guardian of a process, and the thread that replaces it when it dies.
#[derive(Debug)]
pub(crate) struct Watch {
    guardian: Arc<Mutex<Guardian>>,
    /// Writing to this pipe ends the thread.
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts a guardian for `holder`, and the thread that replaces it.
    pub(crate) fn start(ledger: &Arc<Ledger>, holder: HolderId) -> Result<Watch, Refusal> {
        let guardian = Arc::new(Mutex::new(Guardian::start(ledger, holder)?));
        let refusal =
            |why: std::io::Error| refused("watching the guardian", why, "raise the limit on threads (ulimit -u)");
        let (stopped, stop) = pipe().map_err(refusal)?;
        let (watched, ledger) = (Arc::clone(&guardian), Arc::clone(ledger));
        let thread = { std::thread::Builder::new() }
            .name("guard-watch".into())
            .stack_size(WATCH_STACK)
            .spawn(move || replace_until(&stopped, &watched, &ledger, holder))
            .map_err(refusal)?;
        Ok(Watch {
            guardian,
            stop,
            thread: Some(thread),
        })
    }

    /// Whether the guardian is running.
    pub(crate) fn watching(&self) -> bool {
        guardian_of(&self.guardian).watching()
    }

    /// Sends the farewell, after everything was restored. Dropping the value instead makes the guardian undo the rest.
    pub(crate) fn dismiss(mut self) {
        self.end(); // first, or the thread would replace the departing guardian
        guardian_of(&self.guardian).dismiss();
    }

    fn end(&mut self) {
        // A byte, because a child that was forked without executing may hold a copy of this end.
        // SAFETY: the byte is valid.
        unsafe { libc::write(self.stop.as_raw_fd(), DONE.as_ptr().cast(), DONE.len()) };
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

fn guardian_of(guardian: &Mutex<Guardian>) -> MutexGuard<'_, Guardian> {
    guardian.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the guardian each time that it dies, until `stopped` is readable.
fn replace_until(stopped: &OwnedFd, guardian: &Mutex<Guardian>, ledger: &Ledger, holder: HolderId) {
    for _ in 0..REPLACEMENTS_MAX {
        let line = guardian_of(guardian).pipe.as_raw_fd();
        // A pipe without a reader reports POLLERR on its write end (poll(2)), whatever is asked for.
        let mut ends = [poll_entry(stopped.as_raw_fd(), libc::POLLIN), poll_entry(line, 0)];
        // SAFETY: two valid entries.
        unsafe { libc::poll(ends.as_mut_ptr(), 2, -1) };
        if ends[0].revents != 0 {
            return;
        }
        if ends[1].revents != 0 {
            // After a refusal, the next round tries again.
            if let Ok(new) = Guardian::start(ledger, holder) {
                *guardian_of(guardian) = new;
            }
            std::thread::sleep(REPLACEMENT_PAUSE);
        }
    }
}

/// The write end of the pipe to the guardian.
#[derive(Debug)]
struct Guardian {
    pipe: OwnedFd,
}

/// The data that a guardian inherits.
struct Kit<'a> {
    ledger: Handle,
    holder: HolderId,
    pipe: RawFd,
    /// A pidfd of the process; negative where the kernel has none.
    process: RawFd,
    /// The files that move the guardian into the topmost control groups.
    groups: &'a [CString],
    /// The socket at which the process reports on its run.
    socket: Option<SocketName>,
}

impl Guardian {
    /// Starts a guardian for `holder`; the ledger must stay mapped for as long as this process lives.
    fn start(ledger: &Ledger, holder: HolderId) -> Result<Guardian, Refusal> {
        let refusal = |why: std::io::Error| {
            let what = "starting the guardian that puts the machine back after a kill";
            let remedy = "raise the limits on processes and open files (ulimit -u, ulimit -n)";
            refused(what, why, remedy)
        };
        let (read_end, write_end) = pipe().map_err(refusal)?;
        let (process, groups, socket) = (pidfd_of_this_process(), topmost_groups(), run_socket(ledger));
        let kit = Kit {
            ledger: ledger.handle(),
            holder,
            pipe: read_end.as_raw_fd(),
            process: process.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            groups: &groups,
            socket,
        };
        let blocked = SignalsBlocked::new(); // the guardian inherits the mask, so that no signal kills it early
        // SAFETY: the child calls nothing but `become_guardian`, which makes plain system calls and never returns.
        let child = unsafe { libc::fork() };
        if child == 0 {
            become_guardian(&kit);
        }
        let why = last_error();
        drop(blocked);
        if child < 0 {
            return Err(refusal(why));
        }
        // The first child exits at once; another thread's `wait` may have reaped it before us, which is harmless.
        // SAFETY: no status is asked for.
        while unsafe { libc::waitpid(child, ptr::null_mut(), 0) } < 0
            && last_error().raw_os_error() == Some(libc::EINTR)
        {}
        Ok(Guardian { pipe: write_end })
    }

    fn watching(&self) -> bool {
        let mut poll = poll_entry(self.pipe.as_raw_fd(), 0);
        // SAFETY: one valid entry. A pipe without a reader reports POLLERR on its write end (poll(2)).
        unsafe { libc::poll(&mut poll, 1, 0) };
        poll.revents & libc::POLLERR == 0
    }

    fn dismiss(&self) {
        // Writing to a pipe without a reader would raise SIGPIPE.
        if self.watching() {
            // SAFETY: the byte is valid.
            unsafe { libc::write(self.pipe.as_raw_fd(), DONE.as_ptr().cast(), DONE.len()) };
        }
    }
}

fn run_socket(ledger: &Ledger) -> Option<SocketName> {
    let name = RUN_SOCKET.join(&std::process::id().to_string());
    let path = std::path::absolute(ledger.folder()?.join(name)).ok()?;
    SocketName::of(&path).ok()
}

/// The files that move a process into the topmost group of each hierarchy.
fn topmost_groups() -> Vec<CString> {
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let files = mount_points(&mountinfo).into_iter().take(HIERARCHIES_MAX);
    let files = files.map(|point| point.join("cgroup.procs"));
    files
        .filter_map(|file| CString::new(file.as_os_str().as_bytes()).ok())
        .collect()
}

fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // Closed on exec, so that programs that the process starts do not keep the pipe open.
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

/// Blocks all signals of the calling thread until dropped.
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

/// Runs the guardian, from the fork on. `extern "C"`, so that a panic aborts here instead of unwinding into a copy of
/// the parent's stack.
extern "C" fn become_guardian(kit: &Kit<'_>) -> ! {
    // SAFETY: plain system calls on descriptors that this process owns; it has one thread and no destructors to run.
    unsafe {
        if libc::fork() != 0 {
            libc::_exit(0);
        }
        leave_the_parent(kit);
    }
    // A negative descriptor is skipped by poll.
    let process = if kit.process < 0 { -1 } else { PROCESS };
    if wait_for_the_end(PIPE, process) == End::Died {
        put_back(kit); // failures have no caller to return to
        if let Some(socket) = &kit.socket {
            // The pipe of a process that dies may be closed before its sockets are.
            // SAFETY: one valid entry.
            unsafe { libc::poll(&mut poll_entry(process, libc::POLLIN), 1, SOCKET_WAIT_MS) };
            socket.remove_left_over();
        }
    }
    // SAFETY: ends this process.
    unsafe { libc::_exit(0) }
}

/// Undoes all changes of the dead process. Failures stay in the ledger.
fn put_back(kit: &Kit<'_>) {
    // SAFETY: the descriptor is this process's own and open to its end; the mapping is inherited.
    unsafe {
        let Some(mut table) = kit.ledger.lock(LEDGER) else {
            return;
        };
        // Another process may have been faster, and a third one may be at the same index.
        if table.knows(kit.holder) {
            let place = kit.holder.place;
            heirs::give_back(
                &mut table,
                place,
                true,
                &|_, _| true,
                Patience::Waits,
                &mut |_, _, _| {},
            );
            table.strike(place);
        }
    }
}

/// The numbers of the guardian's only descriptors. Not those of the standard streams: a message to a stream would be
/// written into the ledger.
const PIPE: RawFd = 3;
const PROCESS: RawFd = 4;
const LEDGER: RawFd = 5;

/// Cuts every tie to the parent except the pipe, the pidfd and the ledger.
///
/// # Safety
/// Closes every other descriptor, so it may only run in a process of its own.
unsafe fn leave_the_parent(kit: &Kit<'_>) {
    // SAFETY: plain system calls; the affinity mask and the priority are valid for their sizes.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        libc::chdir(c"/".as_ptr());
        let _ = set_policy(Tid(0), (libc::SCHED_OTHER, 0));
        // If the group is not this user's, the write fails and the guardian stays.
        for group in kit.groups {
            let _ = write_file(group, b"0");
        }
        let everywhere = [0xffu8; size_of::<libc::cpu_set_t>()];
        libc::sched_setaffinity(0, everywhere.len(), everywhere.as_ptr().cast());

        // First duplicates above the target numbers, because the originals may have those numbers.
        let above = |fd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, LEDGER + 1);
        let high = [above(kit.pipe), above(kit.process), above(kit.ledger.file)];
        for (high, low) in high.iter().zip([PIPE, PROCESS, LEDGER]) {
            match *high {
                high if high >= 0 => libc::dup2(high, low),
                _ => libc::close(low),
            };
        }
        for fd in 0..PIPE {
            libc::close(fd);
        }
        if libc::syscall(libc::SYS_close_range, LEDGER + 1, libc::c_uint::MAX, 0) != 0 {
            for fd in LEDGER + 1..FDS_MAX {
                libc::close(fd);
            }
        }
        // An inherited descriptor would share its lock with the process, and keep it locked when the process dies.
        let own = libc::open(c"/proc/self/fd/5".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if own >= 0 {
            libc::dup2(own, LEDGER);
            libc::close(own);
        }
    }
}

#[derive(PartialEq)]
enum End {
    Farewell,
    Died,
}

/// Sleeps until the process sends its farewell or is dead.
fn wait_for_the_end(pipe: RawFd, process: RawFd) -> End {
    loop {
        let mut line = [pipe, process].map(|fd| poll_entry(fd, libc::POLLIN));
        // SAFETY: two valid entries.
        unsafe { libc::poll(line.as_mut_ptr(), 2, -1) };
        let died = line[1].revents & libc::POLLIN != 0;
        let mut byte = 0u8;
        // The farewell is read first: a process may send it and exit before this look.
        // SAFETY: one valid byte; the pipe does not block.
        match unsafe { libc::read(pipe, (&raw mut byte).cast(), 1) } {
            1 => return End::Farewell,
            0 => return End::Died, // the last write end is closed
            _ if died => return End::Died,
            _ => {} // spurious wake-up
        }
    }
}
