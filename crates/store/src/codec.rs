//! Types of a table's keys and values: how they are written as bytes, and read again.
//!
//! Bytes, text and integers need nothing; integers sort as numbers do. [`Postcard`] stores any type of serde's. For an
//! encoding of one's own, implement [`Codec`] for a marker or the type itself, and [`Encode`] for what is passed in.

use std::borrow::Cow;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The type of a table's keys or values.
pub trait Codec {
    /// The type that reads return.
    type Owned;
    /// Name of the encoding. It is kept in the store, so that a table is not read with another one.
    const NAME: &'static str;

    /// Reads a key or value.
    ///
    /// # Errors
    /// The reason why these bytes are none.
    fn decode(bytes: &[u8]) -> Result<Self::Owned, String>;
}

/// A value that can be passed where a table has the type `C`.
pub trait Encode<C: ?Sized> {
    /// Writes the value. The bytes of keys sort as the table's records are to be sorted.
    ///
    /// # Errors
    /// The reason why it cannot be written.
    fn encode(&self) -> Result<Cow<'_, [u8]>, String>;
}

impl Codec for [u8] {
    type Owned = Vec<u8>;
    const NAME: &'static str = "bytes";

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(bytes.to_vec())
    }
}

impl<T: AsRef<[u8]> + ?Sized> Encode<[u8]> for T {
    fn encode(&self) -> Result<Cow<'_, [u8]>, String> {
        Ok(Cow::Borrowed(self.as_ref()))
    }
}

impl Codec for str {
    type Owned = String;
    const NAME: &'static str = "text";

    fn decode(bytes: &[u8]) -> Result<String, String> {
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|error| error.to_string())
    }
}

impl<T: AsRef<str> + ?Sized> Encode<str> for T {
    fn encode(&self) -> Result<Cow<'_, [u8]>, String> {
        Ok(Cow::Borrowed(self.as_ref().as_bytes()))
    }
}

/// Integers are written with the highest byte first, signed ones with their sign reversed: bytes sort as numbers do.
macro_rules! integers {
    ($($integer:ident, $unsigned:ident, $signs:expr;)*) => {$(
        impl Codec for $integer {
            type Owned = $integer;
            const NAME: &'static str = stringify!($integer);

            fn decode(bytes: &[u8]) -> Result<$integer, String> {
                let wrong = |_| format!("{} bytes, not {}", bytes.len(), size_of::<$integer>());
                let number = $unsigned::from_be_bytes(bytes.try_into().map_err(wrong)?);
                Ok((number ^ $signs) as $integer)
            }
        }

        impl Encode<$integer> for $integer {
            fn encode(&self) -> Result<Cow<'_, [u8]>, String> {
                Ok(Cow::Owned((*self as $unsigned ^ $signs).to_be_bytes().to_vec()))
            }
        }

        impl Encode<$integer> for &$integer {
            fn encode(&self) -> Result<Cow<'_, [u8]>, String> {
                Encode::<$integer>::encode(*self)
            }
        }
    )*};
}

integers! {
    u8, u8, 0; u16, u16, 0; u32, u32, 0; u64, u64, 0; u128, u128, 0;
    i8, u8, 1 << 7; i16, u16, 1 << 15; i32, u32, 1 << 31; i64, u64, 1 << 63; i128, u128, 1 << 127;
}

/// Values of a type of serde's, in the encoding of the crate `postcard`: compact, without the names of fields. As keys,
/// they do not sort as numbers do.
///
/// The store notes the encoding, not `T`: of two types on one table, reads refuse only bytes that do not fit theirs.
/// To have the types compared, implement [`Codec`] with a [name](Codec::NAME) for each, and `decode` by this one.
pub struct Postcard<T>(PhantomData<fn() -> T>);

impl<T: DeserializeOwned> Codec for Postcard<T> {
    type Owned = T;
    const NAME: &'static str = "postcard";

    fn decode(bytes: &[u8]) -> Result<T, String> {
        match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(format!("{} bytes too many", rest.len())),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl<T: Serialize> Encode<Postcard<T>> for T {
    fn encode(&self) -> Result<Cow<'_, [u8]>, String> {
        postcard::to_stdvec(self)
            .map(Cow::Owned)
            .map_err(|error| error.to_string())
    }
}

impl<T: Serialize> Encode<Postcard<T>> for &T {
    fn encode(&self) -> Result<Cow<'_, [u8]>, String> {
        Encode::<Postcard<T>>::encode(*self)
    }
}
