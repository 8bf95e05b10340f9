//! A simulated machine: clock steps, memory traffic, updates, energy; deterministic by seed.
//!
//! **Problem.** Not every machine has clock steps, shared memory and power meters, and no run on a real one can be
//! repeated to the last bit. Here the same [`Program`](punctual_workload::Program)s run as timed segments.
//!
//! **Terms.** A *task* releases jobs; a job is a list of *steps*: cycles, store access, a phase of a profile, a request
//! to a device (`task`). A *segment* is work that a core does without a decision in between: a number of core cycles, a
//! number of accesses, and time that depends on neither. Its *pace* is the time for the whole segment at the present
//! clock, cache and traffic. [`Dispatch`] decides which job runs where.
//!
//! **Method.** Durations emerge, they are never scripted. Cycles take time by the clock (`model`, `engine`). Accesses
//! hit the lines that the core still holds in the shared cache after the fetches of all cores (`cache`); those that
//! miss wait in the queue that all cores' traffic makes at the shared memory (`memory`). Updates take the lock and the
//! time that they need (`feed`, `committer`, `scheduler`). Phases wait where their core has too little of a split cache
//! and memory (`split`), requests for their [`Device`], and jobs for a core (`scheduler`, `shared`). The same load and
//! seed give the same bytes.
//!
//! Machines are data (`model`, `file`, the folder `machines/`). A [`Governor`] sets the clock while no controller does.
//!
//! **Left out.** Write-backs, the size of values, interrupts, and the cost of turning a knob or, except by a
//! [`SharingRule`], of scheduling. Commits are volatile.

mod cache;
mod called;
mod check;
mod committer;
mod cores;
mod costs;
mod device;
mod engine;
mod feed;
mod file;
mod governed;
mod job;
mod leases;
mod load;
mod machine;
mod memory;
mod model;
mod power;
mod runner;
mod scheduler;
mod shared;
pub mod split;
mod task;
mod throttle;
mod traffic;
mod under_way;
mod waits;

pub use check::{ModelError, require};
pub use cores::CoreTimes;
pub use costs::costs;
pub use device::{Access, Device, PageRequest};
pub use engine::Simulation;
pub use file::{read as read_file, shipped};
pub use governed::{CoreLoad, Governor, LoadSample};
pub use leases::LENDING_COSTS;
pub use load::{SimulationError, SimulationEvent, SimulationLoad, SplitLoad, placed};
pub use model::{
    CORES_MAX, CacheModel, ClockStep, CorePower, Effort, MachineModel, MemoryModel, MemoryPower, PowerModel,
    StoreModel, UncorePower, WAYS_MAX,
};
pub use punctual_platform::{MeterId, Parts};
pub use runner::BACKLOG_MAX;
pub use shared::{SharedCore, SharedCores, SharedRunner, SharingRule};
pub use task::{Dispatch, Jobs, Release, Step, Task, TaskWorkload};
pub use throttle::THROTTLE_PERIOD;
pub use waits::{Blocker, Other, Wait, Waits};
