//! A scenario on a machine: from a request to a report, on Linux and on the simulated machine.
//!
//! * [`run`] and [`identify`] take a [`RunRequest`] from the command line;
//! * `linux` measures what accesses cost, compiles the programs, opens the stores and adds the tasks to a runtime;
//! * [`beside`] starts the tasks of a scenario in a process that serves, without an end;
//! * [`stages`] puts a pipeline of the scenario's stages together and runs it;
//! * `simulated` runs the same programs on the simulated machine, in an [`Environment`]; `allocation` splits its cache
//!   and bandwidth.

mod allocation;
mod environment;
#[cfg(target_os = "linux")]
mod linux;
mod run;
mod simulated;
#[cfg(target_os = "linux")]
pub mod stages;
mod without_effect;

pub use allocation::{AllocationError, AllocationRequest, Changes};
pub use environment::{Environment, MachineAlone};
#[cfg(target_os = "linux")]
pub use linux::Emulated;
#[cfg(target_os = "linux")]
pub use linux::beside;
pub use punctual_runtime::report::PlatformChoice;
pub use punctual_sim::MachineModel;
#[cfg(target_os = "linux")]
pub use run::rehearse;
pub use run::{ControllerSource, RunError, RunRequest, check_controller, identify, run};
pub use without_effect::{WithoutEffect, without_effect};
