//! Memory of a file that outlives the process.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

/// Medium behind mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedMedium {
    /// Persistent memory, mapped synchronously (a file system with `dax`).
    PersistentMemory,
    /// Memory of this machine (tmpfs).
    SharedMemory,
}

impl fmt::Display for MappedMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MappedMedium::PersistentMemory => "persistent memory: survives processes and power cuts",
            MappedMedium::SharedMemory => "tmpfs: survives processes, not power cuts",
        })
    }
}

/// A file in memory, which no other program has mapped by [`Os::map`](crate::Os::map). Access never waits for a
/// device, unless tmpfs was swapped (memory that is locked is not, mlockall(2)). It may fault on persistent memory, of
/// which the kernel write-protects pages that it has written back, and before Linux 5.14. Stores of one thread survive
/// its process in any order; after [`write_back`](MappedWords::write_back) they survive all that the [`MappedMedium`]
/// says.
pub trait MappedWords: fmt::Debug + Send + Sync {
    /// All words, in the byte order of this machine; 0 where nothing was ever stored.
    fn words(&self) -> &[AtomicU64];

    /// Brings these words, as this thread sees them, to the medium, before any later store. Out of range: panics.
    fn write_back(&self, words: Range<usize>);

    /// Medium of the file.
    fn medium(&self) -> MappedMedium;
}
