//! Data that real-time work can access without waiting for another thread: mapped memory, and reads whose completion is
//! polled for.
//!
//! There are two methods, the better one first. [`MappedPartition`] (experimental): a file on persistent or shared
//! memory, read by loads, in which no access faults. [`PolledFile`]: a file on a device, read around the page cache;
//! the reader polls for the completion and so keeps its core. Everything else may block.

mod flush;
mod mapped;
mod polled;
mod room;

pub use mapped::{MappedPartition, Medium};
pub use polled::{BLOCK_BYTES, PolledFile};

use punctual_os::linux::refused;
