//! Linux behind the [`Machine`](crate::Machine) contract: threads, clocks, CPU shares, meters, and restoring all of it.
//!
//! Every module asks one thing of the kernel and answers with a value or a [`Refusal`](crate::Refusal) that says what
//! would help. Everything runs without privileges; with privileges, more is offered.

pub mod busy;
pub mod cgroup;
pub mod cores;
pub mod cpufreq;
mod descriptors;
pub mod doctor;
pub mod emulated;
pub mod events;
pub mod exclusive;
pub mod fix;
pub mod futex;
mod held;
pub mod library;
mod machine;
pub mod observed;
mod perf;
pub mod pipes;
pub mod powercap;
pub mod probe;
pub mod process;
pub mod real_time;
pub mod resctrl;
pub mod run_queue;
pub mod shared_memory;
pub mod starvation;
pub mod switches;
#[cfg(test)]
mod testing;
pub mod thermal;
pub mod thread;

pub use held::HeldOutput;
pub use machine::{BestEffort, ClockPreference, LinuxMachine, LinuxOptions, identity};
pub use punctual_custody::journal::Others;
pub use punctual_custody::recovery::AnnouncedTask;
pub use punctual_custody::{KernelTree, journal, recovery};

use punctual_os::linux::{last_error, refused};
