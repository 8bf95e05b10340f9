//! The value that a read returns, wherever its bytes lie.

use std::fmt;
use std::ops::Deref;

/// The value of a record: in the engine's own memory where the engine allows that, or copied from the memory of a
/// temporal object. Dereferences to its bytes; [`into_owned`](Value::into_owned) copies them where they are the
/// engine's.
#[derive(Clone)]
pub struct Value<B>(Source<B>);

#[derive(Clone)]
enum Source<B> {
    /// A record in the engine's memory; its first `header` bytes are not part of the value.
    Engine {
        record: B,
        header: usize,
    },
    Memory(Vec<u8>),
}

impl<B: Deref<Target = [u8]>> Value<B> {
    /// The value is the whole record.
    #[inline]
    pub(crate) fn of_record(record: B) -> Self {
        Value(Source::Engine { record, header: 0 })
    }

    /// The value is the record without its first `header` bytes; `record` has at least that many.
    pub(crate) fn of_record_after(record: B, header: usize) -> Self {
        Value(Source::Engine { record, header })
    }

    pub(crate) fn of_memory(value: Vec<u8>) -> Self {
        Value(Source::Memory(value))
    }

    /// The bytes as a vector that outlives the transaction.
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
