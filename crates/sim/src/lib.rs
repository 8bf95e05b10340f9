//! A simulated machine: clock steps, memory traffic, updates, energy, deterministic by seed.
//!
//! **Problem.** Clock steps, shared memory and power meters cannot be had on every machine, and no run on a real one
//! can be repeated to the last bit. Here the same [`Program`](punctual_workload::Program)s run as timed segments.
//!
//! **Terms.** A *segment* is work that a core does without a decision in between: so many core cycles and so many memory
//! accesses. Its *pace* is how long it would take as a whole at the present clock and traffic.
//!
//! **Method.** Durations emerge, they are never scripted: cycles take time by the clock (`model`, `engine`), accesses by
//! the queue that all cores' traffic makes at the shared memory (`memory`), and updates take the lock and the time
//! that they need (`feed`, `committer`, `scheduler`). The same load and seed give the same bytes.
//!
//! **Left out.** Caches (pollution is part of no figure), the size of values, the cost of scheduling and of turning
//! a knob, interrupts, media: commits are volatile.

mod committer;
mod cores;
mod costs;
mod engine;
mod feed;
mod job;
mod machine;
mod memory;
mod model;
mod power;
mod runner;
mod scheduler;
mod throttle;

pub use costs::costs;
pub use engine::{Happening, Load, Simulation, SimulationError};
pub use model::{CORES_MAX, ClockStep, Effort, MachineModel, MemoryModel, ModelError, PowerModel, StoreModel};
pub use runner::BACKLOG_MAX;
pub use throttle::THROTTLE_PERIOD;
