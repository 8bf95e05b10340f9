//! Measures a program's demand on the caches, instruction by instruction.
//!
//! **Problem.** The gain of a program by a way of the last-level cache (LLC) cannot be seen from outside: few machines
//! have counters that a user may read, and these count under the one allocation in force. A trace of every access holds
//! the answer for all allocations, but is far too long to be stored.
//!
//! **Method.** The program runs under QEMU's user-mode emulation, which loads this crate as a plugin. Every block of
//! instructions and every load and store goes straight into cache models in the emulator's own process: the private
//! caches of the thread ([`PrivateCaches`]), and behind them the LLC, of which only *stack distances* are kept
//! ([`LruSets`]; R. L. Mattson and others, "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2),
//! 1970): under LRU a line hits in c ways if and only if fewer than c other lines of its set were asked for since. One
//! count per distance gives the misses for every number of ways. Only windows of instructions ([`Window`]) leave the
//! process, through memory that is shared with the profiler ([`Channel`]).
//!
//! **Terms.** A *line* is a byte address divided by [`LINE_BYTES`]. A *request* is a line requested from the LLC
//! because L1 and L2 do not have it. A *stream* is the instructions and accesses of one thread ([`Stream`]). A *block*
//! is straight-line code that the emulator translates at once and enters at its top ([`Block`]).
//!
//! **Limits.** LRU and modulo indexing everywhere, by virtual address; no prefetcher, no write-back traffic, no TLB;
//! accesses of the kernel in system calls are not seen. A block counts from its top, as a whole even if a signal leaves
//! it in the middle. An iteration of a string instruction counts as an instruction.
//!
//! The crate depends on nothing but `std`, because it is compiled twice: as a library of the workspace, and by the
//! profiler's build script as the shared library that the emulator loads.

mod block;
mod channel;
mod geometry;
mod lru;
mod plugin;
mod private;
mod recorder;
mod stream;

pub use block::Block;
pub use channel::{Channel, ChannelError, Progress};
pub use geometry::{Cache, Geometry, GeometryError, LINE_BYTES, LLC_BYTES_MAX, WAYS_MAX};
pub use lru::LruSets;
pub use plugin::{EmulatorInfo, qemu_plugin_install, qemu_plugin_version};
pub use private::PrivateCaches;
pub use recorder::{Recorder, Window};
pub use stream::{STEP, Stream};
