//! The value that a read returns: copied out of the engine, or of the memory of a temporal object.
//!
//! Another thread may end a snapshot between two calls, and then its pages are reused. So the result of a call must not
//! lie in them. Copying a hundred bytes costs less than allocating memory for them: buffers are reused. Reads that need
//! no copy look at the bytes within the call ([`get_with`](crate::ReadTransaction::get_with)) or one by one
//! ([`Records::lend`](crate::Records::lend)).

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

/// A key or a value, readable even after its transaction has ended. Dereferences to its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Value(Vec<u8>);

impl Value {
    /// Copies `bytes` into a spare buffer of this thread, or a new one.
    #[inline]
    pub fn of(bytes: &[u8]) -> Value {
        let mut buffer = SPARE.try_with(Spare::take).unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        Value(buffer)
    }

    /// The bytes as a vector, without a copy.
    #[inline]
    pub fn into_owned(mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value(bytes)
    }
}

impl Drop for Value {
    #[inline]
    fn drop(&mut self) {
        if !(1..=KEPT_MAX).contains(&self.0.capacity()) {
            return;
        }
        let buffer = std::mem::take(&mut self.0);
        // Fails only while the thread ends; the buffer is then freed.
        let _ = SPARE.try_with(|spare| spare.give(buffer));
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        self.0 == other
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_never_shared() {
        let first = Value::of(b"first");
        let address = first.as_ptr();
        let second = Value::of(b"second");
        assert_eq!((&*first, &*second), (&b"first"[..], &b"second"[..]));
        drop(first);
        let third = Value::of(b"3");
        assert_eq!((third.as_ptr(), &*third), (address, &b"3"[..]));
        assert_eq!(&*second, b"second");
        drop(Value::of(&vec![0; KEPT_MAX + 1]));
        let many: Vec<Value> = (0..2 * SPARE_MAX).map(|at| Value::of(&[at as u8; 9])).collect();
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
