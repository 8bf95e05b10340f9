//! What keeps a program from being counted.

use std::io;

use thiserror::Error;

/// Why nothing was measured, and what to do.
#[derive(Debug, Error)]
pub enum CountersError {
    /// The processor, or what the hypervisor shows of it, does not count it.
    #[error(
        "{event}: not counted on this machine; in a virtual machine its host must pass a PMU through. Without one: \
         punctual profile -- PROGRAM, which counts in an emulator"
    )]
    NoEvent {
        /// As `perf list` calls it.
        event: &'static str,
    },
    /// It is counted, but not for this user.
    #[error(
        "{event}: counting is not permitted; as root: sysctl kernel.perf_event_paranoid=2, or give CAP_PERFMON (in a \
         container, its seccomp profile must allow perf_event_open)"
    )]
    NotPermitted {
        /// As `perf list` calls it.
        event: &'static str,
    },
    /// A kernel without perf events, or before 4.14, which reads no group of inherited events.
    #[error(
        "{event}: this kernel cannot count it for a program and its threads together; Linux 4.14 with CONFIG_PERF_EVENTS can"
    )]
    Kernel {
        /// As `perf list` calls it.
        event: &'static str,
    },
    /// The group was never counted.
    #[error(
        "the counters were never free; end what else uses them (perf, or the watchdog: as root, sysctl kernel.nmi_watchdog=0)"
    )]
    NeverFree,
    /// More windows than a profile's reader takes.
    #[error("more than {most} windows; give a longer --window")]
    TooManyWindows {
        /// The bound.
        most: usize,
    },
    /// The system refused.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}

impl CountersError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> CountersError {
        move |error| CountersError::System { what, error }
    }

    /// What the kernel's answer to perf_event_open(2) says of `event`.
    pub(crate) fn of(event: &'static str, error: io::Error) -> CountersError {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => CountersError::NoEvent { event },
            Some(libc::EACCES | libc::EPERM) => CountersError::NotPermitted { event },
            Some(libc::ENOSYS | libc::EINVAL) => CountersError::Kernel { event },
            _ => CountersError::system("a counter cannot be opened")(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_kernel_says_what_to_do() {
        let told = |code| CountersError::of("instructions", io::Error::from_raw_os_error(code)).to_string();
        assert!(told(libc::ENOENT).starts_with("instructions: not counted on this machine"));
        assert!(told(libc::EACCES).contains("kernel.perf_event_paranoid=2"));
        assert!(told(libc::EPERM).contains("CAP_PERFMON"));
        assert!(told(libc::ENOSYS).contains("CONFIG_PERF_EVENTS"));
        assert!(told(libc::EMFILE).starts_with("a counter cannot be opened"));
    }
}
