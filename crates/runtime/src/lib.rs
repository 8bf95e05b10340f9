//! Runs tasks and sensors on Linux, with the loop of `punctual-loop` around them, and reports on each run.
//!
//! * [`linux`] runs tasks on real threads and drives the [`Regulator`](punctual_loop::Regulator) in the control thread;
//! * [`collector`] turns steps into the [`report`], whose size does not depend on the length of the run: `figures` of
//!   each task, `samples` of the run over time.

// The front crate shows its items to programs of others.
#![warn(missing_docs)]

pub mod causes;
pub mod collector;
mod error;
pub mod figures;
pub mod frames;
mod full_core;
pub mod learn;
#[cfg(target_os = "linux")]
pub mod linux;
pub mod report;
#[cfg(test)]
mod report_tests;
pub mod samples;
pub mod schedule;
mod settings;
pub mod under_way;

pub use collector::SETTLING;
pub use error::RuntimeError;
pub use learn::Learning;
pub use report::FinishedRun;
