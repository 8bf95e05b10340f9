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
mod linux;
mod run;
mod simulated;
pub mod stages;
mod without_effect;

pub use allocation::{AllocationError, AllocationRequest, Changes};
pub use environment::{Environment, MachineAlone};
pub use linux::{Emulated, beside};
pub use punctual_runtime::report::PlatformChoice;
pub use punctual_sim::MachineModel;
pub use run::{ControllerSource, RunError, RunRequest, check_controller, identify, rehearse, run};
pub use without_effect::{WithoutEffect, without_effect};
