//! Children of tests: started with known signals, and never waited for without a bound.
//!
//! A program inherits which signals are ignored. A shell that starts `cargo test` in the background of a script ignores
//! SIGINT, so a child that a test interrupts would go on for ever, and the test with it. So every child starts with
//! each signal's default action, and is killed when it outlives its bound: then reads from its pipes end, and
//! [`TestChild::wait`] fails the test.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which a child is checked that is waited for; its bound ends the wait.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A child that ends with the test at the latest, and after its bound in any case. On Linux it also ends with the
/// thread that has started it, so that a test that is killed leaves none which keeps a core.
#[derive(Debug)]
pub struct TestChild {
    child: Arc<Mutex<Child>>,
    /// Dropped when the child need not be watched any more.
    over: Option<Sender<()>>,
    watchdog: Option<JoinHandle<bool>>,
}

/// Starts `command` with every signal's default action; the child is killed after `bound`.
///
/// # Errors
/// As [`Command::spawn`].
pub fn start(command: &mut Command, bound: Duration) -> io::Result<TestChild> {
    // SAFETY: between fork and exec only `sigaction`, `sigemptyset` and `sigprocmask` are called, which are safe to
    // call there.
    unsafe { command.pre_exec(default_signals) };
    #[cfg(target_os = "linux")]
    {
        let parent = std::process::id() as i32;
        // SAFETY: likewise two plain system calls, and `_exit`.
        unsafe {
            command.pre_exec(move || {
                punctual_platform::linux::process::die_with(parent);
                Ok(())
            })
        };
    }
    let child = Arc::new(Mutex::new(command.spawn()?));
    let (over, is_over) = channel::<()>();
    let watched = Arc::clone(&child);
    let watchdog = std::thread::spawn(move || {
        let late = is_over.recv_timeout(bound) == Err(RecvTimeoutError::Timeout);
        late && locked(&watched).kill().is_ok()
    });
    Ok(TestChild {
        child,
        over: Some(over),
        watchdog: Some(watchdog),
    })
}

/// Starts `command` and collects what it prints, like [`Command::output`].
///
/// # Errors
/// As [`Command::spawn`], and where a pipe cannot be read.
///
/// # Panics
/// Where it does not end within `bound`.
pub fn output(command: &mut Command, bound: Duration) -> io::Result<Output> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    start(command, bound)?.output()
}

/// Copies a program that a test will start. A process of its own copies it: if this one did, a child that another test
/// forks meanwhile would have the descriptor for writing until it executes, and until then the copy cannot be executed
/// (execve(2), ETXTBSY).
///
/// # Panics
/// Where it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
}

impl TestChild {
    /// Its process id; its own until [`wait`](TestChild::wait).
    pub fn id(&self) -> u32 {
        locked(&self.child).id()
    }

    /// Its standard output, where that is piped and was not taken before. Reads end after the bound at the latest.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        locked(&self.child).stdout.take()
    }

    /// Its standard error, likewise.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        locked(&self.child).stderr.take()
    }

    /// Its standard input, where that is piped and was not taken before; closed when dropped.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        locked(&self.child).stdin.take()
    }

    /// How it ended; `None` while it runs.
    ///
    /// # Errors
    /// Where the system does not tell.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        locked(&self.child).try_wait()
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// As [`Child::kill`].
    pub fn kill(&mut self) -> io::Result<()> {
        locked(&self.child).kill()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Where the system does not tell.
    ///
    /// # Panics
    /// Where it did not end within its bound.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = loop {
            if let Some(status) = locked(&self.child).try_wait()? {
                break status;
            }
            std::thread::sleep(LOOK_EVERY);
        };
        assert!(
            !self.was_late(),
            "the child was killed: it did not end within its bound"
        );
        Ok(status)
    }

    /// Waits for its end and collects what it printed.
    ///
    /// # Errors
    /// Where a pipe cannot be read, or the system does not tell of the end.
    ///
    /// # Panics
    /// Where it did not end within its bound.
    pub fn output(mut self) -> io::Result<Output> {
        let errors = self.stderr().map(|pipe| std::thread::spawn(move || all_of(pipe)));
        let stdout = self.stdout().map_or(Ok(Vec::new()), all_of)?;
        let stderr = errors.map_or(Ok(Vec::new()), |errors| {
            errors.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        Ok(Output {
            status: self.wait()?,
            stdout,
            stderr,
        })
    }

    /// Ends the watch; whether the child was killed by it.
    fn was_late(&mut self) -> bool {
        drop(self.over.take());
        let watchdog = self.watchdog.take();
        watchdog.is_some_and(|watchdog| watchdog.join().unwrap_or(false))
    }
}

impl Drop for TestChild {
    fn drop(&mut self) {
        let _ = locked(&self.child).kill();
        let _ = locked(&self.child).wait();
    }
}

/// A panic of another thread leaves the child as it is.
fn locked(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn all_of(mut pipe: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Gives each signal its default action and blocks none.
fn default_signals() -> io::Result<()> {
    // SAFETY: both structures are valid when they are all zero: `SIG_DFL` is 0, and an empty set of signals is then
    // made of the mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        for signal in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGPIPE,
            libc::SIGCHLD,
        ] {
            if libc::sigaction(signal, &action, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        if libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CHILD_MAX;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_child_of_a_shell_that_ignores_interrupts_is_interrupted_all_the_same() {
        // The shell ignores SIGINT, and what it starts inherits that: so does this test's own shell, were it not for
        // `start`.
        let script = "trap '' INT; exec \"$0\" --exact children::tests::interrupts_itself --nocapture";
        let program = std::env::current_exe().expect("a path");
        let shell = ["-c", script].map(std::ffi::OsString::from);
        let told = output(Command::new("sh").args(shell).arg(program), CHILD_MAX).expect("a shell");
        let (said, errors) = (
            String::from_utf8_lossy(&told.stdout),
            String::from_utf8_lossy(&told.stderr),
        );
        assert!(told.status.success() && said.contains("1 passed"), "{said}{errors}");
    }

    /// The test above runs it once more, in a process that ignores SIGINT.
    #[test]
    fn interrupts_itself() {
        let mut child = start(Command::new("sleep").arg("50"), CHILD_MAX).expect("a child");
        // SAFETY: a plain system call; the child has not been waited for, so the id is its own.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) }, 0);
        assert_eq!(child.wait().expect("an end").signal(), Some(libc::SIGINT));
    }

    #[test]
    #[should_panic(expected = "did not end within its bound")]
    fn a_child_that_outlives_its_bound_fails_the_test() {
        let mut child = start(Command::new("sleep").arg("50"), Duration::from_millis(50)).expect("a child");
        let _ = child.wait();
    }
}
