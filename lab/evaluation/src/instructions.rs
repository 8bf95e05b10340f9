//! Counts instructions by single steps (ptrace(2)): a cost of code that does not depend on the machine's other load.
//!
//! **Method.** A process is stopped after each of its own instructions, and each stop is counted. A system call counts
//! as one instruction. Each step takes microseconds, so the method suits code of some thousand instructions.

use std::io;

/// Limit of the steps of one count: far more than a frame takes.
const STEPS_MAX: u64 = 50_000_000;

/// Number of instructions of `work`, run in a forked copy of this process. The copy has one thread: `work` must not
/// wait for another thread.
///
/// # Errors
/// The kernel's error, or that `work` did not end.
pub fn of_work(work: &mut dyn FnMut()) -> io::Result<u64> {
    Ok(counted(work)?.saturating_sub(counted(&mut || {})?))
}

fn counted(work: &mut dyn FnMut()) -> io::Result<u64> {
    // SAFETY: the copy runs `work` and ends, without destructors; `work` waits for no other thread by contract.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: the calls take plain numbers; the parent waits for the stops.
            unsafe {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
                work();
                libc::raise(libc::SIGSTOP);
                libc::_exit(0)
            }
        }
        copy => {
            let counted = steps_between_stops(copy);
            // SAFETY: the copy is this process's child.
            unsafe {
                libc::kill(copy, libc::SIGKILL);
                libc::waitpid(copy, std::ptr::null_mut(), libc::__WALL);
            }
            counted
        }
    }
}

fn steps_between_stops(copy: i32) -> io::Result<u64> {
    if stopped(copy)? != libc::SIGSTOP {
        return Err(io::Error::other("the copy ended before it began"));
    }
    for count in 0..STEPS_MAX {
        step(copy)?;
        match stopped(copy)? {
            libc::SIGTRAP => {}
            libc::SIGSTOP => return Ok(count),
            signal => return Err(io::Error::other(format!("the copy got signal {signal}"))),
        }
    }
    Err(io::Error::other(format!("more than {STEPS_MAX} instructions")))
}

/// Number of instructions of the only thread of the process `pid`, from when `begin` returns true until `end` does;
/// both are called after each instruction. The process continues afterwards.
///
/// # Errors
/// The kernel's error: this process may not trace that one, or it has ended.
pub fn of_process(pid: i32, begin: &mut dyn FnMut() -> bool, end: &mut dyn FnMut() -> bool) -> io::Result<u64> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the calls take plain numbers.
    unsafe {
        check(libc::ptrace(libc::PTRACE_SEIZE, pid, none, none))?;
        check(libc::ptrace(libc::PTRACE_INTERRUPT, pid, none, none))?;
    }
    let traced = traced(pid, begin, end);
    // SAFETY: as above; for a process that has ended, the call has no effect.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, none, none) };
    traced
}

fn traced(pid: i32, begin: &mut dyn FnMut() -> bool, end: &mut dyn FnMut() -> bool) -> io::Result<u64> {
    stopped(pid)?;
    let mut began = None;
    for count in 0..STEPS_MAX {
        step(pid)?;
        stopped(pid)?;
        match began {
            None if begin() => began = Some(count),
            Some(began) if end() => return Ok(count - began),
            _ => {}
        }
    }
    Err(io::Error::other(format!("more than {STEPS_MAX} instructions")))
}

fn step(pid: i32) -> io::Result<()> {
    // SAFETY: the call takes plain numbers.
    check(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) })
}

/// The signal at which a traced process has stopped.
fn stopped(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    // SAFETY: `status` is valid for writing.
    if unsafe { libc::waitpid(pid, &mut status, libc::__WALL) } != pid {
        return Err(io::Error::last_os_error());
    }
    match libc::WIFSTOPPED(status) {
        true => Ok(libc::WSTOPSIG(status)),
        false => Err(io::Error::other("the traced process has ended")),
    }
}

fn check(answer: libc::c_long) -> io::Result<()> {
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn twice_the_work_is_twice_the_instructions() {
        let work = |turns: u64| {
            move || {
                for turn in 0..turns {
                    black_box(turn);
                }
            }
        };
        let Ok(once) = of_work(&mut work(200)) else {
            return eprintln!("skipped: this process may not trace its children");
        };
        let twice = of_work(&mut work(400)).unwrap();
        // Without optimisation a turn of the loop has some sixty.
        assert!((200..40_000).contains(&once), "{once}");
        assert!(twice.abs_diff(2 * once) < 100, "{once} and {twice}");
        assert_eq!(of_work(&mut || {}).unwrap(), 0);
    }
}
