//! Data that real-time work can access without waiting for another thread: reads whose completion is polled for, and
//! room in memory.
//!
//! There are two methods, the better one first. [`MappedFile`](punctual_os::linux::mapped::MappedFile): a file in
//! memory, read by loads, in which no access faults. [`PolledFile`]: a file on a device, read around the page cache;
//! the reader polls for the completion and so keeps its core. Everything else may block.

mod polled;
mod room;

pub use polled::{BLOCK_BYTES, PolledFile};

pub(crate) use room::check_room;

use punctual_os::linux::refused;
