//! Custody of the machine: which process holds which of its cores and settings, and how they are restored.
//!
//! - [`journal`]: a process records each change here before it makes the change, and claims cores. Restoring undoes the
//!   changes, newest first, unless another process still wants them.
//! - `ledger`: the table of all processes, their claims and their changes, in one file.
//! - `guardian`: a small process that restores the machine after its process was killed; `undo` and `heirs` are its
//!   means, by plain system calls only.
//! - [`recovery`]: restores after a kill of both, at the next start of any process.
//!
//! Below them are the kernel files that both this crate and `punctual-platform` read: [`KernelTree`] is their root.
//! These two crates alone know kernel paths.

#![cfg(target_os = "linux")]

pub mod core_mask;
pub mod groups;
mod guardian;
mod heirs;
pub mod journal;
mod ledger;
pub mod mounts;
pub mod recovery;
pub mod stat;
pub mod tree;
mod undo;

pub use tree::KernelTree;

use punctual_os::Refusal;
use punctual_os::linux::{last_error, refused};
