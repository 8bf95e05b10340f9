//! Data that real-time work can access without waiting for another thread: mapped memory, and reads whose completion is
//! polled for.
//!
//! There are two methods, the better one first. [`MappedPartition`](punctual_os::linux::mapped::MappedPartition): a file on persistent or shared
//! memory, read by loads, in which no access faults. [`PolledFile`]: a file on a device, read around the page cache;
//! the reader polls for the completion and so keeps its core. Everything else may block.

mod polled;
mod room;

pub use polled::{BLOCK_BYTES, PolledFile};

pub(crate) use room::check_room;

use punctual_os::linux::refused;
