//! What do tests and benchmarks share? Members of etcd, children with a bound, virtual time, conformance suites, trees
//! of the kernel's files.

mod allocations;
mod campaign;
#[cfg(unix)]
mod children;
pub mod conformance;
#[cfg(all(feature = "etcd", target_os = "linux"))]
pub mod etcd;
#[cfg(target_os = "linux")]
mod free_cores;
pub mod guide;
mod kernel;
#[cfg(unix)]
mod machine;
#[cfg(target_os = "linux")]
pub mod neighbours;
pub mod open_metrics;
#[cfg(target_os = "linux")]
mod ports;
#[cfg(target_os = "linux")]
pub mod power;
mod task;
mod virtual_os;
mod waiting;
#[cfg(target_os = "linux")]
mod workers;

pub use allocations::{CountingAllocator, allocations_of};
pub use campaign::campaign;
#[cfg(unix)]
pub use children::{TestChild, copy_program, output, start};
#[cfg(target_os = "linux")]
pub use free_cores::free_cores;
pub use kernel::{kernel_files, shared_folder};
#[cfg(unix)]
pub use machine::{MachineGuard, machine, shared_machine};
#[cfg(target_os = "linux")]
pub use ports::reserved_ports;
pub use task::task_by_hand;
pub use virtual_os::{
    CALLS_PER_INSTANT_MAX, Deadlock, DeadlockReason, THREADS_MAX, VirtualLock, VirtualOs, VirtualParker, explore,
};
pub use waiting::{CHILD_MAX, SetOnDrop, WAIT_MAX, wait_for, wait_ok, wait_until};
#[cfg(target_os = "linux")]
pub use workers::{ROLE, workers};
