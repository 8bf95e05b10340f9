//! Errors that keep a program from being profiled.

use std::io;
use std::path::PathBuf;

use punctual_tracer::{ChannelError, GeometryError};
use thiserror::Error;

/// Reasons why nothing was profiled, with remedies.
#[derive(Debug, Error)]
pub enum ProfilerError {
    /// The program is neither in `PATH` nor, with a slash, a file.
    #[error("{program}: no such program, neither in PATH nor, with a slash, as a file")]
    NoProgram {
        /// Name of the program as the user gave it.
        program: String,
    },
    /// The file exists, but cannot be read or run.
    #[error("{}: cannot be run: {why}", path.display())]
    NotRunnable {
        path: PathBuf,
        /// Reason in words.
        why: String,
    },
    /// The program is a script, which runs in its interpreter.
    #[error("{}: a script, run by {interpreter}; profile that: {interpreter} {}", path.display(), path.display())]
    Script {
        path: PathBuf,
        /// Interpreter from the script's first line.
        interpreter: String,
    },
    /// The program is for another machine.
    #[error("{}: is for {of}, and this machine is {here}; compile it for {here}", path.display())]
    OtherArchitecture {
        path: PathBuf,
        /// Architecture of the program.
        of: String,
        /// Architecture of this machine.
        here: &'static str,
    },
    /// The emulator is not in `PATH`.
    #[error(
        "{emulator} is not in PATH: install QEMU's user-mode emulation with plugins (Debian 12: apt-get install qemu-user; see docs/guide/profiling.md for others)"
    )]
    NoEmulator {
        /// Name of the emulator's program.
        emulator: String,
    },
    /// The emulator cannot load the tracer.
    #[error(
        "{} (QEMU {version}) takes no plugins: put one before it in PATH that is linked dynamically and built with plugins \
         (Debian 12: qemu-user; see docs/guide/profiling.md for others)",
        path.display()
    )]
    NoPlugins {
        /// File of the emulator.
        path: PathBuf,
        /// Version of the emulator.
        version: String,
    },
    /// The caches cannot be modelled.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// No memory can be shared with the emulator.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// The failed action, for the message.
        what: &'static str,
        error: io::Error,
    },
}

impl ProfilerError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> ProfilerError {
        move |error| ProfilerError::System { what, error }
    }
}
