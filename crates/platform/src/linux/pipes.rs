//! Pipes to other programs: reads and writes that can be abandoned, and programs that end with this process.

use std::fs::File;
use std::io::{self, ErrorKind, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use punctual_units::Nanos;

use super::descriptors::{poll, poll_entry, unblock};
use super::process::die_with;

/// Longest wait until the caller is asked whether to go on.
const LOOK: Nanos = Nanos::from_millis(50);

/// An end of a pipe, or any other descriptor that can be polled. A read or a write waits as long as `goes_on` returns
/// true, and then ends as at the end of the stream.
#[derive(Debug)]
pub struct Patient<F> {
    file: File,
    goes_on: F,
    waited: Arc<AtomicU64>,
}

impl<F: Fn() -> bool> Patient<F> {
    /// Reads and writes `fd`, which becomes non-blocking: a full pipe would keep the thread in the kernel. Adds the
    /// time spent waiting to `waited`, in nanoseconds.
    ///
    /// # Errors
    /// The kernel's error, for example for a descriptor without flags.
    pub fn new(fd: OwnedFd, goes_on: F, waited: Arc<AtomicU64>) -> io::Result<Patient<F>> {
        unblock(&fd)?;
        Ok(Patient {
            file: File::from(fd),
            goes_on,
            waited,
        })
    }

    /// Repeats `attempt` until it need not wait; `None` if the caller must stop.
    fn until<T>(
        &mut self,
        events: libc::c_short,
        mut attempt: impl FnMut(&mut File) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        while (self.goes_on)() {
            match attempt(&mut self.file) {
                Err(why) if why.kind() == ErrorKind::WouldBlock => {
                    let began = Instant::now();
                    poll(&mut [poll_entry(self.file.as_raw_fd(), events)], Some(LOOK));
                    let waited = began.elapsed().as_nanos() as u64;
                    self.waited.fetch_add(waited, Ordering::Relaxed);
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                done => return done.map(Some),
            }
        }
        Ok(None)
    }
}

impl<F: Fn() -> bool> Read for Patient<F> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = self.until(libc::POLLIN, |file| file.read(room))?;
        Ok(read.unwrap_or(0))
    }
}

impl<F: Fn() -> bool> Write for Patient<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.until(libc::POLLOUT, |file| file.write(bytes))?;
        written.ok_or_else(|| ErrorKind::TimedOut.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Executes [`KEEPER`].
const SHELL: &str = "/bin/sh";

/// Script of the process that outlives this one: it waits for a line, and kills its group at the end of its input.
const KEEPER: &str = "trap '' HUP INT TERM; read -r line || kill -KILL 0";

/// A program in a process group of its own. The kernel kills the program when the thread that started it ends. Once
/// this process ends, for whatever reason, all of the group are killed, such as what a shell has started: the group's
/// first process waits for that.
#[derive(Debug)]
pub struct GroupedProgram {
    /// The program itself.
    pub child: Child,
    keeper: Keeper,
}

impl GroupedProgram {
    /// Starts a program.
    ///
    /// # Errors
    /// The kernel's error, for example for a missing program; for a missing `/bin/sh`, with its name.
    pub fn start(command: &mut Command) -> io::Result<GroupedProgram> {
        let (own, keeper) = (std::process::id() as i32, Keeper::start(SHELL)?);
        // SAFETY: two plain system calls between fork and exec.
        unsafe {
            command.process_group(keeper.group()).pre_exec(move || {
                die_with(own);
                Ok(())
            })
        };
        Ok(GroupedProgram {
            child: command.spawn()?,
            keeper,
        })
    }

    /// Kills the program, and all processes in its group.
    pub fn kill(&self) {
        // SAFETY: plain numbers; the group's first process was not waited for, so its number was not reused.
        unsafe { libc::kill(-self.keeper.group(), libc::SIGKILL) };
    }
}

/// The first process of a group.
#[derive(Debug)]
struct Keeper {
    child: Child,
    line: PipeWriter,
}

impl Keeper {
    fn start(shell: &str) -> io::Result<Keeper> {
        let (output, line) = io::pipe()?;
        let mut command = Command::new(shell);
        command
            .args(["-c", KEEPER])
            .stdin(output)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0);
        let unmet =
            |why: io::Error| io::Error::new(why.kind(), format!("it needs {shell}, which does not start: {why}"));
        let child = command.spawn().map_err(unmet)?;
        Ok(Keeper { child, line })
    }

    fn group(&self) -> i32 {
        self.child.id() as i32
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Processes that the program has left in its group may go on. A keeper that was killed reads nothing.
        let _ = self.line.write_all(b"\n");
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_shell_is_named() {
        let why = Keeper::start("/missing/sh").unwrap_err();
        assert_eq!(why.kind(), ErrorKind::NotFound);
        assert!(why.to_string().contains("/missing/sh"), "{why}");
    }
}
