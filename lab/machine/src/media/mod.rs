//! Storage media: service times of requests, and waits for earlier ones.
//!
//! **Problem.** A disk takes milliseconds for any request, flash takes microseconds until it has to collect garbage,
//! byte-addressable memory takes next to nothing. How a job should wait for its data depends on the medium.
//!
//! **Terms.** A [`MediaDevice`] is a running medium: one request at a time, in the order in which they arrive, none
//! interrupted.
//!
//! **Method.** [`Media`] holds the figures, from a file (`media/`). A disk has a time per request, memory a time per
//! line (drawn uniformly from its range for every request). Flash has a time per page through a page-mapped translation
//! layer ([`Ftl`]), whose collections keep the device busy after the write that made them necessary. [`PageCache`] sits
//! in front of a medium.
//!
//! **Left out.** Parallel channels and queues of more than one command, seek distances, wear, power failures, trim.

mod cache;
mod device;
mod figures;
mod ftl;

pub use cache::{Lookup, PageCache};
pub use device::{DeviceReport, MediaDevice};
pub use figures::{Disk, Flash, LineMemory, Media, Medium};
pub use ftl::{FlashOperations, Ftl, Geometry};
