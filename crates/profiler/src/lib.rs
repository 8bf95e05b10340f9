//! Measures the worth of each number of cache ways to a program, along its execution.
//!
//! **Problem.** An allocator of cache ways needs to know, for each part of a program, how many misses each number of
//! ways would save.
//!
//! **Method.** [`Program::find`] checks the program, [`ProfilerRun::start`] runs it under QEMU's user-mode emulation
//! with the tracer as plugin (crate `punctual-tracer`, which contains the models), and [`ProfilerRun::wait`] collects
//! windows of instructions until it ends. [`write()`] turns them into the file that `allocation` reads: requests to the
//! last-level cache (LLC) per window, and those that miss with 1, 2, ... ways.
//!
//! **Terms.** The *emulator* is `qemu-x86_64` (or that of this machine's architecture), searched in `PATH`. An *ending*
//! is the way in which the program ended. No count is lost, but only a program that ended well has been profiled as a
//! whole.
//!
//! The program keeps its own standard input, output and error.

mod emulator;
mod ending;
mod error;
mod file;
mod program;
mod run;
mod start;

pub use emulator::Emulator;
pub use ending::ProgramEnding;
pub use error::ProfilerError;
pub use file::write;
pub use program::Program;
pub use punctual_tracer::{Cache, Geometry, GeometryError, Progress, WAYS_MAX, Window};
pub use run::ProfilerRun;
