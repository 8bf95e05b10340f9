//! What a read returns, wherever it lives.

use std::fmt;
use std::ops::Deref;

/// The value of a record: in the engine's own memory where the engine allows that, or copied from the memory of a
/// temporal object. Reads as the bytes; [`into_owned`](Value::into_owned) copies what is not owned yet.
#[derive(Clone)]
pub struct Value<B>(Source<B>);

#[derive(Clone)]
enum Source<B> {
    /// A record of the engine's, without the first `header` bytes.
    Engine {
        record: B,
        header: usize,
    },
    Memory(Vec<u8>),
}

impl<B: Deref<Target = [u8]>> Value<B> {
    /// All of a record.
    #[inline]
    pub(crate) fn of_record(record: B) -> Self {
        Value(Source::Engine { record, header: 0 })
    }

    /// A record without its first `header` bytes, of which it has at least so many.
    pub(crate) fn of_record_after(record: B, header: usize) -> Self {
        Value(Source::Engine { record, header })
    }

    pub(crate) fn of_memory(value: Vec<u8>) -> Self {
        Value(Source::Memory(value))
    }

    /// The bytes, to be kept after the transaction.
    #[inline]
    pub fn into_owned(self) -> Vec<u8> {
        match self.0 {
            Source::Engine { record, header } => record[header..].to_vec(),
            Source::Memory(value) => value,
        }
    }
}

impl<B: Deref<Target = [u8]>> Deref for Value<B> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Source::Engine { record, header } => &record[*header..],
            Source::Memory(value) => value,
        }
    }
}

impl<B: Deref<Target = [u8]>> AsRef<[u8]> for Value<B> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<B: Deref<Target = [u8]>> fmt::Debug for Value<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<B: Deref<Target = [u8]>, C: Deref<Target = [u8]>> PartialEq<Value<C>> for Value<B> {
    fn eq(&self, other: &Value<C>) -> bool {
        **self == **other
    }
}
