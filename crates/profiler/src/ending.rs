//! The way in which a program ended.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use punctual_tracer::Progress;

/// The way in which a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnding {
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

impl ProgramEnding {
    /// Derives the program's ending from the emulator's exit status and the plugin's last progress.
    pub fn of(status: ExitStatus, progress: &Progress) -> ProgramEnding {
        if !progress.installed {
            return ProgramEnding::NotLoaded;
        }
        match (status.signal(), status.code()) {
            (Some(signal), _) => ProgramEnding::Killed(signal),
            // The program never began.
            _ if progress.instructions == 0 => ProgramEnding::EmulatorFailed,
            (None, Some(0)) if progress.ended => ProgramEnding::Finished,
            (None, Some(code)) if progress.ended => ProgramEnding::Failed(code),
            _ if progress.replacements > 0 => ProgramEnding::Replaced,
            _ => ProgramEnding::EmulatorFailed,
        }
    }
}

impl fmt::Display for ProgramEnding {
    /// Writes a sentence without its subject, with the remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramEnding::Finished => f.write_str("ended"),
            ProgramEnding::Failed(code) => {
                write!(f, "ended with exit code {code}; correct the program, or its input")
            }
            ProgramEnding::Killed(signal) => write!(f, "was killed by signal {signal} ({})", name(*signal)),
            ProgramEnding::Replaced => {
                f.write_str("became another program (execve), which was not watched; profile that one by its own name")
            }
            ProgramEnding::NotLoaded => f.write_str(
                "was not run: the emulator did not take the plugin, and has said why above. QEMU with plugin \
                 interface 1 to 6, as 7.2 to 10.2 have, takes it; see docs/guide/profiling.md",
            ),
            ProgramEnding::EmulatorFailed => f.write_str(
                "was aborted by the emulator, which may have printed the reason above; of a damaged program it prints none",
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
        assert_eq!(ProgramEnding::of(exit_0, &ended), ProgramEnding::Finished);
        assert_eq!(ProgramEnding::of(exit_3, &ended), ProgramEnding::Failed(3));
        assert_eq!(ProgramEnding::of(killed, &runs), ProgramEnding::Killed(11));
        assert_eq!(ProgramEnding::of(exit_0, &replaced), ProgramEnding::Replaced);
        assert_eq!(
            ProgramEnding::of(
                exit_0,
                &Progress {
                    ended: true,
                    ..replaced
                }
            ),
            ProgramEnding::Finished,
            "it tried in vain"
        );
        assert_eq!(ProgramEnding::of(exit_3, &none), ProgramEnding::NotLoaded);
        assert_eq!(ProgramEnding::of(exit_3, &runs), ProgramEnding::EmulatorFailed);
        let refused = Progress { ended: true, ..loaded };
        assert_eq!(ProgramEnding::of(exit_3, &refused), ProgramEnding::EmulatorFailed);
    }
}
