//! The way in which a program ended.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use punctual_tracer::Progress;

/// The way in which a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program exited with code 0: its profile is complete.
    Finished,
    /// The program exited with another code.
    Failed(i32),
    /// A signal ended the program.
    Killed(i32),
    /// The program became another (`execve`), which ran without being profiled.
    Replaced,
    /// The emulator did not load the plugin; it printed the reason to standard error.
    NotLoaded,
    /// The emulator ended without notifying the plugin.
    EmulatorFailed,
}

impl Ending {
    /// Derives the program's ending from the emulator's exit status and the plugin's last progress.
    pub fn of(status: ExitStatus, progress: &Progress) -> Ending {
        if !progress.installed {
            return Ending::NotLoaded;
        }
        match (status.signal(), status.code()) {
            (Some(signal), _) => Ending::Killed(signal),
            // The program never began.
            _ if progress.instructions == 0 => Ending::EmulatorFailed,
            (None, Some(0)) if progress.ended => Ending::Finished,
            (None, Some(code)) if progress.ended => Ending::Failed(code),
            _ if progress.replacements > 0 => Ending::Replaced,
            _ => Ending::EmulatorFailed,
        }
    }
}

impl fmt::Display for Ending {
    /// Writes a sentence without its subject, with the remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Finished => f.write_str("ended"),
            Ending::Failed(code) => write!(f, "ended with exit code {code}; mend the program, or what it is given"),
            Ending::Killed(signal) => write!(f, "was killed by signal {signal} ({})", name(*signal)),
            Ending::Replaced => {
                f.write_str("became another program (execve), which was not watched; profile that one by its own name")
            }
            Ending::NotLoaded => f.write_str(
                "was not run: the emulator did not take the plugin, and has said why above. QEMU with plugin \
                 interface 1 to 6, as 7.2 to 10.2 have, takes it; see docs/profiling.md",
            ),
            Ending::EmulatorFailed => f.write_str(
                "was given up by the emulator, which may have said why above; of a damaged program it says nothing",
            ),
        }
    }
}

fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL: an instruction that it, or the emulator, does not know",
        libc::SIGABRT => "SIGABRT",
        libc::SIGFPE => "SIGFPE",
        libc::SIGBUS => "SIGBUS",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGTERM => "SIGTERM",
        _ => "see signal(7)",
    }
}

/// Sends SIGTERM to a program that has not been waited for.
pub(crate) fn ask_to_end(child: &Child) {
    if let Ok(id) = libc::pid_t::try_from(child.id()) {
        // SAFETY: a plain system call; the process has not been waited for, so that the id still belongs to it.
        unsafe { libc::kill(id, libc::SIGTERM) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_is_told_by_status_and_plugin_together() {
        let (exit_0, exit_3, killed) = (
            ExitStatus::from_raw(0),
            ExitStatus::from_raw(3 << 8),
            ExitStatus::from_raw(11),
        );
        let none = Progress::default();
        let loaded = Progress {
            installed: true,
            ..none
        };
        let runs = Progress {
            instructions: 1,
            ..loaded
        };
        let ended = Progress { ended: true, ..runs };
        let replaced = Progress {
            replacements: 1,
            ..runs
        };
        assert_eq!(Ending::of(exit_0, &ended), Ending::Finished);
        assert_eq!(Ending::of(exit_3, &ended), Ending::Failed(3));
        assert_eq!(Ending::of(killed, &runs), Ending::Killed(11));
        assert_eq!(Ending::of(exit_0, &replaced), Ending::Replaced);
        assert_eq!(
            Ending::of(
                exit_0,
                &Progress {
                    ended: true,
                    ..replaced
                }
            ),
            Ending::Finished,
            "it tried in vain"
        );
        assert_eq!(Ending::of(exit_3, &none), Ending::NotLoaded);
        assert_eq!(Ending::of(exit_3, &runs), Ending::EmulatorFailed);
        let refused = Progress { ended: true, ..loaded };
        assert_eq!(Ending::of(exit_3, &refused), Ending::EmulatorFailed);
    }
}
