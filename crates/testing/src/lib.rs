//! What do the tests of several rooms use? Children with a bound, virtual time, conformance suites, kernel trees.

#[cfg(unix)]
mod children;
pub mod conformance;
mod kernel;
mod task;
mod virtual_os;

#[cfg(unix)]
pub use children::{Kept, output, start};
pub use kernel::{kernel_files, shared_folder};
pub use task::task_by_hand;
pub use virtual_os::{
    CALLS_PER_INSTANT_MAX, Deadlock, Stopped, THREADS_MAX, VirtualLock, VirtualOs, VirtualParker, explore,
};
