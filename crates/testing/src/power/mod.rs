//! Power cuts: what a store's files look like after one, from a record of what was written and synced.
//!
//! **Problem.** A kill ends a process and leaves the page cache. A power cut takes the page cache: of all that was
//! written and not synced, any part may be on the medium. No test can cut the power a thousand times a minute.
//!
//! **Method.** A test program records each write, sync, rename and removal below one folder, in order
//! ([`record`]). It does so in place of the C library's own functions, which [`record_files!`](crate::record_files)
//! defines in that program: the linker takes them for the standard library's calls and for those of C code in the same
//! program, so that neither is changed. What a file system keeps is then a pure function of the record up to an
//! instant, a [`Loss`] and a seed: [`Disk`].
//!
//! **What a sync means here** is what POSIX says and no more: `fsync` and `fdatasync` make the content of a file
//! durable, a write through `O_DSYNC` makes its own bytes durable, and the entry of a file in its directory is durable
//! once the *directory* was synced. Names change in the order of the calls, as on a file system with a journal. Writes
//! to mapped memory are not seen: LMDB has none in its data file without its write map.

mod disk;
mod record;

pub use disk::{Disk, Image, Loss};
#[doc(hidden)]
pub use record::hooks;
pub use record::{Event, FileId, fail_syncs, mark, record};
