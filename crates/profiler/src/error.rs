//! What keeps a program from being profiled.

use std::io;
use std::path::PathBuf;

use punctual_tracer::{ChannelError, GeometryError};
use thiserror::Error;

/// Why nothing was profiled, and what to do.
#[derive(Debug, Error)]
pub enum ProfilerError {
    /// Neither in `PATH` nor, with a slash, a file.
    #[error("{program}: no such program, neither in PATH nor, with a slash, as a file")]
    NoProgram {
        /// As it was named.
        program: String,
    },
    /// There, but not to be read or run.
    #[error("{}: cannot be run: {why}", path.display())]
    NotRunnable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A script: its interpreter is what runs.
    #[error("{}: a script, run by {interpreter}; profile that: {interpreter} {}", path.display(), path.display())]
    Script {
        /// The script.
        path: PathBuf,
        /// Its first line.
        interpreter: String,
    },
    /// A program for another machine.
    #[error("{}: is for {of}, and this machine is {here}; compile it for {here}", path.display())]
    OtherArchitecture {
        /// The program.
        path: PathBuf,
        /// Its architecture.
        of: String,
        /// This machine's.
        here: &'static str,
    },
    /// No emulator.
    #[error(
        "{emulator} is not in PATH: install QEMU's user-mode emulation with plugins (Debian 12: apt-get install qemu-user; see docs/profiling.md for others)"
    )]
    NoEmulator {
        /// Its name.
        emulator: String,
    },
    /// An emulator that cannot carry the tracer.
    #[error(
        "{} (QEMU {version}) takes no plugins: put one before it in PATH that is linked dynamically and built with plugins \
         (Debian 12: qemu-user; see docs/profiling.md for others)",
        path.display()
    )]
    NoPlugins {
        /// Its file.
        path: PathBuf,
        /// Its version.
        version: String,
    },
    /// Caches that cannot be.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// No memory to be shared with the emulator.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The system refused.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}

impl ProfilerError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> ProfilerError {
        move |error| ProfilerError::System { what, error }
    }
}
