//! Parts of a simulated machine that only experiments have.
//!
//! Storage media ([`media`]), the kernel's governors ([`governor`]), faults of knobs and meters ([`Faults`]), and runs
//! of tasks with profiles under an allocator ([`split`]). [`punctual_sim::Simulation`] knows them by its traits.
//! [`Surroundings`] puts a governor and faults around the machine of a run.

mod faults;
pub mod governor;
pub mod media;
pub mod split;
mod surroundings;

pub use faults::{Failing, Fault, Faults, Faulty};
pub use governor::{KernelGovernor, UnknownGovernor};
pub use surroundings::Surroundings;
