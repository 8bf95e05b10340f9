//! Keeps soft real-time work on time: monitor, modes, controllers and the loop that joins them.
//!
//! Start with `tick`: it is the loop. Around it
//! * `monitor` closes windows of job outcomes into means, `mode` says whether to trust them, `controller` turns them
//!   into knob positions, `pacing` sets the clock while a job runs, `exciter` moves the knobs to learn a model instead;
//! * [`linux`] runs tasks on real threads, `simulated` runs the same programs on the simulated machine; both drive the
//!   same [`Regulator`];
//! * `collector` turns steps into the [`report`], `record` keeps a log that replays to the same decisions.

mod actuate;
mod allocation;
mod collector;
mod controller;
mod document;
mod error;
mod event;
mod exciter;
#[cfg(target_os = "linux")]
pub mod linux;
mod mode;
mod monitor;
mod pacing;
mod record;
pub mod report;
mod run;
mod simulated;
mod tick;

pub use allocation::{AllocationError, AllocationRequest, Changes};
pub use collector::SETTLING;
pub use controller::Knobs;
pub use document::{
    ADMITTED, CLOCK, ControllerDocument, DRR, MadeFor, Mismatch, ModelDocument, ModelError, TARDINESS, Unfit,
};
pub use error::RuntimeError;
pub use event::{Answer, Applied, Event, Plan, Step, Vitals, Window};
pub use mode::{GOOD_WINDOWS, Mode, ModeName, SILENT_RELEASES, SILENT_WINDOWS};
pub use monitor::Monitor;
pub use punctual_sim::{Failing, Fault, Faults, Governor, MachineFileError, MachineModel, MeterName, UnknownGovernor};
pub use record::{AdmissionEvent, AdmissionSetup, Decision, Difference, EventLog, replay};
pub use report::Finished;
pub use run::{ControllerSource, PlatformChoice, RunError, RunRequest, identify, run};
pub use tick::{Regulator, RegulatorOptions};
