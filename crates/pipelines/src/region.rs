//! The memory of a pipeline: words that several processes may read and write at once, and bytes whose owner changes
//! with these words.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Alignment of the memory's sections: one cache line of every supported machine.
pub(crate) const LINE: usize = 64;

/// Memory of a pipeline, aligned to a cache line. Clones share the memory.
#[derive(Clone)]
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// Keeps the memory mapped or allocated.
    _kept: Arc<dyn Any + Send + Sync>,
}

// SAFETY: words are atomic; bytes are handed out by the protocol of `runner.rs` to one writer, or to readers, at a
// time.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.bytes)
    }
}

#[repr(C, align(64))]
struct Line([AtomicU64; LINE / 8]);

impl Region {
    /// Allocates zeroed memory for this process alone.
    pub fn on_heap(bytes: usize) -> Region {
        let line = || Line(std::array::from_fn(|_| AtomicU64::new(0)));
        let lines: Arc<[Line]> = (0..bytes.div_ceil(LINE)).map(|_| line()).collect();
        let base = NonNull::from(&*lines).cast();
        Region {
            base,
            bytes: lines.len() * LINE,
            _kept: Arc::new(lines),
        }
    }

    /// Wraps existing memory, all zeros or a pipeline's; `kept` keeps it alive.
    ///
    /// # Safety
    /// `base` is aligned to 64 bytes and points to `bytes` bytes that can be read and written as long as `kept` lives.
    /// Only this crate writes there, in every process.
    pub unsafe fn of(base: NonNull<u8>, bytes: usize, kept: Arc<dyn Any + Send + Sync>) -> Region {
        Region {
            base,
            bytes,
            _kept: kept,
        }
    }

    /// Length of the memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// `count` words from byte `at` on.
    ///
    /// # Panics
    /// If the words are not within the memory, or not aligned.
    pub fn words(&self, at: usize, count: usize) -> &[AtomicU64] {
        self.check(at, count * 8);
        assert_eq!(at % 8, 0, "a word begins at a multiple of 8");
        // SAFETY: within the memory and aligned, as checked; any bits are a word, and all access is atomic.
        unsafe { std::slice::from_raw_parts(self.base.add(at).cast().as_ptr(), count) }
    }

    /// Two half words from byte `at` on: memory that is never used as whole words.
    pub(crate) fn halves(&self, at: usize) -> &[AtomicU32; 2] {
        self.check(at, 8);
        assert_eq!(at % 8, 0, "a pair begins at a multiple of 8");
        // SAFETY: within the memory and aligned, as checked; any bits are a pair, and all access is atomic.
        unsafe { self.base.add(at).cast().as_ref() }
    }

    /// `count` bytes from `at` on.
    ///
    /// # Safety
    /// No thread of any process writes them while the result lives.
    pub(crate) unsafe fn read(&self, at: usize, count: usize) -> &[u8] {
        self.check(at, count);
        // SAFETY: within the memory, as checked; not written, by contract.
        unsafe { std::slice::from_raw_parts(self.base.add(at).as_ptr(), count) }
    }

    /// `count` bytes from `at` on, to be written.
    ///
    /// # Safety
    /// No other thread of any process reads or writes them while the result lives.
    #[expect(
        clippy::mut_from_ref,
        reason = "the memory is shared; the caller has these bytes alone, by contract"
    )]
    pub(crate) unsafe fn write(&self, at: usize, count: usize) -> &mut [u8] {
        self.check(at, count);
        // SAFETY: within the memory, as checked; the caller's alone, by contract.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(at).as_ptr(), count) }
    }

    fn check(&self, at: usize, count: usize) {
        let end = at.checked_add(count);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "{count} bytes at {at} of {}",
            self.bytes
        );
    }
}

/// Stores bytes in words, eight to each, little-endian; bytes that find no word are left out.
pub(crate) fn store_bytes(words: &[AtomicU64], bytes: &[u8]) {
    for (word, bytes) in words.iter().zip(bytes.chunks(8)) {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
    }
}

/// The first `length` bytes that [`store_bytes`] has stored, at most as many as the words hold.
pub(crate) fn load_bytes(words: &[AtomicU64], length: usize) -> Vec<u8> {
    let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
    bytes.take(length).collect()
}
