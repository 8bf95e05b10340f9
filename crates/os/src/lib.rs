//! How a thread waits, and as what it runs: clock, lock, parking place, scheduling.

#[cfg(target_os = "linux")]
pub mod linux;
mod refusal;
mod thread;

pub use refusal::Refusal;
pub use thread::{REAL_TIME_PRIORITIES, Scheduling, Tid};
