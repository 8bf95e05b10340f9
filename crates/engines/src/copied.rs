//! Bytes copied out of an engine.
//!
//! Another thread may end a snapshot between two calls, and then its pages are reused. So the result of a call must not
//! lie in them. Copying a hundred bytes costs less than allocating memory for them: buffers are reused.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;

/// Spare buffers that a thread keeps: for a key and a value, and those of the record before.
const SPARE_MAX: usize = 4;
/// Largest buffer that is kept for reuse, in bytes; a larger one goes back to the system.
const KEPT_MAX: usize = 64 << 10;

thread_local! {
    static SPARE: Spare = const {
        Spare {
            count: Cell::new(0),
            places: [const { Cell::new(Vec::new()) }; SPARE_MAX],
        }
    };
}

/// The spare buffers of a thread. Every read takes one and gives it back.
struct Spare {
    /// Number of `places` that hold a buffer; the first ones.
    count: Cell<usize>,
    places: [Cell<Vec<u8>>; SPARE_MAX],
}

impl Spare {
    #[inline]
    fn take(&self) -> Vec<u8> {
        let left = self.count.get().wrapping_sub(1);
        match self.places.get(left) {
            Some(place) => {
                self.count.set(left);
                place.take()
            }
            None => Vec::new(),
        }
    }

    #[inline]
    fn give(&self, buffer: Vec<u8>) {
        let count = self.count.get();
        if let Some(place) = self.places.get(count) {
            self.count.set(count + 1);
            place.set(buffer);
        }
    }
}

/// A key or a value of a snapshot, readable even after the snapshot was ended.
#[derive(Clone, PartialEq, Eq)]
pub struct Blob(Vec<u8>);

impl Blob {
    /// Copies `bytes` into a spare buffer, or a new one.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Blob {
        let mut buffer = SPARE.try_with(Spare::take).unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        Blob(buffer)
    }
}

impl Drop for Blob {
    #[inline]
    fn drop(&mut self) {
        if self.0.capacity() > KEPT_MAX {
            return;
        }
        let buffer = std::mem::take(&mut self.0);
        // Fails only while the thread ends; the buffer is then freed.
        let _ = SPARE.try_with(|spare| spare.give(buffer));
    }
}

impl Deref for Blob {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq<[u8]> for Blob {
    fn eq(&self, other: &[u8]) -> bool {
        self.0 == other
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_never_shared() {
        let first = Blob::of(b"first");
        let address = first.as_ptr();
        let second = Blob::of(b"second");
        assert_eq!((&*first, &*second), (&b"first"[..], &b"second"[..]));
        drop(first);
        let third = Blob::of(b"3");
        assert_eq!((third.as_ptr(), &*third), (address, &b"3"[..]));
        assert_eq!(&*second, b"second");
        drop(Blob::of(&vec![0; KEPT_MAX + 1]));
        let many: Vec<Blob> = (0..2 * SPARE_MAX).map(|at| Blob::of(&[at as u8; 9])).collect();
        drop(many);
        let kept = || SPARE.with(|spare| (spare.count.get(), spare.take().capacity()));
        for count in (1..=SPARE_MAX).rev() {
            let (found, capacity) = kept();
            assert!(
                found == count && capacity <= KEPT_MAX,
                "{found} of {count}, {capacity} bytes"
            );
        }
        assert_eq!(kept().0, 0);
    }
}
