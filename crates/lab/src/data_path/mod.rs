//! Data that real-time work reaches without waiting for another thread: mapped memory, and completions that are polled
//! for.
//!
//! Two ways, the better one first. [`MappedPartition`] (experimental): a file on persistent or shared memory, read by
//! load, in which no access faults. [`PolledFile`]: a file on a device, read around the page cache, whose completion
//! is awaited by looking for it, so that the reader keeps its core. Everything else may block.

mod flush;
mod mapped;
mod polled;
mod room;

pub use mapped::{MappedPartition, Medium};
pub use polled::{BLOCK_BYTES, PolledFile};

use punctual_os::linux::refused;
